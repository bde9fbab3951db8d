"""How many workers are best, where a version leaves that open."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests import fixtures_onnx as models

from forwardpass.core.pipeline import Pipeline, Step, Version, Workers
from forwardpass.execution.layout import best_layout
from forwardpass.execution.plan import build
from forwardpass.execution.selftest import rows_alone


def laid_out(folder: Path, threads: int, clock: Callable[[], float]) -> tuple[int, str]:
    models.network(folder / "m.onnx")
    step = Step("model", {"engine": "onnxruntime", "file": "m.onnx"})
    version = Version("p", 1, "0" * 64, str(folder), Pipeline((step,), workers=Workers(count=0)))
    plan = build(version, threads=threads)
    try:
        return best_layout(version, plan, rows_alone(plan), threads, clock=clock)
    finally:
        plan.close()


def test_what_takes_as_long_at_once_as_one_by_one_has_a_worker_for_each_thread(tmp_path: Path) -> None:
    ticks = count()
    found = laid_out(tmp_path, 2, lambda: next(ticks) * 0.01)
    assert found == (2, "2 workers of 1 thread are 2.00 times as quick as 1 worker of 2")


def test_what_takes_twice_as_long_at_once_has_one_worker(tmp_path: Path) -> None:
    """Two readings of the clock a run: the runs of one worker take 1 s, those of two at once 2 s."""
    ticks = iter([0.0] * 5 + [0.0, 1.0, 1.0, 3.0] * 5)
    assert laid_out(tmp_path, 2, lambda: next(ticks)) == (
        1,
        "2 workers of 1 thread are 1.00 times as quick as 1 worker of 2",
    )


def test_what_would_take_too_long_is_not_tried(tmp_path: Path) -> None:
    """A first run of 2 s: five turns of it, and of two at once, would take 30 s."""
    ticks = iter([0.0, 0.0, 2.0, 2.0])
    assert laid_out(tmp_path, 2, lambda: next(ticks)) == (
        1,
        "1 worker: others were not tried: that would have taken more than 20 s",
    )


def test_one_thread_is_one_worker(tmp_path: Path) -> None:
    assert laid_out(tmp_path, 1, lambda: 0.0)[0] == 1
