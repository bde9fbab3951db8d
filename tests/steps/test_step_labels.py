"""labels and threshold."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Columns, Run

PROBABILITIES = Field("probabilities", "FP32", (3,))
SCORE = Field("score", "FP32")
LABEL = Field("label", "BYTES", (), "text")
NAMES = ["a", "b", "c"]


def fp32(*rows: object) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.array(rows, dtype=np.float32)


def test_the_best_label_and_its_score_come_back(run: "Run") -> None:
    columns = run("labels", {"names": NAMES}, {PROBABILITIES: fp32([0.25, 0.5, 0.25], [0.5, 0, 0.5])}).columns
    assert columns["label"].tolist() == ["b", "a"]
    assert columns["score"].tolist() == [0.5, 0.5]
    assert columns["score"].dtype == np.float32


def test_the_best_few_come_in_order_and_ties_by_the_lower_place(run: "Run") -> None:
    columns = run("labels", {"names": NAMES, "top": 2}, {PROBABILITIES: fp32([0.25, 0.5, 0.25], [0, 1, 1])}).columns
    assert columns["label"].tolist() == [["b", "a"], ["b", "c"]]
    assert columns["score"].tolist() == [[0.5, 0.25], [1, 1]]


def test_every_token_can_have_a_label(run: "Run") -> None:
    tokens = Field("logits", "FP32", (-1, 2))
    columns = run("labels", {"names": ["no", "yes"]}, {tokens: fp32([[1, 0], [0, 1]])}).columns
    assert columns["label"].tolist() == [["no", "yes"]]


def test_labels_are_read_from_a_file(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes("\ufeffa\r\nb b\r\n\u00e9\r\n".encode())
    columns = run("labels", {"file": "labels.txt"}, {PROBABILITIES: fp32([0, 1, 0], [0, 0, 1])}, tmp_path).columns
    assert columns["label"].tolist() == ["b b", "\u00e9"]


@pytest.mark.parametrize(
    ("data", "why"), [(b"a\n\nc\n", "line 2 is empty"), (b"\xff", "no UTF-8"), (b"a\n", "1 labels")]
)
def test_a_bad_label_file_is_the_operators_fault(run: "Run", tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "labels.txt").write_bytes(data)
    with pytest.raises(Misconfigured, match=why):
        run("labels", {"file": "labels.txt"}, {PROBABILITIES: fp32([0, 1, 0])}, tmp_path)


def test_another_number_of_names_is_found_at_load(run: "Run") -> None:
    with pytest.raises(Misconfigured, match=r"2 labels; 3, the size of probabilities"):
        run("labels", {"names": ["a", "b"]}, {PROBABILITIES: fp32([0, 1, 0])})


def test_another_number_of_scores_fails_the_batch(run: "Run") -> None:
    with pytest.raises(Failed, match="has 2 scores for 3 labels"):
        run("labels", {"names": NAMES}, {Field("logits", "FP32", (-1,)): fp32([0, 1])})


def test_a_score_that_is_no_number_never_becomes_a_label(run: "Run") -> None:
    batch = run("labels", {"names": NAMES}, {PROBABILITIES: fp32([0, math.nan, 1], [1, 0, 0])})
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert batch.columns["label"].tolist() == ["a"]


def scored(*pairs: tuple[str, float]) -> "Columns":
    return {LABEL: [label for label, _ in pairs], SCORE: fp32(*(score for _, score in pairs))}


def test_a_label_below_the_threshold_is_replaced_and_one_at_it_stays(run: "Run") -> None:
    options = {"score_min": 0.6, "otherwise": "unsure"}
    batch = run("threshold", options, scored(("a", 0.6), ("b", 0.59)))
    assert batch.columns["label"].tolist() == ["a", "unsure"]


def test_without_a_replacement_the_decision_comes_back(run: "Run") -> None:
    batch = run("threshold", {"score_min": 0.7}, {SCORE: fp32(0.7, 0.69)})
    assert batch.columns["decision"].tolist() == [True, False]
    assert batch.columns["decision"].dtype == np.bool_


def test_thresholds_and_replacements_can_differ_by_label(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "least.json").write_text(json.dumps({"a": 0.9, "b": 0.1}))
    (tmp_path / "others.json").write_text(json.dumps({"a": "not a"}))
    options = {"score_min": 0.5, "score_min_file": "least.json", "otherwise_file": "others.json", "otherwise": "other"}
    given = scored(("a", 0.8), ("a", 0.9), ("b", 0.2), ("b", 0.0), ("c", 0.4), ("c", 0.5))
    assert run("threshold", options, given, tmp_path).columns["label"].tolist() == [
        "not a", "a", "b", "other", "other", "c",
    ]  # fmt: skip


def test_a_label_that_no_file_lists_passes_and_stays(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "least.json").write_text('{"a": 0.9, "b": 0.9}')
    (tmp_path / "others.json").write_text('{"a": "x"}')
    options = {"score_min_file": "least.json", "otherwise_file": "others.json"}
    given = scored(("a", 0.1), ("b", 0.1), ("c", 0.1))
    assert run("threshold", options, given, tmp_path).columns["label"].tolist() == ["x", "b", "c"]


def test_a_decision_can_depend_on_the_label(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "least.json").write_text('{"a": 0.9}')
    batch = run("threshold", {"score_min_file": "least.json"}, scored(("a", 0.8), ("b", 0.0)), tmp_path)
    assert batch.columns["decision"].tolist() == [False, True]


def test_a_score_that_is_no_number_never_becomes_a_decision(run: "Run") -> None:
    batch = run("threshold", {"score_min": 0.5}, {SCORE: fp32(math.nan, 1)})
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert batch.columns["decision"].tolist() == [True]


@pytest.mark.parametrize("data", ["[", "[1]", '{"a": "x"}', '{"a": NaN}', '{"a": 1, "a": 2}', "{}", "[" * 100_000])
def test_a_bad_threshold_file_is_the_operators_fault(run: "Run", tmp_path: Path, data: str) -> None:
    (tmp_path / "least.json").write_text(data)
    options: dict[str, Any] = {"score_min_file": "least.json", "otherwise": "x"}
    with pytest.raises(Misconfigured, match=r"least\.json"):
        run("threshold", options, scored(("a", 0.8)), tmp_path)
