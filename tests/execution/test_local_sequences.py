"""Sequences in a worker inside this process: kept, given up and lost as in a worker of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.pipeline import Field, Input, Pipeline, Sequences, Step, Version
from forwardpass.core.request import Request, Turn
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline
from forwardpass.execution.local import LocalWorker
from forwardpass.steps.kind import Kind
from forwardpass.steps.own import Own
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared
from forwardpass.trial import Trial, trial

STEP = "steps:sum"


class Sums:
    """A step that sums what it has seen of each sequence, fails row 13, and holds row 99 until it is let go."""

    def __init__(self) -> None:
        self.running, self.go = threading.Event(), threading.Event()

    def __call__(self, batch: Batch) -> None:
        sums = np.zeros(batch.rows, np.float32)
        for row, value in enumerate(batch.columns["x"]):
            slots = batch.slots(row)
            sums[row] = value + (slots or {}).get(STEP, 0.0)
            if slots is not None:
                slots[STEP] = sums[row]
            if value == 13:
                batch.fail(row, Failed(Code.STEP_FAILED, "13"))
            if value == 99:
                self.running.set()
                assert self.go.wait(10)
        batch.columns["y"] = sums


class Talk:
    """Requests of one row to a version that keeps two sequences."""

    def __init__(self, running: Trial) -> None:
        self.running = running

    async def say(
        self, id: str, value: float, *, start: bool = False, end: bool = False, left_s: float = 10.0
    ) -> float:
        data, now = np.array([value], "<f4").tobytes(), monotonic_s()
        request = Request("r", [Tensor("FP32", (1,), data)], 1, Timeline(now, now), deadline_s=left_s)
        request.sequence = Turn(id, start, end)
        answer = await self.running.handle.answer(self.running.variant, request)
        for failure in answer.failures.values():
            raise failure
        return float(np.frombuffer(answer.outputs["y"].data, "<f4")[0])

    async def refusal(self, id: str, value: float = 1.0, **turn: Any) -> Code:
        with pytest.raises(Failure) as caught:
            await self.say(id, value, **turn)
        return caught.value.code


def talk(folder: Path, script: Callable[[Talk, Sums], Coroutine[Any, Any, None]]) -> None:
    sums = Sums()

    def load(options: Own, known: FieldMap, context: Context) -> Prepared:
        return sums

    kind = Kind(STEP, Own, lambda options, known: [Field("y", "FP32")], load)
    definition = Pipeline(
        (Step(STEP, {"output": "y", "datatype": "FP32"}),),
        inputs=(Input("x", "tensor", datatype="FP32"),),
        sequence=Sequences(60.0, 2),
    )
    version = Version("local", 1, "0" * 64, str(folder), definition, trusted=True)

    async def run() -> None:
        make = partial(LocalWorker, own={STEP: kind})
        async with trial(version, threads=1, deadline_s=10, make_worker=make) as running:
            await script(Talk(running), sums)

    asyncio.run(run())


def test_two_sequences_go_on_each_from_its_own_and_an_end_ends(tmp_path: Path) -> None:
    async def script(talk: Talk, sums: Sums) -> None:
        assert [await talk.say(id, value, start=True) for id, value in (("a", 1), ("b", 10))] == [1, 10]
        assert [await talk.say("a", 1), await talk.say("b", 10), await talk.say("a", 1, end=True)] == [2, 20, 3]
        assert await talk.refusal("a") is Code.SEQUENCE_NOT_FOUND
        assert await talk.say("a", 1, start=True) == 1

    talk(tmp_path, script)


def test_a_row_that_fails_changes_nothing(tmp_path: Path) -> None:
    async def script(talk: Talk, sums: Sums) -> None:
        await talk.say("a", 1, start=True)
        assert await talk.refusal("a", 13, end=True) is Code.STEP_FAILED
        assert await talk.say("a", 1) == 2

    talk(tmp_path, script)


def test_what_runs_when_its_deadline_passes_is_lost_alone(tmp_path: Path) -> None:
    async def script(talk: Talk, sums: Sums) -> None:
        await talk.say("a", 1, start=True)
        for left_s in (0.3, 0.45, 0.65, 0.9):  # longer each time, or it would be refused for what the last one took
            sums.running.clear()
            sums.go.clear()
            late = asyncio.create_task(talk.refusal("b", 99, start=True, left_s=left_s))
            await asyncio.to_thread(sums.running.wait, 10)
            assert await late is Code.DEADLINE_EXCEEDED
            sums.go.set()
        assert await talk.refusal("b") is Code.SEQUENCE_LOST
        assert await talk.say("a", 1) == 2

    talk(tmp_path, script)
