"""A worker inside this process: what fails in it, and that it ends."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Field, Golden, Input, Pipeline, Step, Version
from forwardpass.core.request import Request
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline
from forwardpass.execution.local import LocalWorker
from forwardpass.steps.kind import Kind
from forwardpass.steps.own import Own
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared
from forwardpass.trial import trial


def version(folder: Path, *golden: Golden) -> Version:
    given = Input("x", "tensor", datatype="FP32")
    own = Step("steps:act", {"output": "y", "datatype": "FP32"})
    return Version("local", 1, "0" * 64, str(folder), Pipeline((own,), inputs=(given,), golden=golden), trusted=True)


def kind(prepare: Callable[[], Prepared]) -> Kind[Own]:
    def load(options: Own, known: FieldMap, context: Context) -> Prepared:
        return prepare()

    return Kind("steps:act", Own, lambda options, known: [Field("y", "FP32")], load)


def answer(folder: Path, prepare: Callable[[], Prepared], values: list[float], *golden: Golden) -> list[float]:
    make = partial(LocalWorker, own={"steps:act": kind(prepare)})

    async def ask() -> list[float]:
        async with trial(version(folder, *golden), threads=1, deadline_s=10, make_worker=make) as running:
            data = np.array(values, dtype="<f4").tobytes()
            now = monotonic_s()
            request = Request("r", [Tensor("FP32", (len(values),), data)], len(values), Timeline(now, now))
            found = await running.handle.answer(running.variant, request)
            return list(np.frombuffer(found.outputs["y"].data, dtype="<f4"))

    return asyncio.run(ask())


def doubled(batch: Batch) -> None:
    if (batch.columns["x"] == 13).any():
        raise RuntimeError("a defect of ours")
    batch.columns["y"] = batch.columns["x"] * np.float32(2)


def test_rows_are_answered_and_its_thread_ends_with_it(tmp_path: Path) -> None:
    assert answer(tmp_path, lambda: doubled, [1, 2, 3], Golden({"x": 4.0}, {"y": 8.0})) == [2, 4, 6]
    for thread in threading.enumerate():
        if thread.name.startswith("forwardpass-local"):
            thread.join(10)
            assert not thread.is_alive()


def test_a_defect_in_a_step_is_the_answer_of_its_request_with_what_it_was(tmp_path: Path) -> None:
    with pytest.raises(Failed) as failed:
        answer(tmp_path, lambda: doubled, [1, 13])
    assert failed.value.code is Code.INTERNAL
    assert "RuntimeError: a defect of ours" in failed.value.detail


@pytest.mark.parametrize("error", [ValueError("odd file"), Failed(Code.ENGINE_FAILED, "odd file")])
def test_what_breaks_while_it_loads_is_why_it_is_not_loaded(error: Exception, tmp_path: Path) -> None:
    def broken() -> Prepared:
        raise error

    with pytest.raises(Misconfigured, match="odd file"):
        answer(tmp_path, broken, [1])


def test_golden_examples_are_replayed_in_it(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured) as refused:
        answer(tmp_path, lambda: doubled, [1], Golden({"x": 4.0}, {"y": 9.0}))
    assert refused.value.code is Code.GOLDEN_MISMATCH
