"""The self-test at load: models whose rows may share a batch, and every reason why some may not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import fixtures_onnx as models

from forwardpass.core.clock import FakeClock
from forwardpass.core.pipeline import Batch, Golden, Input, Padding, Pipeline, Step, Version
from forwardpass.execution.plan import Plan, build
from forwardpass.execution.selftest import SelfTest, rows_alone, self_test, untried, warm_up

MODEL = Step("model", {"engine": "onnxruntime", "file": "m.onnx"})
PROVED = SelfTest(True, True, 0.0, "", 8)
TABLE = {"x": {"datatype": "FP32", "shape": [4]}}


def plan_of(folder: Path, *steps: Step, **parts: Any) -> Plan:
    return build(Version("p", 1, "0" * 64, str(folder), Pipeline(steps, **parts), trusted=True), threads=1)


def tried(folder: Path, *steps: Step, rows_max: int = 32, **parts: Any) -> SelfTest:
    plan = plan_of(folder, *steps, **parts)
    return self_test(plan, rows_alone(plan), rows_max)


@pytest.mark.parametrize(
    "write", [models.identity, models.simple, models.row_sum, models.network, models.text_identity]
)
def test_rows_that_do_not_see_each_other_are_found_independent(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    write(tmp_path / "m.onnx")
    result = tried(tmp_path, MODEL)
    assert (result.independent, result.reason, result.rows_tested) == (True, "", 8)
    assert result.max_difference < 1e-6


def test_what_is_equal_to_the_last_bit_is_said_to_be(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    result = tried(tmp_path, MODEL, batch=Batch(tolerance=0.0))
    assert (result.independent, result.bitwise, result.max_difference) == (True, True, 0.0)


def test_a_model_that_looks_at_the_whole_batch_is_found(tmp_path: Path) -> None:
    models.mean_over_batch(tmp_path / "m.onnx")
    result = tried(tmp_path, MODEL)
    assert not result.independent
    assert result.reason.startswith("output y of a row differs by ")
    assert result.reason.endswith(" in a batch of 8 from alone; 0.0001 is allowed")


def test_where_rows_share_no_batch_nothing_is_tried(tmp_path: Path) -> None:
    models.mean_over_batch(tmp_path / "m.onnx")
    result = tried(tmp_path, MODEL, batch=Batch(enabled=False))
    assert result == SelfTest(False, True, 0.0, "batch.enabled is false", 0)


def test_a_model_that_returns_one_row_for_many_is_found(tmp_path: Path) -> None:
    models.leading_one(tmp_path / "m.onnx")
    result = tried(tmp_path, MODEL)
    assert not result.independent
    assert result.reason == ("a batch of 8 fails where each row alone does not: y: the model returned 1 rows for 8")


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((3, 4), "the model's first axis is fixed at 3"), ((), "the model has no axis for rows")],
)
def test_a_model_that_takes_no_batches_says_so(tmp_path: Path, shape: tuple[int, ...], reason: str) -> None:
    models.identity(tmp_path / "m.onnx", shape)
    result = tried(tmp_path, MODEL)
    assert (result.independent, result.reason) == (False, reason)


def test_without_a_row_that_runs_nothing_is_proved(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def f(batch):\n    raise ValueError\n")
    step = Step("model", {"engine": "python", "file": "steps.py", "call": "f", "inputs": TABLE, "outputs": TABLE})
    result = tried(tmp_path, step)
    assert (result.independent, result.rows_tested) == (False, 0)
    why = "; the last that was tried failed: the model raised an error"
    assert result.reason == f"no row to test with: give golden examples, two at least{why}"


def test_when_no_row_runs_the_warm_up_says_what_the_model_said(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def f(batch):\n    raise ValueError('wants 3 channels')\n")
    step = Step("model", {"engine": "python", "file": "steps.py", "call": "f", "inputs": TABLE, "outputs": TABLE})
    plan = plan_of(tmp_path, step)
    alone = rows_alone(plan)
    (warning,) = warm_up(plan, alone, self_test(plan, alone, 32), 32)
    assert warning.startswith("no made-up row could be run before serving: the model raised an error\n")
    assert warning.endswith("ValueError: wants 3 channels")


def test_a_model_that_takes_small_batches_only_is_found(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def f(batch):\n    assert len(batch['x']) < 20\n    return batch\n")
    step = Step("model", {"engine": "python", "file": "steps.py", "call": "f", "inputs": TABLE, "outputs": TABLE})
    assert tried(tmp_path, step, rows_max=16).independent
    assert tried(tmp_path, step, rows_max=32).reason.startswith("a batch of 32 fails where each row alone does not")


def test_golden_requests_are_rows_to_test_with(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def f(batch):\n    assert (batch['x'][:, 0] == 77).all()\n    return batch\n")
    step = Step("model", {"engine": "python", "file": "steps.py", "call": "f", "inputs": TABLE, "outputs": TABLE})
    golden = tuple(Golden({"x": [77.0, last, 0.0, 0.0]}, {}) for last in (1.0, 2.0))
    assert not tried(tmp_path, step).independent
    result = tried(tmp_path, step, golden=golden)
    assert (result.independent, result.rows_tested) == (True, 2)


def test_rows_are_made_for_every_type_of_input(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", ("N", 4))
    record: dict[str, Any] = {"age": "number", "size": "number", "country": "category"}
    inputs = (Input("who", "record", columns=record), Input("text", "text"), Input("raw", "bytes"))
    steps = (
        Step("one_hot", {"categories": {"country": ["de", "fr"]}, "unknown": "refuse"}),
        Step("columns", {"names": ["age", "size", "country"]}),
        MODEL,
    )
    result = tried(tmp_path, *steps, inputs=inputs)
    assert (result.independent, result.rows_tested) == (True, 8)


@pytest.mark.parametrize("masked", [True, False])
def test_padding_that_changes_answers_is_found(tmp_path: Path, masked: bool) -> None:
    models.padded_mean(tmp_path / "m.onnx", masked=masked)
    fields = {"x": 0.0, "mask": 0.0} if masked else {"x": 0.0}
    # made-up masks are no ones: any weights will do for a weighted mean
    result = tried(tmp_path, MODEL, batch=Batch(padding=Padding(fields, buckets=(16,)), tolerance=1e-3))
    assert result.independent == masked


def test_warm_up_runs_every_usual_size(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    (tmp_path / "steps.py").write_text(
        f"def f(batch):\n    with open({str(seen)!r}, 'a') as file:\n        print(len(batch['x']), file=file)\n    return batch\n"
    )
    step = Step("model", {"engine": "python", "file": "steps.py", "call": "f", "inputs": TABLE, "outputs": TABLE})
    plan = plan_of(tmp_path, step)
    alone = rows_alone(plan)
    seen.write_text("")
    assert warm_up(plan, alone, PROVED, 20) == []
    assert seen.read_text().split() == ["2", "4", "8", "16", "20"]


def test_warm_up_stops_when_its_time_is_used_and_says_what_was_left_out(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    clock = FakeClock()

    def one_second_later() -> float:
        clock.advance(0.5)
        return clock()

    plan = plan_of(tmp_path, MODEL)
    alone = replace(rows_alone(plan), started_s=clock())
    left = warm_up(plan, alone, PROVED, 32, clock=one_second_later)
    assert left == ["warm-up stopped after 2.5 s: no batch of 8, 16, 32 rows was run before serving"]


SCORES = (Input("s", "tensor", datatype="FP32", shape=(3,)),)


def behind_a_detector(inner: Path, **options: Any) -> tuple[Step, ...]:
    """Finds nothing in made-up rows."""
    return (
        Step("label_set", {"names": ["a", "b", "c"], "score_min": 50.0}),
        Step("expand", {"over": {"scores": "x"}}),
        Step("model", {"engine": "onnxruntime", "file": inner.name, **options}),
        Step("fold", {"lists": {"y": "ys"}}),
    )


def test_a_model_that_no_rows_met_in_is_tested_by_itself(tmp_path: Path) -> None:
    steps = behind_a_detector(models.mean_over_batch(tmp_path / "m.onnx", ("N",)))
    result = tried(tmp_path, *steps, inputs=SCORES)
    assert not result.independent
    assert result.reason.startswith("steps[2], by itself, as no two rows met in it: output y of a row ")


def test_a_model_that_no_rows_met_in_may_be_found_independent_by_itself(tmp_path: Path) -> None:
    result = tried(tmp_path, *behind_a_detector(models.identity(tmp_path / "m.onnx", ("N",))), inputs=SCORES)
    assert (result.independent, result.reason, result.rows_tested) == (True, "", 8)


def test_where_rows_met_in_a_model_it_is_not_tested_by_itself(tmp_path: Path) -> None:
    models.mean_over_batch(tmp_path / "m.onnx", ("N",))
    scores = (replace(SCORES[0], shape=(4,)),)
    expand, model, fold = behind_a_detector(tmp_path / "m.onnx")[1:]
    result = tried(tmp_path, replace(expand, options={"over": {"s": "x"}}), model, fold, inputs=scores)
    assert result.reason.startswith("output ys of a row ")


def test_a_model_that_no_rows_met_in_and_that_made_up_rows_do_not_fit_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def f(batch):\n    raise ValueError\n")
    tables = {"inputs": {"x": {"datatype": "FP32"}}, "outputs": {"y": {"datatype": "FP32"}}}
    steps = list(behind_a_detector(tmp_path / "m.onnx"))
    steps[2] = Step("model", {"engine": "python", "file": "steps.py", "call": "f", **tables})
    result = tried(tmp_path, *steps, inputs=SCORES)
    assert not result.independent
    assert untried(result.reason)


def test_a_row_that_meets_only_itself_in_a_model_proves_nothing(tmp_path: Path) -> None:
    steps = behind_a_detector(models.mean_over_batch(tmp_path / "m.onnx", ("N",)))
    found = Golden({"s": [60.0, 60.0, 60.0]}, {})  # one element each of equal value would hide the mean
    result = tried(tmp_path, *steps, inputs=SCORES, golden=(found,))
    assert not result.independent


def test_nothing_is_run_twice_for_self_test_and_warm_up(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    (tmp_path / "steps.py").write_text(
        f"def f(batch):\n    with open({str(seen)!r}, 'a') as file:\n        print(len(batch['x']), file=file)\n    return batch\n"
    )
    step = Step("model", {"engine": "python", "file": "steps.py", "call": "f", "inputs": TABLE, "outputs": TABLE})
    plan = plan_of(tmp_path, step)
    seen.write_text("")
    alone = rows_alone(plan)
    tested = self_test(plan, alone, 16)
    assert (tested.independent, warm_up(plan, alone, tested, 16)) == (True, [])
    assert seen.read_text().split() == [*"1" * 8, "8", "8", "3", "16", "2", "4"]


def test_rows_that_run_one_at_a_time_are_tested_too(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    assert tried(tmp_path, MODEL, rows_max=1).independent  # so that a request of many can be cut
