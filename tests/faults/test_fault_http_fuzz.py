"""The kept corpus of the HTTP fuzzer, what hypothesis makes up, and the fuzzer itself for a moment (FAULTS 4.3)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.http_invariants import check

CORPUS = Path(__file__).with_name("corpus") / "http"
LINES = (
    b"GET / HTTP/1.1\r\n", b"POST /a%20b?c HTTP/1.1\r\n", b"OPTIONS * HTTP/1.0\r\n", b"Host: a\r\n", b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Expect: 100-continue\r\n",
    b"X: y\t \r\n", b"\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"1;x=y\r\na\r\n", b"\n", b" ", b"\x00",
)  # fmt: skip


@pytest.mark.parametrize("file", sorted(CORPUS.iterdir()), ids=lambda file: file.name)
def test_what_the_fuzzer_found_of_interest_keeps_every_promise(file: Path) -> None:
    check(file.read_bytes())


def test_the_corpus_is_small() -> None:
    files = list(CORPUS.iterdir())
    assert 50 <= len(files) <= 200 and sum(file.stat().st_size for file in files) <= 200_000


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=7), st.lists(st.sampled_from(LINES) | st.binary(max_size=3), max_size=12))
def test_lines_in_any_order_cut_anywhere_keep_every_promise(cuts: bytes, lines: list[bytes]) -> None:
    check(bytes([len(cuts)]) + cuts + b"".join(lines))


@given(st.binary(max_size=400))
def test_any_bytes_keep_every_promise(data: bytes) -> None:
    check(data)


def test_the_fuzzer_finds_nothing_in_ten_seconds(tmp_path: Path) -> None:
    arguments = [str(tmp_path), "-max_total_time=10", "-max_len=1500", f"-artifact_prefix={tmp_path}/"]
    run = subprocess.run(
        [sys.executable, "-m", "tests.faults.fuzz_http", *arguments],
        check=False, cwd=CORPUS.parents[3], env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    assert "Done " in run.stderr
