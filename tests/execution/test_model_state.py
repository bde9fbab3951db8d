"""Models with a state: carried from request to request of a sequence and from element to element of a row."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx as models

from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Field, Pipeline, Sequences, Step, Version
from forwardpass.execution.model_step import ModelStep
from forwardpass.execution.plan import Plan, build
from forwardpass.execution.selftest import rows_alone, self_test, warm_up
from forwardpass.steps.protocol import Batch, Column, Context, Prepared, Slots, object_column

SUM = {
    "engine": "onnxruntime",
    "file": "m.onnx",
    "state": {"total": "after"},
    "constants": {"scale": 1},
}
X = Field("x", "FP32", (2,))


def rows(*values: float) -> Column:
    return np.array([[value, -value] for value in values], np.float32)


def prepared(folder: Path, **change: Any) -> Prepared:
    context = Context(folder, place="steps[3]")
    return ModelStep(context).prepare({**SUM, **change}, {"x": X}, context)


def sums(run: Prepared, values: Column, slots: dict[int, Slots] | None = None) -> list[float]:
    batch = Batch({"x": values}, len(values), list(range(len(values))), sequences=slots or {})
    run(batch)
    return [float(row[0]) for row in batch.columns["y"]]


def test_a_sequence_goes_on_where_it_was_and_a_row_of_none_begins_with_zeros(tmp_path: Path) -> None:
    models.accumulator(tmp_path / "m.onnx")
    run = prepared(tmp_path)
    slots: dict[int, Slots] = {0: {}, 2: {}}
    assert sums(run, rows(1, 10, 100), slots) == [1, 10, 100]
    assert sums(run, rows(2, 20, 200), slots) == [3, 20, 300]
    assert slots[0]["steps[3]"]["total"].tolist() == [[3.0, -3.0]]
    assert sums(run, rows(4, 40, 400), {1: slots[2]}) == [4, 340, 400]


def test_what_is_kept_of_one_is_no_part_of_anothers(tmp_path: Path) -> None:
    models.accumulator(tmp_path / "m.onnx")
    slots: dict[int, Slots] = {0: {}, 1: {}}
    sums(prepared(tmp_path), rows(1, 10), slots)
    kept = slots[0]["steps[3]"]["total"]
    assert kept.base is None


def test_elements_of_a_row_are_steps_in_their_order_and_rows_do_not_meet(tmp_path: Path) -> None:
    models.accumulator(tmp_path / "m.onnx")
    batch = Batch({"n": np.zeros(4)}, 4, [0, 1, 2, 3])
    batch.expand([3, 0, 1, 2], {"x": rows(1, 2, 4, 10, 100, 200)})
    prepared(tmp_path)(batch)
    assert batch.columns["y"][:, 0].tolist() == [1, 3, 7, 10, 100, 300]


def test_elements_go_on_from_the_sequences_state_and_leave_theirs(tmp_path: Path) -> None:
    models.accumulator(tmp_path / "m.onnx")
    run = prepared(tmp_path)
    slots: dict[int, Slots] = {0: {}, 1: {}}
    for expected in ([1, 3, 10], [4, 6, 20]):
        batch = Batch({"n": np.zeros(2)}, 2, [0, 1], sequences=slots)
        batch.expand([2, 1], {"x": rows(1, 2, 10)})
        run(batch)
        assert batch.columns["y"][:, 0].tolist() == expected


def test_elements_with_shapes_of_their_own_keep_their_order_too(tmp_path: Path) -> None:
    nodes = [
        models.node("ReduceSum", "x axes", "sum", keepdims=0),
        models.node("Add", "total sum", "after"),
        models.node("Identity", "after", "y"),
    ]
    values: list[models.Value] = [("x", models.FLOAT, ("N", "L")), ("total", models.FLOAT, ("N",))]
    outputs: list[models.Value] = [("y", models.FLOAT, ("N",)), ("after", models.FLOAT, ("N",))]
    models.write(tmp_path / "m.onnx", nodes, values, outputs, {"axes": np.array([1])})
    context = Context(tmp_path)
    options = {"engine": "onnxruntime", "file": "m.onnx", "state": {"total": "after"}}
    run = ModelStep(context).prepare(options, {"x": Field("x", "FP32", (-1,), "ragged")}, context)
    batch = Batch({"n": np.zeros(2)}, 2, [0, 1])
    lengths = [5, 1, 3, 3, 2]
    batch.expand([3, 2], {"x": object_column([np.ones(length, np.float32) for length in lengths])})
    run(batch)
    assert batch.columns["y"].tolist() == [5, 6, 9, 3, 5]


def test_a_model_of_one_row_at_a_time_keeps_a_state_for_each(tmp_path: Path) -> None:
    models.accumulator(tmp_path / "m.onnx", (1, 1, 2), (1, 2))
    run = prepared(tmp_path)
    slots: dict[int, Slots] = {0: {}, 1: {}}
    assert sums(run, rows(1, 10, 7), slots) == [1, 10, 7]
    assert sums(run, rows(2, 20, 7), slots) == [3, 30, 7]


def test_so_does_a_model_without_an_axis_for_rows(tmp_path: Path) -> None:
    nodes = [models.node("Add", "total x", "after"), models.node("Identity", "after", "y")]
    values: list[models.Value] = [("x", models.FLOAT, ()), ("total", models.FLOAT, ())]
    outputs: list[models.Value] = [("y", models.FLOAT, ()), ("after", models.FLOAT, ())]
    models.write(tmp_path / "m.onnx", nodes, values, outputs, {})
    context = Context(tmp_path)
    options = {"engine": "onnxruntime", "file": "m.onnx", "state": {"total": "after"}}
    run = ModelStep(context).prepare(options, {"x": Field("x", "FP32")}, context)
    slots: dict[int, Slots] = {0: {}, 1: {}}
    for expected in ([1, 10, 7], [2, 20, 7]):
        batch = Batch({"x": np.array([1, 10, 7], np.float32)}, 3, [0, 1, 2], sequences=slots)
        run(batch)
        assert batch.columns["y"].tolist() == expected


def test_a_constant_is_the_same_in_every_call_and_no_field(tmp_path: Path) -> None:
    models.accumulator(tmp_path / "m.onnx")
    assert sums(prepared(tmp_path, constants={"scale": 5}), rows(1, 2)) == [5, 10]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"state": {"totl": "after"}}, "steps[0].state.totl: the model has no 'totl' among its inputs; inputs of the model: x"),
        ({"state": {"total": "z"}}, "steps[0].state.total: the model has no 'z' among its outputs; outputs of the model: y"),
        ({"state": {"x": "y"}}, "steps[0].state.x: x (FP32[-1, 2]) has a free axis, and the model takes one row at a time"),
        ({"constants": {"scale": 1.5}}, "steps[0].constants.scale: 1.5; a value that fits scale (INT64)"),
        ({"constants": {"scale": [1]}}, "steps[0].constants.scale: [1]"),
        ({"constants": {"scale": "1"}}, "steps[0].constants.scale: 1"),
        ({"constants": {"scale": True}}, "steps[0].constants.scale: True"),
        ({"constants": {"rate": 1, "scale": 1}}, "steps[0].constants.rate: the model has no 'rate' among its inputs"),
        ({"constants": {"total": 1, "scale": 1}}, "steps[0].constants.total: is a state too"),
        ({"state": {}}, "steps[0].state: {} (table)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_graph_is_found_at_load(tmp_path: Path, change: dict[str, Any], found: str) -> None:
    models.accumulator(tmp_path / "m.onnx")
    with pytest.raises(Misconfigured) as caught:
        plan_of(tmp_path, **change)
    assert found in str(caught.value)


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ((1, 1, 2), "total (FP32[1, 1, 2]) has 0 free axes"),
        ((1, "N", "M"), "total (FP32[1, -1, -1]) has 2 free axes"),
    ],
)
def test_a_state_needs_one_free_axis_that_of_the_rows(tmp_path: Path, state: models.Shape, found: str) -> None:
    models.accumulator(tmp_path / "m.onnx", state)
    with pytest.raises(Misconfigured) as caught:
        plan_of(tmp_path)
    assert f"steps[0].state.total: {found}; one free axis" in str(caught.value)


def test_own_code_keeps_its_state_itself(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def f(batch):\n    return batch\n")
    table = {"x": {"datatype": "FP32", "shape": [2]}}
    options = {"engine": "python", "file": "steps.py", "call": "f", "inputs": table, "outputs": table}
    troubles = ModelStep().check({**options, "state": {"x": "x"}}, tmp_path)
    assert [(key, found) for key, found, _ in troubles] == [("state", "this engine has no such inputs")]


def plan_of(folder: Path, sequence: Sequences | None = None, **change: Any) -> Plan:
    definition = Pipeline((Step("model", {**SUM, **change}),), sequence=sequence)
    return build(Version("p", 1, "0" * 64, str(folder), definition), threads=1)


def test_neither_states_nor_constants_are_inputs_or_outputs_of_the_pipeline(tmp_path: Path) -> None:
    models.accumulator(tmp_path / "m.onnx")
    plan = plan_of(tmp_path)
    assert [given.name for given in plan.signature.inputs] == ["x"]
    assert plan.signature.outputs == (Field("y", "FP32", (2,)),)
    assert plan.batched


def test_such_a_model_is_warmed_up_and_its_rows_found_independent(tmp_path: Path) -> None:
    models.accumulator(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, Sequences())
    alone = rows_alone(plan)
    result = self_test(plan, alone, 32)
    assert (warm_up(plan, alone, result, 8), result.independent, result.bitwise) == ([], True, True)


def test_rows_that_meet_in_the_state_are_found(tmp_path: Path) -> None:
    nodes = [
        models.node("Add", "total x", "after"),
        models.node("ReduceMean", "total", "mean", axes=[0], keepdims=1),
        models.node("Add", "x mean", "y"),
    ]
    values: list[models.Value] = [("x", models.FLOAT, ("N", 2)), ("total", models.FLOAT, ("N", 2))]
    outputs: list[models.Value] = [("y", models.FLOAT, ("N", 2)), ("after", models.FLOAT, ("N", 2))]
    models.write(tmp_path / "m.onnx", nodes, values, outputs, {})
    definition = Pipeline(
        (Step("model", {"engine": "onnxruntime", "file": "m.onnx", "state": {"total": "after"}}),), sequence=Sequences()
    )
    plan = build(Version("p", 1, "0" * 64, str(tmp_path), definition), threads=1)
    assert not self_test(plan, rows_alone(plan), 8).independent
