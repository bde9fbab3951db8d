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
from forwardpass.core.pipeline import Batch as Settings
from forwardpass.core.pipeline import Field, Golden, Input, Pipeline, Step, Version
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.execution.local import LocalWorker
from forwardpass.pipeline.fields import decode, encode
from forwardpass.steps.kind import Kind
from forwardpass.steps.own import Own
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column
from forwardpass.trial import trial

X = Input("x", "tensor", datatype="FP32")
Y = Field("y", "FP32")


def version(folder: Path, given: Input, *golden: Golden, batch: Settings) -> Version:
    own = Step("steps:act", {"output": "y", "datatype": "FP32"})
    definition = Pipeline((own,), inputs=(given,), golden=golden, batch=batch)
    return Version("local", 1, "0" * 64, str(folder), definition, trusted=True)


def kind(prepare: Callable[[], Prepared], made: Field) -> Kind[Own]:
    def load(options: Own, known: FieldMap, context: Context) -> Prepared:
        return prepare()

    return Kind("steps:act", Own, lambda options, known: [made], load)


def answered(
    folder: Path,
    prepare: Callable[[], Prepared],
    values: list[float],
    *golden: Golden,
    batch: Settings = Settings(),  # noqa: B008  # frozen
    given: Input = X,
    made: Field = Y,
) -> Answer:
    make = partial(LocalWorker, own={"steps:act": kind(prepare, made)})

    async def ask() -> Answer:
        served = version(folder, given, *golden, batch=batch)
        async with trial(served, threads=1, deadline_s=10, make_worker=make) as running:
            columns, rows = encode(running.variant.signature, [{"x": float(value)} for value in values], root="/")
            now = monotonic_s()
            return await running.handle.answer(running.variant, Request("r", columns, rows, Timeline(now, now)))

    return asyncio.run(ask())


def answer(folder: Path, prepare: Callable[[], Prepared], values: list[float], *golden: Golden) -> list[float]:
    found = answered(folder, prepare, values, *golden)
    return list(np.frombuffer(found.outputs["y"].data, dtype="<f4"))


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


def test_a_defect_in_a_step_is_the_answer_of_its_row_with_what_it_was(tmp_path: Path) -> None:
    found = answered(tmp_path, lambda: doubled, [1, 13, 2])
    assert list(np.frombuffer(found.outputs["y"].data, "<f4")) == [2, 4]
    assert {row: failure.code for row, failure in found.failures.items()} == {1: Code.INTERNAL}
    assert "RuntimeError: a defect of ours" in found.failures[1].detail


def test_where_rows_may_depend_on_each_other_a_defect_is_the_answer_of_the_request(tmp_path: Path) -> None:
    with pytest.raises(Failed) as failed:
        answered(tmp_path, lambda: doubled, [1, 13], batch=Settings(enabled=False))
    assert failed.value.code is Code.INTERNAL


@pytest.mark.parametrize("batch", [Settings(), Settings(enabled=False)])
def test_rows_of_one_request_may_have_answers_of_unlike_shape(tmp_path: Path, batch: Settings) -> None:
    def counted(rows: Batch) -> None:
        rows.columns["y"] = object_column([np.arange(x, dtype=np.float32) for x in rows.columns["x"]])

    made = Field("y", "FP32", (-1,), "ragged")
    given = Input("x", "number", min=0, max=9)
    found = answered(tmp_path, lambda: counted, [2, 0, 3], batch=batch, made=made, given=given)
    assert [row["y"] for row in decode(found) if isinstance(row, dict)] == [[0, 1], [], [0, 1, 2]]


def test_what_an_exception_says_in_half_a_surrogate_pair_is_an_answer_too(tmp_path: Path) -> None:
    def broken(rows: Batch) -> None:
        if (rows.columns["x"] == 13).any():
            raise RuntimeError("\ud800")
        doubled(rows)

    with pytest.raises(Failed) as failed:
        answered(tmp_path, lambda: broken, [13])
    assert "RuntimeError: \\ud800" in failed.value.detail


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()])
def test_what_would_end_a_process_ends_a_request_alone(ending: BaseException, tmp_path: Path) -> None:
    def ends(rows: Batch) -> None:
        if (rows.columns["x"] == 13).any():
            raise ending
        doubled(rows)

    with pytest.raises(Failed) as failed:
        answered(tmp_path, lambda: ends, [13])
    assert failed.value.code is Code.INTERNAL
    assert type(ending).__name__ in failed.value.detail


@pytest.mark.parametrize(
    "error", [ValueError("odd file"), Failed(Code.ENGINE_FAILED, "odd file"), SystemExit("odd file")]
)
def test_what_breaks_while_it_loads_is_why_it_is_not_loaded(error: BaseException, tmp_path: Path) -> None:
    def broken() -> Prepared:
        raise error

    with pytest.raises(Misconfigured, match="odd file"):
        answer(tmp_path, broken, [1])


def test_golden_examples_are_replayed_in_it(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured) as refused:
        answer(tmp_path, lambda: doubled, [1], Golden({"x": 4.0}, {"y": 9.0}))
    assert refused.value.code is Code.GOLDEN_MISMATCH
