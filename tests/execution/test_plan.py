"""The plan: fields followed through the steps, rows that fail alone, answers checked before they leave."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx as models

from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.core.pipeline import Checks, Field, Input, Pipeline, Step, Version
from forwardpass.execution.plan import Plan, build
from forwardpass.steps.protocol import Batch, Column

MODEL = Step("model", {"engine": "onnxruntime", "file": "m.onnx"})


def plan_of(folder: Path, *steps: Step, trusted: str = "", **parts: Any) -> Plan:
    """``trusted`` is the text of a ``steps.py`` that the operator trusts."""
    if trusted:
        (folder / "steps.py").write_text(trusted)
    return build(Version("p", 1, "0" * 64, str(folder), Pipeline(steps, **parts), bool(trusted)), threads=1)


def run(plan: Plan, **columns: Column) -> Batch:
    rows = len(next(iter(columns.values())))
    batch = Batch(columns, rows, list(range(rows)))
    plan.preprocess(batch)
    plan.execute(batch)
    plan.postprocess(batch)
    return batch


def test_a_bare_model_takes_its_own_inputs_and_answers_with_its_outputs(tmp_path: Path) -> None:
    models.simple(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, MODEL)
    assert plan.signature.inputs == (
        Input("INPUT0", "tensor", datatype="INT32", shape=(16,)),
        Input("INPUT1", "tensor", datatype="INT32", shape=(16,)),
    )
    assert plan.signature.outputs == (Field("OUTPUT0", "INT32", (16,)), Field("OUTPUT1", "INT32", (16,)))
    a, b = np.full((2, 16), 5, np.int32), np.full((2, 16), 3, np.int32)
    outputs = plan.outputs(run(plan, INPUT0=a, INPUT1=b))
    assert [outputs["OUTPUT0"].tolist(), outputs["OUTPUT1"].tolist()] == [(a + b).tolist(), (a - b).tolist()]


def test_steps_run_in_their_order_around_the_model(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", ("N", 2))
    plan = plan_of(
        tmp_path,
        Step("columns", {"names": ["a", "b"]}),
        MODEL,
        Step("softmax"),
        inputs=(Input("a", "number"), Input("b", "number")),
    )
    assert plan.signature.outputs == (Field("probabilities", "FP32", (2,)),)
    batch = run(plan, a=np.array([1.0, 0.0]), b=np.array([1.0, 100.0]))
    np.testing.assert_allclose(batch.columns["probabilities"], [[0.5, 0.5], [0.0, 1.0]], atol=1e-6)


def test_each_part_does_its_own_steps_only(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", ("N", 2))
    numbers = (Input("a", "number"), Input("b", "number"))
    plan = plan_of(tmp_path, Step("columns", {"names": ["a", "b"]}), MODEL, Step("softmax"), inputs=numbers)
    batch = Batch({"a": np.ones(1), "b": np.ones(1)}, 1, [0])
    made: list[set[str]] = []
    for part in (plan.preprocess, plan.execute, plan.postprocess):
        before = set(batch.columns)
        part(batch)
        made.append(set(batch.columns) - before)
    assert made == [{"features"}, {"y"}, {"probabilities"}]


def test_outputs_can_be_any_fields_in_any_order(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, MODEL, Step("softmax"), outputs=("probabilities", "x"))
    assert [field.name for field in plan.signature.outputs] == ["probabilities", "x"]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"outputs": ("z",)}, "pipeline.toml: outputs: no field is named z; fields at the end: x, y"),
        ({"checks": Checks(range={"x": (0, 1)})}, "pipeline.toml: checks.range.x: no output that is a number;"),
    ],
)
def test_what_is_said_of_outputs_must_be_of_outputs(tmp_path: Path, parts: dict[str, Any], problem: str) -> None:
    models.identity(tmp_path / "m.onnx")
    with pytest.raises(Misconfigured) as caught:
        plan_of(tmp_path, MODEL, **parts)
    assert problem in caught.value.text


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (Step("softmax", {"input": "z"}), "pipeline.toml: steps[1].input: no field is named 'z'"),
        (Step("softmaks"), "pipeline.toml: steps[1].use: no kind of step is named 'softmaks'"),
        (Step("model", {"engine": "onnxruntime", "file": "n.onnx"}), "pipeline.toml: steps[1].file: no file n.onnx"),
        (Step("model", {"engine": "onnxruntime", "file": "bad"}), "pipeline.toml: steps[1]: bad: onnxruntime cannot"),
    ],
)
def test_a_step_that_cannot_work_is_found_at_load_and_named_by_its_place(
    tmp_path: Path, step: Step, problem: str
) -> None:
    models.identity(tmp_path / "m.onnx")
    (tmp_path / "bad").write_bytes(b"bad")
    with pytest.raises(Misconfigured) as caught:
        plan_of(tmp_path, MODEL, step)
    assert problem in caught.value.text


def test_a_row_whose_answer_is_not_finite_fails_alone(tmp_path: Path) -> None:
    models.nan_maker(tmp_path / "m.onnx")
    batch = run(plan_of(tmp_path, MODEL), x=np.array([[1], [-1], [0], [1]], np.float32))
    assert {row: failure.code for row, failure in batch.failures.items()} == dict.fromkeys(
        (1, 2), Code.NON_FINITE_OUTPUT
    )
    assert (batch.origin, batch.columns["y"].tolist()) == ([0, 3], [[0.0], [0.0]])


def test_the_finite_check_can_be_switched_off(tmp_path: Path) -> None:
    models.nan_maker(tmp_path / "m.onnx")
    batch = run(plan_of(tmp_path, MODEL, checks=Checks(finite=False)), x=np.array([[-1]], np.float32))
    assert np.isnan(batch.columns["y"]).all()


def test_a_row_whose_answer_is_out_of_range_fails_alone(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, MODEL, checks=Checks(range={"y": (0.0, 1.0)}))
    batch = run(plan, x=np.array([[0, 0, 0, 1], [0, 2, 0, 0]], np.float32))
    assert batch.origin == [0]
    assert (batch.failures[1].code, batch.failures[1].text) == (
        Code.OUTPUT_OUT_OF_RANGE,
        "y: the answer is outside 0 to 1",
    )


def test_another_number_of_rows_fails_all_and_gives_nobody_anothers_row(tmp_path: Path) -> None:
    models.leading_one(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, MODEL)
    with pytest.raises(Failed, match="y: the model returned 1 rows for 2") as caught:
        run(plan, x=np.ones((2, 4), np.float32))
    assert caught.value.code is Code.BAD_OUTPUT_SHAPE
    assert run(plan, x=np.ones((1, 4), np.float32)).columns["y"].tolist() == [[1.0] * 4]


def test_a_model_that_would_get_no_row_is_not_run_and_the_outputs_are_there_all_the_same(tmp_path: Path) -> None:
    models.unique_axis0(tmp_path / "m.onnx")  # dies of no rows
    numbers = (Input("a", "number", missing=True),)
    plan = plan_of(tmp_path, Step("columns", {"names": ["a"]}), MODEL, inputs=numbers)
    batch = run(plan, a=np.array([np.nan]))
    assert batch.failures[0].code is Code.MISSING_FIELD
    assert plan.outputs(batch)["y"].shape == (0, 0)


def test_a_plan_says_what_a_fixed_first_axis_takes(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", (3, 4))
    signature = plan_of(tmp_path, MODEL).signature
    assert (signature.batched, signature.fixed_rows) == (False, 3)


def test_two_models_make_one_middle_part(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    second = Step("model", {**MODEL.options, "inputs": {"x": "probabilities"}, "outputs": {"y": "z"}})
    plan = plan_of(tmp_path, MODEL, Step("softmax"), second)
    batch = Batch({"x": np.zeros((1, 4), np.float32)}, 1, [0])
    plan.execute(batch)
    assert batch.columns["z"].tolist() == [[0.25] * 4]
    assert [each["engine"] for each in plan.settings] == ["onnxruntime", "onnxruntime"]


def test_a_closed_plan_can_be_closed_again(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, MODEL)
    plan.close()
    plan.close()
    assert plan.platform == "onnx_onnxv1"


def test_a_later_load_takes_over_what_the_first_one_found(tmp_path: Path) -> None:
    models.gather_range(tmp_path / "m.onnx")
    first = plan_of(tmp_path, MODEL)
    assert [each["optimization"] for each in first.settings] == ["basic"]
    version = Version("p", 1, "0" * 64, str(tmp_path), first.definition)
    later = build(version, threads=1, settings=first.settings)
    assert (later.settings, later.warnings) == (first.settings, [])
    expected = [[5.0, 6.0, 7.0, 0.0, 1.0, 2.0]]
    assert run(later, x=np.arange(8, dtype=np.float32)[np.newaxis]).columns["y"].tolist() == expected


def test_a_model_of_several_rows_at_a_time_is_refused_where_elements_are_its_rows(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", (4,))
    steps = (Step("expand", {"over": {"s": "x"}}), MODEL, Step("fold", {"lists": {"y": "ys"}}))
    with pytest.raises(Misconfigured) as refused:
        plan_of(tmp_path, *steps, inputs=(Input("s", "tensor", datatype="FP32", shape=(5,)),))
    (problem,) = refused.value.problems
    assert (problem.key, problem.allowed) == ("steps[1].file", "a model whose first axis is free, or 1")


def test_models_that_can_never_both_have_their_rows_are_refused(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", (2, 4))
    models.identity(tmp_path / "n.onnx", (3, 4))
    other = Step("model", {"engine": "onnxruntime", "file": "n.onnx", "outputs": {"y": "z"}})
    with pytest.raises(Misconfigured, match="fixed at 3, and another's at 2"):
        plan_of(tmp_path, MODEL, other)


def test_two_threads_are_never_in_one_step_before_the_model(tmp_path: Path) -> None:
    own = """
import threading
busy = threading.Lock()
meet = threading.Barrier(2)

def act(x: float) -> float:
    assert busy.acquire(blocking=False)
    try:
        meet.wait(0.2)
    except threading.BrokenBarrierError:
        pass
    finally:
        busy.release()
    return x
"""
    models.identity(tmp_path / "m.onnx", ("N",))
    step = Step("steps:act", {"output": "x", "datatype": "FP32"})
    plan = plan_of(tmp_path, step, MODEL, inputs=(Input("x", "number"),), trusted=own)
    batches = [Batch({"x": np.ones(1)}, 1, [0]) for _ in range(2)]
    threads = [threading.Thread(target=plan.preprocess, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [batch.failures for batch in batches] == [{}, {}]


def test_where_a_model_needs_all_its_rows_the_one_that_failed_says_why(tmp_path: Path) -> None:
    own = "def act(x: float) -> float:\n    if x == 13:\n        raise ValueError('unlucky')\n    return x\n"
    models.identity(tmp_path / "m.onnx", (2,))
    step = Step("steps:act", {"output": "x", "datatype": "FP32"})
    plan = plan_of(tmp_path, step, MODEL, inputs=(Input("x", "number"),), trusted=own)
    with pytest.raises(Refused, match="act: unlucky"):
        run(plan, x=np.array([1.0, 13.0]))
