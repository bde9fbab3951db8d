"""What a suite is: promises that one client holds us to, each a function. Standard library only: it runs everywhere.

A script makes its suites and ends with ``run(...)``. Every promise becomes one line of JSON on standard output, which
``run.py`` collects; a promise that does not hold says why.
"""

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from math import isclose
from pathlib import Path
from typing import Any

WHY_CHARACTERS_MAX = 600


@dataclass(frozen=True, slots=True)
class Served:
    """Where the server of all pipelines listens, each ``host:port``; ``folder`` is for what a suite writes.

    ``alone`` are servers of one pipeline, by its name, as clients expect them that name none; "fuzzed" is one that may
    be sent anything, and "keyed" one that wants a key: that of ``folder``'s file ``key`` is for one of its pipelines.
    """

    http: str
    grpc: str
    folder: str
    alone: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.http}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``why`` is empty when the promise holds. ``left_out`` says with which measured reason a suite could not run."""

    client: str
    suite: str
    promise: str
    why: str = ""
    left_out: bool = False


class LeftOut(Exception):
    """This machine cannot run the suite; the text is what was measured."""


Check = Callable[[Served], None]


class Suite:
    """The promises of one client. Decorate a function of ``Served`` with what it promises."""

    def __init__(self, client: str, name: str) -> None:
        self.client = client
        self.name = name
        self.checks: list[tuple[str, Check]] = []

    def __call__(self, promise: str) -> Callable[[Check], Check]:
        def add(check: Check) -> Check:
            self.checks.append((promise, check))
            return check

        return add

    def outcomes(self, served: Served) -> list[Outcome]:
        return [self._outcome(promise, check, served) for promise, check in self.checks]

    def _outcome(self, promise: str, check: Check, served: Served) -> Outcome:
        try:
            check(served)
        except LeftOut as reason:
            return Outcome(self.client, self.name, promise, str(reason), left_out=True)
        except Exception as error:
            return Outcome(self.client, self.name, promise, _why(error))
        return Outcome(self.client, self.name, promise)


def _why(error: BaseException) -> str:
    line = next((frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.name == "_"), 0)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"line {line}: {text[:WHY_CHARACTERS_MAX]}"


def run(*suites: Suite) -> None:
    """Run them against the server that the command line names; what clients print goes to standard error."""
    served = Served(**json.loads(sys.argv[1]))
    for suite in suites:
        with redirect_stdout(sys.stderr):
            outcomes = suite.outcomes(served)
        for outcome in outcomes:
            print(json.dumps(asdict(outcome)), flush=True)


def same(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise AssertionError(f"expected {wanted!r}, got {found!r}")


def near(found: Sequence[float], wanted: Sequence[float], tolerance: float = 1e-5) -> None:
    if len(found) != len(wanted) or not all(
        isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) for a, b in zip(found, wanted, strict=True)
    ):
        raise AssertionError(f"expected {list(wanted)[:8]!r}, got {list(found)[:8]!r}")


def says(text: object, *words: str) -> None:
    """A message that a person can use: with these words, and with nothing of our insides."""
    shown = str(text)
    missing = [word for word in words if word.lower() not in shown.lower()]
    leaked = [word for word in ("Traceback", "/site-packages/", "forwardpass/", str(Path.home())) if word in shown]
    if missing or leaked or len(shown) > 4096:
        raise AssertionError(f"the message misses {missing}, gives away {leaked}: {shown!r}")


def refused(kind: type[BaseException] | tuple[type[BaseException], ...], act: Callable[[], object]) -> Any:
    """The exception of this kind that the act raises."""
    try:
        answer = act()
    except kind as error:
        return error
    raise AssertionError(f"was not refused: {answer!r}"[:WHY_CHARACTERS_MAX])
