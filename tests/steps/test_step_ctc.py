"""ctc_decode. The expected text and score are worked out by hand, as PaddleOCR's decoder does it."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

SCORES = Field("scores", "FP32", (-1, 4))
OPTIONS: dict[str, Any] = {"characters": "abc"}


def steps(path: str, classes: str = "-abc", **certainty: float) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """Scores whose best path is ``path``; a class's best score is 1 unless ``certainty`` says otherwise."""
    scores = [[certainty.get(own, 1) * (own == best) for own in classes] for best in path]
    return np.array(scores, dtype=np.float32)


@pytest.mark.parametrize(
    ("path", "text"),
    [("aab", "ab"), ("a-a", "aa"), ("-a--bb-", "ab"), ("---", ""), ("abba", "aba"), ("c", "c")],
)
def test_repeats_and_then_blanks_are_left_out(run: "Run", path: str, text: str) -> None:
    assert run("ctc_decode", OPTIONS, {SCORES: steps(path)[np.newaxis]}).columns["text"].tolist() == [text]


def test_the_score_is_the_mean_of_the_steps_that_wrote(run: "Run") -> None:
    columns = run("ctc_decode", OPTIONS, {SCORES: steps("-aab", a=0.5, b=0.75)[np.newaxis]}).columns
    assert columns["score"].tolist() == [0.625]
    assert columns["score"].dtype == np.float32


def test_a_text_without_a_character_has_score_zero(run: "Run") -> None:
    assert run("ctc_decode", OPTIONS, {SCORES: steps("--")[np.newaxis]}).columns["score"].tolist() == [0]


def test_lines_may_differ_in_length(run: "Run") -> None:
    ragged = Field("scores", "FP32", (-1, 4), "ragged")
    lines = [steps("ab"), steps("c-c-c"), np.zeros((0, 4), np.float32)]
    columns = run("ctc_decode", OPTIONS, {ragged: object_column(lines)}).columns
    assert columns["text"].tolist() == ["ab", "ccc", ""]


def test_the_alphabet_comes_from_a_file_and_may_end_with_a_space(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "alphabet.txt").write_bytes("\ufeffa\r\n\u3000\r\n\u4e2d\r\n".encode())
    field = Field("scores", "FP32", (-1, 5))
    column = steps("a_bc", classes="-a_bc")[np.newaxis]
    batch = run("ctc_decode", {"file": "alphabet.txt", "space": True}, {field: column}, tmp_path)
    assert batch.columns["text"].tolist() == ["a\u3000\u4e2d "]


@pytest.mark.parametrize(("blank", "classes"), [(0, "-abc"), (2, "ab-c"), (3, "abc-"), (-1, "abc-")])
def test_the_blank_can_stand_anywhere(run: "Run", blank: int, classes: str) -> None:
    column = steps("a-ac-b", classes=classes)[np.newaxis]
    assert run("ctc_decode", {**OPTIONS, "blank": blank}, {SCORES: column}).columns["text"].tolist() == ["aacb"]


def test_a_character_can_stand_for_a_space(run: "Run") -> None:
    options = {"characters": "a|c", "word_break": "|"}
    assert run("ctc_decode", options, {SCORES: steps("abc")[np.newaxis]}).columns["text"].tolist() == ["a c"]


def test_logits_become_probabilities(run: "Run") -> None:
    batch = run("ctc_decode", {**OPTIONS, "softmax": True}, {SCORES: np.array([[[0, 1, 2, 0]]], np.float32)})
    expected = math.exp(2) / (math.exp(2) + math.exp(1) + 2)
    assert batch.columns["score"].tolist() == pytest.approx([expected], rel=1e-6)


def test_a_score_that_is_no_number_fails_its_row_alone(run: "Run") -> None:
    column = np.stack([steps("ab"), steps("ab")])
    column[0, 1, 2] = math.nan
    batch = run("ctc_decode", OPTIONS, {SCORES: column})
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert batch.columns["text"].tolist() == ["ab"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"characters": "ab"}, "3 classes: the alphabet, the blank; 4, the size of scores"),
        ({"space": True}, "5 classes: the alphabet, the blank and the space"),
        ({"blank": 4}, "at most 3, the size of the alphabet"),
        ({"word_break": "|"}, "one of the alphabet"),
        ({"characters": ""}, "one character or more"),
        ({"output": "score"}, "no other field of this step"),
        ({"file": "alphabet.txt"}, "file"),
    ],
)
def test_an_alphabet_that_does_not_fit_is_found_at_load(run: "Run", change: dict[str, Any], match: str) -> None:
    with pytest.raises(Misconfigured, match=match):
        run("ctc_decode", {**OPTIONS, **change}, {SCORES: steps("a")[np.newaxis]})


def test_an_empty_line_in_the_alphabet_is_the_operators_fault(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "alphabet.txt").write_text("a\n\nc\n")
    with pytest.raises(Misconfigured, match=r"alphabet\.txt: line 2 is empty; one character a line"):
        run("ctc_decode", {"file": "alphabet.txt"}, {SCORES: steps("a")[np.newaxis]}, tmp_path)


def test_a_row_of_another_number_of_classes_fails_alone(run: "Run") -> None:
    free = Field("scores", "FP32", (-1, -1), "ragged")
    batch = run("ctc_decode", OPTIONS, {free: object_column([steps("a", classes="-abcd"), steps("ab")])})
    assert isinstance(batch.failures[0], Failed)
    assert batch.failures[0].text == "scores: has 5 classes for an alphabet of 4"
    assert batch.columns["text"].tolist() == ["ab"]
