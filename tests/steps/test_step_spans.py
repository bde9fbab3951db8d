"""spans, merge_spans and answer_span.

The expected spans were made with the aggregation of the TokenClassificationPipeline of transformers 5.24.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Columns, Run

TEXT = Field("text", "BYTES", (), "text")
OFFSETS, MASK = Field("offsets", "INT64", (-1, 2)), Field("attention_mask", "INT64", (-1,))
WORDS, START = Field("words", "INT64", (-1,)), Field("start", "INT64")
SENTENCE = "Angela Merkel met Johansson in New York."
PLACES = [(0, 0), (0, 6), (7, 9), (9, 13), (14, 17), (18, 23), (23, 27), (28, 30), (31, 34), (35, 39), (39, 40), (0, 0)]
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
SCORES: list[list[float]] = [
    [1, 0, 0, 0, 0], [0.1, 0.9, 0, 0, 0], [0.2, 0.1, 0.7, 0, 0], [0.5, 0, 0.1, 0, 0.4], [0.9, 0.1, 0, 0, 0],
    [0.3, 0.6, 0.1, 0, 0], [0.1, 0, 0.1, 0.8, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0.75, 0.25], [0.25, 0, 0, 0.125, 0.625],
    [0.6, 0, 0, 0, 0.4], [1, 0, 0, 0, 0],
]  # fmt: skip


def tokens(text: str, places: list[tuple[int, int]], scores: list[list[float]], *, words: list[int]) -> "Columns":
    """One text's columns, with a padding token behind that holds NaN."""
    padding = [math.nan] * len(scores[0])
    return {
        TEXT: [text],
        Field("logits", "FP32", (-1, len(padding))): np.array([[*scores, padding]], np.float32),
        OFFSETS: np.array([[*places, (0, 0)]], np.int64),
        MASK: np.array([[1] * len(places) + [0]], np.int64),
        WORDS: np.array([[*words, -1]], np.int64),
    }


def sentence() -> "Columns":
    return tokens(SENTENCE, PLACES, SCORES, words=[-1, 0, 1, 1, 2, 3, 3, 4, 5, 6, 7, -1])


def line(text: str, labels: list[str], best: list[str]) -> "Columns":
    """One token for each character, sure of its label."""
    scores = [[float(label == each) for label in labels] for each in best]
    places = [(place, place + 1) for place in range(len(text))]
    return tokens(text, places, scores, words=list(range(len(text))))


def found(run: "Run", columns: "Columns", **options: Any) -> list[tuple[Any, ...]]:
    spans = run("spans", {"names": LABELS, **options}, columns).columns["spans"][0]
    assert all(span["text"] == columns[TEXT][0][span["start"] : span["end"]] for span in spans)
    return [(span["text"], span["label"], round(span["score"], 6)) for span in spans]


def test_each_token_can_keep_its_own_label(run: "Run") -> None:
    assert found(run, sentence(), aggregate="none") == [
        ("Angela Me", "PER", 0.8), ("Johan", "PER", 0.6), ("sson", "LOC", 0.8), ("New York", "LOC", 0.6875)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("aggregate", "merkel", "johansson"),
    [("first", 0.8, ("PER", 0.6)), ("mean", 0.65, ("LOC", 0.4)), ("max", 0.8, ("LOC", 0.8))],
)
def test_the_tokens_of_a_word_agree(run: "Run", aggregate: str, merkel: float, johansson: tuple[str, float]) -> None:
    assert found(run, sentence(), aggregate=aggregate, words="words") == [
        ("Angela Merkel", "PER", merkel), ("Johansson", *johansson), ("New York", "LOC", 0.6875)
    ]  # fmt: skip


@pytest.mark.parametrize(("aggregate", "score"), [("first", 0.6875), ("mean", 0.63125), ("max", 0.6875)])
def test_without_words_a_token_that_touches_the_one_before_goes_on(run: "Run", aggregate: str, score: float) -> None:
    assert found(run, sentence(), aggregate=aggregate)[-1] == ("New York.", "LOC", score)


def test_places_are_in_the_text_and_can_be_shifted(run: "Run") -> None:
    columns = {**sentence(), START: np.array([100], np.int64)}
    batch = run("spans", {"names": LABELS, "words": "words", "shift": "start"}, columns)
    assert batch.columns["spans"][0][2] == {
        "start": 131, "end": 139, "label": "LOC", "score": 0.6875, "text": "New York"
    }  # fmt: skip


def test_a_beginning_separates_neighbours(run: "Run") -> None:
    columns = line("abcde", LABELS, ["B-PER", "B-PER", "I-PER", "I-LOC", "O"])
    assert found(run, columns, words="words") == [("a", "PER", 1), ("bc", "PER", 1), ("d", "LOC", 1)]


@pytest.mark.parametrize("marks", ["BILU", "BIES"])
def test_ends_and_singles_separate_too(run: "Run", marks: str) -> None:
    begin, inside, end, single = (f"{mark}-A" for mark in (marks if marks == "BILU" else "BIES"))
    labels = ["O", begin, inside, end, single]
    columns = line("abcdefg", labels, [begin, inside, end, inside, single, single, "O"])
    assert [text for text, *_ in found(run, columns, names=labels, words="words")] == ["abc", "d", "e", "f"]


def test_labels_without_prefixes_join_neighbours_and_keep_their_names(run: "Run") -> None:
    labels = ["none", "E-MAIL", "ID"]
    columns = line("abcd", labels, ["E-MAIL", "E-MAIL", "none", "ID"])
    options = {"names": labels, "outside": "none", "words": "words"}
    assert found(run, columns, **options) == [("ab", "E-MAIL", 1), ("d", "ID", 1)]


def test_pieces_below_the_least_score_are_left_out(run: "Run") -> None:
    assert [text for text, *_ in found(run, sentence(), words="words", score_min=0.6875)] == [
        "Angela Merkel",
        "New York",
    ]


def test_a_piece_at_the_least_score_stays(run: "Run") -> None:
    columns = tokens("a", [(0, 1)], [[0.0, 0.1]], words=[0])
    assert found(run, columns, names=["O", "A"], words="words", score_min=0.1) == [("a", "A", 0.1)]


def test_labels_can_come_from_a_file(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(LABELS) + "\n")
    batch = run("spans", {"file": "labels.txt", "words": "words"}, sentence(), tmp_path)
    assert len(batch.columns["spans"][0]) == 3


def test_a_score_that_is_no_number_fails_the_row(run: "Run") -> None:
    scores = [[0.0, 1.0], [math.nan, 0.0]]
    columns = tokens("ab", [(0, 1), (1, 2)], scores, words=[0, 1])
    batch = run("spans", {"names": ["O", "A"], "words": "words"}, columns)
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT


def test_a_text_without_tokens_has_no_pieces(run: "Run") -> None:
    assert found(run, tokens("", [(0, 0)], [[1.0] * 5], words=[-1])) == []


@pytest.mark.parametrize(
    "change", [{"outside": "X"}, {"names": ["O"]}, {"names": None}, {"aggregate": "none", "words": "words"}]
)
def test_options_that_do_not_fit_are_refused(run: "Run", change: dict[str, Any]) -> None:
    options = {name: value for name, value in {"names": LABELS, **change}.items() if value is not None}
    with pytest.raises(Misconfigured):
        run("spans", options, sentence())


def test_another_number_of_scores_than_tokens_fails_the_row(run: "Run") -> None:
    columns = {**sentence(), OFFSETS: np.zeros((1, 3, 2), np.int64)}
    failure = run("spans", {"names": LABELS}, columns).failures[0]
    assert isinstance(failure, Failed)
    assert failure.text == "logits: has 13 tokens where offsets has 3"


def ragged(columns: "Columns") -> "Columns":
    """The same with everything of a token ragged."""
    return {
        replace(field, kind="ragged") if -1 in field.shape else field: object_column(list(values))
        for field, values in columns.items()
    }


def test_what_belongs_to_tokens_may_be_ragged_all_or_none(run: "Run") -> None:
    options = {"names": LABELS, "words": "words"}
    spans = run("spans", options, ragged(sentence())).columns["spans"].tolist()
    assert spans == run("spans", options, sentence()).columns["spans"].tolist()
    first, last = [0.0, 0, 9, 2, 5, 1, 0], [0.0, 9, 0, 4, 1, 3, 0]
    answer, dense = (run("answer_span", {}, each(reading(first, last))).columns for each in (ragged, dict))
    assert (answer["answer"].tolist(), answer["score"]) == (dense["answer"].tolist(), dense["score"])
    for field in (OFFSETS, MASK, WORDS):
        mixed = {replace(each, kind="tensor") if each == replace(field, kind="ragged") else each: values
                 for each, values in ragged(sentence()).items()}  # fmt: skip
        with pytest.raises(Misconfigured, match=field.name):
            run("spans", options, mixed)


def test_a_ragged_row_of_other_labels_fails_alone(run: "Run") -> None:
    columns = {field: [*values, *values] for field, values in ragged(sentence()).items()}
    (scores,) = (field for field in columns if field.name == "logits")
    columns = {
        replace(field, shape=(-1, -1)) if field is scores else field: values for field, values in columns.items()
    }
    columns[replace(scores, shape=(-1, -1))][1] = np.zeros((13, 4), np.float32)
    batch = run("spans", {"names": LABELS}, {field: object_column(values) for field, values in columns.items()})
    assert batch.failures[1].text == "logits: has 4 scores a token for 5 labels"
    assert len(batch.columns["spans"]) == 1


def test_spans_of_windows_become_one_list_without_overlaps(run: "Run") -> None:
    def span(start: int, end: int, score: float) -> dict[str, Any]:
        return {"start": start, "end": end, "label": "A", "score": score, "text": "x" * (end - start)}

    windows = [[span(0, 2, 0.9), span(8, 10, 0.5)], [span(8, 12, 0.4), span(20, 21, 0.1)], [span(20, 21, 0.2)]]
    field = Field("spans", "BYTES", (), "json")
    batch = run("merge_spans", {}, {field: object_column([windows, [[], []], [3]])})
    assert batch.columns["spans"].tolist() == [[span(0, 2, 0.9), span(8, 12, 0.4), span(20, 21, 0.2)], []]
    assert batch.failures[2].code is Code.STEP_FAILED


FIRST, LAST = Field("start_logits", "FP32", (-1,)), Field("end_logits", "FP32", (-1,))


def reading(first: list[float], last: list[float]) -> "Columns":
    """[CLS] who [SEP] a bc d [SEP] and padding, the document being "a bc d"."""
    return {
        TEXT: ["a bc d"],
        FIRST: np.array([[*first, math.nan]], np.float32),
        LAST: np.array([[*last, math.nan]], np.float32),
        OFFSETS: np.array([[(0, 0), (0, 0), (0, 0), (0, 1), (2, 4), (5, 6), (0, 0), (0, 0)]], np.int64),
        MASK: np.array([[1] * 7 + [0]], np.int64),
    }


def shares(*logits: float) -> Any:
    return np.exp(logits) / np.exp(logits).sum()


def test_the_answer_is_the_likeliest_span_of_the_text(run: "Run") -> None:
    first, last = [1, 9, 0, 2, 4, 0, 0], [1, 0, 9, 4, 2, 3, 0]
    columns = run("answer_span", {}, reading([*first], [*last])).columns
    assert columns["answer"].tolist() == ["bc d"]
    assert columns["place"].tolist() == [[2, 6]]
    assert columns["score"][0] == pytest.approx(shares(*first)[4] * shares(*last)[5], rel=1e-6)


def test_an_answer_has_no_more_tokens_than_allowed_and_never_ends_before_it_starts(run: "Run") -> None:
    columns = reading([0, 0, 0, 9, 1, 5, 0], [0, 0, 0, 0, 1, 9, 0])
    assert run("answer_span", {}, columns).columns["answer"].tolist() == ["a bc d"]
    assert run("answer_span", {"tokens_max": 2}, columns).columns["answer"].tolist() == ["d"]


def test_an_answers_place_can_be_shifted(run: "Run") -> None:
    columns = {**reading([0, 0, 0, 9, 1, 5, 0], [0, 0, 0, 9, 1, 5, 0]), START: np.array([40], np.int64)}
    assert run("answer_span", {"shift": "start"}, columns).columns["place"].tolist() == [[40, 41]]


def test_logits_that_are_no_numbers_and_texts_without_tokens_fail_alone(run: "Run") -> None:
    batch = run("answer_span", {}, reading([math.nan] * 7, [0] * 7))
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    empty = {**reading([0] * 7, [0] * 7), OFFSETS: np.zeros((1, 8, 2), np.int64)}
    assert run("answer_span", {}, empty).failures[0].code is Code.INVALID_INPUT
