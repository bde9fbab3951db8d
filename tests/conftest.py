"""Shared by all tests: this folder is importable (``fixtures_onnx``, ``serving``), and nothing is left out in CI.

A test that is skipped because a program, a package or a download is missing fails when CI is set: CI installs
everything, so there a skip hides something. What cannot be installed may still be skipped: such a reason begins with
"this kernel" or "this machine".
"""

import compileall
import os
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest

MAY_BE_MISSING = ("this kernel", "this machine")
SOURCE = Path(__file__).parents[1] / "src"


def pytest_sessionstart(session: pytest.Session) -> None:
    """An installed package is compiled; the servers of tests are to start as fast, whoever edited a file before."""
    compileall.compile_dir(SOURCE, quiet=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _failed_in_ci(report, item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _failed_in_ci(report, collector.nodeid)


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _failed_in_ci(report: Report, name: str) -> Report:
    """The report as it is, or the failure that a skip is in CI. An expected failure ("xfail") is no skip."""
    if not os.environ.get("CI") or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(MAY_BE_MISSING):
        report.outcome = "failed"
        report.longrepr = f"{name} was skipped, and in CI nothing may be missing: {reason}"
    return report
