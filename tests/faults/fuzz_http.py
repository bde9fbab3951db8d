"""Bytes that a program makes up, against the HTTP protocol: ``python -m tests.faults.fuzz_http FOLDER``.

Options are libFuzzer's (``-max_total_time=10``). What it finds of interest is kept in the folder.
"""

import logging
import sys
from pathlib import Path

import atheris

CORPUS = Path(__file__).with_name("corpus") / "http"
WORDS = CORPUS.parent / "http.dict"

with atheris.instrument_imports(include=["forwardpass.ingress"]):
    from tests.faults.http_invariants import check


class _Loud(logging.Handler):
    """What is logged as an error is a finding."""

    def emit(self, record: logging.LogRecord) -> None:
        raise AssertionError(record.getMessage())


def main() -> None:
    logging.getLogger("forwardpass").addHandler(_Loud(logging.ERROR))
    atheris.Setup([*sys.argv, str(CORPUS), f"-dict={WORDS}"], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
