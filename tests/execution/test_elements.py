"""Several models in one pipeline: elements of all rows run together, rows with shapes of their own in groups."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx as models
from tests.execution.test_plan import MODEL, plan_of, run

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field, Input, Step
from forwardpass.execution.plan import Plan
from forwardpass.steps.protocol import object_column

TEXTS = (Input("words", "texts"),)
EXPAND = Step("expand", {"over": {"words": "word"}})
FOLD = Step("fold", {"lists": {"y": "answers"}})
SUM = Step("model", {"engine": "onnxruntime", "file": "sum.onnx"})


def words_plan(folder: Path, *behind: Step) -> Plan:
    models.text_identity(folder / "m.onnx")
    return plan_of(folder, EXPAND, MODEL, FOLD, *behind, inputs=TEXTS)


def words(*lists: list[str]) -> Any:
    return object_column(list(lists))


def test_the_elements_of_all_rows_go_through_a_model_and_come_back(tmp_path: Path) -> None:
    plan = words_plan(tmp_path)
    assert plan.signature.outputs == (Field("answers", "BYTES", (), "texts"),)
    batch = run(plan, words=words(["a", "b"], ["c"]))
    assert batch.columns["answers"].tolist() == [["a", "b"], ["c"]]


def test_a_row_without_elements_has_an_answer_too(tmp_path: Path) -> None:
    plan = words_plan(tmp_path)
    assert run(plan, words=words([], [])).columns["answers"].tolist() == [[], []]
    assert run(plan, words=words([], ["c"])).columns["answers"].tolist() == [[], ["c"]]


def test_one_bad_element_fails_its_row_alone(tmp_path: Path) -> None:
    batch = run(words_plan(tmp_path), words=words(["a", "\ud800"], ["c"]))
    assert batch.columns["answers"].tolist() == [["c"]]
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: Code.INVALID_UTF8}


def test_when_every_row_failed_inside_there_are_no_answers(tmp_path: Path) -> None:
    batch = run(words_plan(tmp_path), words=words(["\ud800"]))
    assert (batch.rows, len(batch.columns["answers"])) == (0, 0)


def test_more_elements_than_a_model_takes_at_once_come_back_in_order(tmp_path: Path) -> None:
    many = [str(number) for number in range(100)]
    assert run(words_plan(tmp_path), words=words(many)).columns["answers"].tolist() == [many]


def test_elements_can_have_elements(tmp_path: Path) -> None:
    models.row_sum(tmp_path / "sum.onnx")
    vectors = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    plan = plan_of(
        tmp_path,
        Step("expand", {"over": {"x": "vector"}}),
        Step("expand", {"over": {"vector": "number"}}),
        Step("fold", {"pool": {"number": "sum"}}),
        Step("fold", {"lists": {"number": "sums"}}),
        inputs=(Input("x", "tensor", datatype="FP32", shape=(-1, 4)),),
    )
    assert run(plan, x=vectors).columns["sums"][0].tolist() == vectors[0].sum(axis=1).tolist()


def test_rows_of_unlike_shapes_go_through_a_model_in_groups(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", ("N", "W"))
    plan = plan_of(
        tmp_path,
        Step("expand", {"over": {"words": "word"}}),
        Step("steps:counted", {"output": "kept", "datatype": "FP32"}),
        Step("fold", {"lists": {"kept": "x"}}),
        MODEL,
        inputs=TEXTS,
        trusted="def counted(word: str) -> float:\n    return float(len(word))\n",
    )
    batch = run(plan, words=words(["a", "bb"], ["ccc"], ["d", "e"]))
    assert plan.signature.outputs == (Field("y", "FP32", (-1,), "ragged"),)
    assert [value.tolist() for value in batch.columns["y"]] == [[1, 2], [3], [1, 1]]


def test_steps_that_run_the_same_file_share_the_model(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    again = Step("model", {**MODEL.options, "inputs": {"x": "y"}, "outputs": {"y": "z"}})
    plan = plan_of(tmp_path, MODEL, again)
    first, second = plan.loaded
    assert first.model(MODEL.options) is second.model(again.options)
    np.testing.assert_array_equal(run(plan, x=np.ones((2, 4), np.float32)).columns["z"], np.ones((2, 4)))
    plan.close()


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([FOLD], "steps[0].use: fold; a step that expands rows before it"),
        ([EXPAND], "steps: the rows that a step expanded are not folded again"),
        ([EXPAND, Step("fold", {"lists": {"words": "answers"}})], "steps[1].lists.words: no field is named 'words'"),
    ],
)
def test_expansions_must_be_folded_and_inside_there_are_only_elements(
    tmp_path: Path, steps: list[Step], problem: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        plan_of(tmp_path, *steps, inputs=TEXTS)
    assert problem in str(caught.value)
