"""Rules in a plan: behind the last step, before the checks, over everything that is known by then."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx as models

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Checks, Input, Pipeline, Rule, Step, Version
from forwardpass.execution.plan import Plan, build
from forwardpass.steps.protocol import Batch, object_column

SCORES = [[5.0, 1.0, 0.0], [2.0, 1.9, 0.0]]
STEPS = (
    Step("model", {"engine": "onnxruntime", "file": "m.onnx"}),
    Step("calibrate", {"temperature": 2}),
    Step("labels", {"names": ["cat", "dog", "fox"]}),
    Step("abstain", {"margin_min": 0.1}),
)
INPUTS = (
    Input("x", "tensor", datatype="FP32", shape=(3,)),
    Input("place", "text"),
    Input("age", "number", missing=True),
)


def plan_of(
    folder: Path, *rules: Rule, outputs: tuple[str, ...] = ("label", "score", "abstained"), **parts: Any
) -> Plan:
    models.identity(folder / "m.onnx", ("N", 3))
    definition = Pipeline(STEPS, inputs=INPUTS, outputs=outputs, rules=rules, **parts)
    return build(Version("p", 1, "0" * 64, str(folder), definition), threads=1)


def run(plan: Plan) -> Batch:
    ages = np.array([3.0, math.nan])
    columns = {"x": np.array(SCORES, np.float32), "place": object_column(["zoo", "home"]), "age": ages}
    batch = Batch(columns, 2, [0, 1])
    plan.preprocess(batch)
    plan.execute(batch)
    plan.postprocess(batch)
    return batch


def test_rules_see_inputs_steps_and_outputs(tmp_path: Path) -> None:
    rules = (
        Rule("zoo", "place == 'zoo' && age < 10", set={"label": {"cel": "'zoo ' + label"}}),
        Rule("home", "place == 'home' && age == null && abstained && probabilities[0] < 0.5", set={"score": 0}),
        Rule("raw", "y[0] == 5", flag="five"),
    )
    batch = run(plan_of(tmp_path, *rules))
    powers = np.exp(np.array(SCORES[0]) / 2)
    assert batch.columns["label"].tolist() == ["zoo cat", "unknown"]
    np.testing.assert_allclose(batch.columns["score"], [powers[0] / powers.sum(), 0], atol=1e-6)
    assert [(row, value.get("rule")) for row, _, value in batch.notes] == [
        (1, None), (0, "zoo"), (1, "home"), (0, "raw"),
    ]  # fmt: skip


def test_what_a_rule_sets_is_checked(tmp_path: Path) -> None:
    rule = Rule("wrong", "label == 'cat'", set={"score": 7})
    batch = run(plan_of(tmp_path, rule, checks=Checks(range={"score": (0.0, 1.0)})))
    assert batch.failures[0].code is Code.OUTPUT_OUT_OF_RANGE
    assert batch.rows == 1


def test_what_a_rule_drops_passes_the_check_for_finite_numbers(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, Rule("hide", "label == 'cat'", drop=("score",)), checks=Checks(range={"score": (0.0, 1.0)})
    )
    batch = run(plan)
    assert not batch.failures
    assert np.isnan(plan.outputs(batch)["score"]).tolist() == [True, False]


def test_a_rule_can_drop_what_is_out_of_range(tmp_path: Path) -> None:
    rule = Rule("unlikely", "score > 0.7", drop=("score",))
    plan = plan_of(tmp_path, rule, checks=Checks(range={"score": (0.0, 0.7)}))
    batch = run(plan)
    assert not batch.failures
    assert np.isnan(plan.outputs(batch)["score"]).tolist() == [True, False]


def test_what_a_rule_drops_must_have_been_finite(tmp_path: Path) -> None:
    infinite = Input("odd", "tensor", datatype="FP32")
    models.identity(tmp_path / "m.onnx", ("N", 3))
    rule = Rule("hide", "true", drop=("odd",))
    definition = Pipeline(STEPS, inputs=(*INPUTS, infinite), outputs=("odd", "score"), rules=(rule,))
    plan = build(Version("p", 1, "0" * 64, str(tmp_path), definition), threads=1)
    columns = {"x": np.array(SCORES, np.float32), "place": object_column(["zoo"] * 2), "age": np.array([3.0, 4.0])}
    batch = Batch({**columns, "odd": np.array([1, np.inf], np.float32)}, 2, [0, 1])
    for part in (plan.preprocess, plan.execute, plan.postprocess):
        part(batch)
    assert {row: failure.code for row, failure in batch.failures.items()} == {1: Code.NON_FINITE_OUTPUT}


def test_a_refused_row_leaves_the_others(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, Rule("children", "age != null && age < 18", refuse="not for children"))
    batch = run(plan)
    assert batch.failures[0].text == "children: not for children"
    assert plan.outputs(batch)["label"].tolist() == ["unknown"]


def test_a_plan_without_a_model_has_its_rules_too(tmp_path: Path) -> None:
    definition = Pipeline(
        (Step("normalize_text"),), inputs=(Input("text", "text"),), rules=(Rule("r", "true", flag="x"),)
    )
    plan = build(Version("p", 1, "0" * 64, str(tmp_path), definition), threads=1)
    batch = Batch({"text": object_column(["a"])}, 1, [0])
    plan.preprocess(batch)
    plan.execute(batch)
    plan.postprocess(batch)
    assert len(batch.notes) == 1


def test_only_outputs_can_be_changed(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured) as caught:
        plan_of(tmp_path, Rule("r", "true", set={"label": "x"}), outputs=("score",))
    assert [problem.key for problem in caught.value.problems] == ["rules[0].set.label"]
