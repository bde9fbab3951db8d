"""label_set and abstain."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import entropy

from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Columns, Run

SCORES = Field("probabilities", "FP32", (3,))
LABEL = Field("label", "BYTES", (), "text")
NAMES = ["a", "b", "c"]


def fp32(*rows: object) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.array(rows, dtype=np.float32)


def test_every_likely_label_comes_back_best_first(run: "Run") -> None:
    given = {SCORES: fp32([0.5, 0.1, 0.9], [0.1, 0.2, 0.3], [0.75, 0.75, 0.75])}
    columns = run("label_set", {"names": NAMES}, given).columns
    assert columns["labels"].tolist() == [["c", "a"], [], ["a", "b", "c"]]
    np.testing.assert_array_equal(columns["scores"][0], fp32(0.9, 0.5))
    assert [scores.dtype for scores in columns["scores"]] == [np.float32] * 3
    assert columns["scores"][1].shape == (0,)


def test_each_label_has_its_own_least_score(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    (tmp_path / "least.json").write_text(json.dumps({"a": 0.9, "b": 0.1}))
    options = {"file": "labels.txt", "score_min_file": "least.json", "score_min": 0.6}
    columns = run("label_set", options, {SCORES: fp32([0.8, 0.1, 0.6], [0.9, 0.05, 0.5])}, tmp_path).columns
    assert columns["labels"].tolist() == [["c", "b"], ["a"]]


def test_top_bounds_how_many_labels_come_back(run: "Run") -> None:
    columns = run("label_set", {"names": NAMES, "top": 2}, {SCORES: fp32([0.7, 0.9, 0.8])}).columns
    assert columns["labels"].tolist() == [["b", "c"]]


def test_a_least_score_for_no_label_is_found_at_load(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "least.json").write_text('{"aa": 0.9}')
    with pytest.raises(Misconfigured, match=r"least\.json: no label is named 'aa'"):
        run("label_set", {"names": NAMES, "score_min_file": "least.json"}, {SCORES: fp32([0, 0, 0])}, tmp_path)


def test_another_number_of_labels_is_found(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="2 labels; 3"):
        run("label_set", {"names": ["a", "b"]}, {SCORES: fp32([0, 0, 0])})
    with pytest.raises(Failed, match="has 3 scores for 2 labels"):
        run("label_set", {"names": ["a", "b"]}, {Field("p", "FP32", (-1,)): fp32([0, 0, 0])})


def test_a_score_that_is_no_number_never_becomes_a_label_or_none(run: "Run") -> None:
    scores = fp32([math.nan, 0.9, 0.05], [0.1, 0.9, 0])
    for use, options in (("label_set", {"names": NAMES}), ("abstain", {"score_min": 0.5})):
        batch = run(use, options, {LABEL: ["a", "b"], SCORES: scores})
        assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
        assert batch.rows == 1


@pytest.mark.parametrize(
    ("options", "why", "found"),
    [
        ({"score_min": 0.5}, "score", 0.4),
        ({"margin_min": 0.2}, "margin", 0.1),
        ({"entropy_max": 0.9}, "entropy", entropy([0.4, 0.3, 0.3]) / math.log(3)),
    ],
)
def test_a_label_is_taken_back_where_the_model_is_not_sure(
    run: "Run", options: dict[str, Any], why: str, found: float
) -> None:
    batch = run("abstain", options, {LABEL: ["a", "b"], SCORES: fp32([0.4, 0.3, 0.3], [0.1, 0.8, 0.1])})
    assert batch.columns["label"].tolist() == ["unknown", "b"]
    assert batch.columns["abstained"].tolist() == [True, False]
    ((row, name, value),) = batch.notes
    assert (row, name, value["why"], value["limit"]) == (0, "abstained", why, next(iter(options.values())))
    assert value["found"] == pytest.approx(found, abs=1e-6)


def test_a_score_at_the_limit_is_sure_enough(run: "Run") -> None:
    given: Columns = {LABEL: ["a", "b"], SCORES: fp32([0.6, 0.4, 0], [0, 1, 0])}
    batch = run("abstain", {"score_min": 0.6, "margin_min": 0, "entropy_max": 1}, given)
    assert batch.columns["abstained"].tolist() == [False, False]
    assert run("abstain", {"entropy_max": 0}, given).columns["abstained"].tolist() == [True, False]


def test_one_row_has_one_reason(run: "Run") -> None:
    batch = run("abstain", {"score_min": 0.6, "margin_min": 0.5}, {LABEL: ["a"], SCORES: fp32([0.5, 0.3, 0.2])})
    assert [value["why"] for _, _, value in batch.notes] == ["score"]


def test_the_label_becomes_what_is_asked_for(run: "Run") -> None:
    given: Columns = {LABEL: ["a"], SCORES: fp32([0.4, 0.3, 0.3])}
    assert run("abstain", {"score_min": 0.5, "otherwise": "ask"}, given).columns["label"].tolist() == ["ask"]
    assert run("abstain", {"score_min": 0.5, "null": True}, given).columns["label"].tolist() == [None]


def test_entropy_of_no_probabilities_fails_the_row(run: "Run") -> None:
    batch = run("abstain", {"entropy_max": 0.5}, {LABEL: ["a", "b"], SCORES: fp32([5, -2, 1], [0, 1, 0])})
    assert batch.failures[0].code is Code.OUTPUT_OUT_OF_RANGE
    assert batch.columns["label"].tolist() == ["b"]


def test_one_class_can_be_unlikely_but_has_no_margin(run: "Run") -> None:
    one = Field("score", "FP32", (1,))
    assert run("abstain", {"score_min": 0.5}, {LABEL: ["a"], one: fp32([0.4])}).columns["abstained"].tolist() == [True]
    with pytest.raises(Misconfigured, match="two classes or more"):
        run("abstain", {"margin_min": 0.5}, {LABEL: ["a"], one: fp32([0.4])})
    with pytest.raises(Failed, match="fewer than 2"):
        run("abstain", {"margin_min": 0.5}, {LABEL: ["a"], Field("p", "FP32", (-1,)): fp32([0.4])})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "score_min, margin_min or entropy_max"),
        ({"margin_min": -1}, "0 or more"),
        ({"entropy_max": 2}, "0 to 1"),
        ({"score_min": 1, "null": True, "otherwise": "x"}, "not beside null"),
        ({"score_min": 1, "output": "label"}, "another name than label"),
    ],
)
def test_options_that_make_no_sense_are_refused(run: "Run", options: dict[str, Any], problem: str) -> None:
    with pytest.raises(Misconfigured, match=problem):
        run("abstain", options, {LABEL: ["a"], SCORES: fp32([0.4, 0.3, 0.3])})
