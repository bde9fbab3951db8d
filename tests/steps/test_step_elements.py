"""expand, fold and records: lists to rows of their own and back, whatever is between them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kind_of, kinds
from forwardpass.steps.protocol import Batch, Context, object_column, text_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

TEXTS = Field("documents", "BYTES", (), "texts")
BOXES = Field("boxes", "FP32", (-1, 4), "ragged")
SCORES = Field("scores", "FP32", (-1,), "ragged")
FOUND = Field("found", "BYTES", (), "json")
QUERY = Field("query", "BYTES", (), "text")
OVER = {"over": {"documents": "document"}}


def boxes(count: int) -> Any:
    return np.arange(4 * count, dtype=np.float32).reshape(count, 4)


def expanded(fields: list[Field], options: dict[str, Any], batch: Batch) -> dict[str, Field]:
    kind = kind_of("expand", kinds())
    known = {field.name: field for field in fields}
    inner = {field.name: field for field in kind.fields(options, known)}
    kind.prepare(options, known, Context(Path()))(batch)
    batch.settle()
    return inner


def folded(inner: dict[str, Field], options: dict[str, Any], batch: Batch) -> list[Field]:
    kind = kind_of("fold", kinds())
    made = list(kind.fields(options, inner))
    kind.prepare(options, inner, Context(Path()))(batch)
    batch.settle()
    return made


def documents() -> tuple[dict[str, Field], Batch]:
    columns = {"documents": object_column([["a", "bb"], ["c"]]), "query": text_column(["q1", "q2"])}
    batch = Batch(columns, 2, [0, 1])
    return expanded([TEXTS, QUERY], {**OVER, "keep": ["query"]}, batch), batch


def test_each_element_becomes_a_row_with_what_is_kept_of_its_own(run: "Run") -> None:
    options = {**OVER, "keep": ["query"]}
    batch = run("expand", options, {TEXTS: [["a", "b"], [], ["c"]], QUERY: ["q1", "q2", "q3"]})
    assert batch.columns["document"].tolist() == ["a", "b", "c"]
    assert batch.columns["query"].tolist() == ["q1", "q1", "q3"]
    assert batch.origin == [0, 0, 2]


def test_lists_of_one_row_go_together_and_elements_have_their_kinds() -> None:
    batch = Batch(
        {
            "boxes": object_column([boxes(2), boxes(0)]),
            "scores": object_column([np.array([0.5, 0.25], np.float32), np.empty(0, np.float32)]),
        },
        2,
        [0, 1],
    )
    inner = expanded([BOXES, SCORES], {"over": {"boxes": "box", "scores": "score"}}, batch)
    assert inner == {"box": Field("box", "FP32", (4,)), "score": Field("score", "FP32")}
    assert batch.columns["box"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batch.columns["score"].tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("lists", "code", "text"),
    [
        (
            {"boxes": boxes(2), "found": [1]},
            Code.BAD_OUTPUT_SHAPE,
            "boxes: the lists differ in length: boxes has 2, found has 1",
        ),
        (
            {"boxes": boxes(3), "found": [1, 2, 3]},
            Code.OUTPUT_TOO_LARGE,
            "boxes: has 3 elements; at most 2 are allowed",
        ),
        ({"boxes": boxes(1), "found": {"a": 1}}, Code.BAD_OUTPUT_SHAPE, "found: a list is needed here"),
    ],
)
def test_lists_that_do_not_fit_fail_their_row_alone(run: "Run", lists: dict[str, Any], code: Code, text: str) -> None:
    options = {"over": {"boxes": "box", "found": "one"}, "count_max": 2}
    batch = run("expand", options, {BOXES: [lists["boxes"], boxes(1)], FOUND: [lists["found"], [7]]})
    assert batch.columns["one"].tolist() == [7]
    assert (batch.failures[0].code, batch.failures[0].text) == (code, text)


def test_lists_that_the_caller_sent_are_refused(run: "Run") -> None:
    sent = [Field(name, "BYTES", (), "texts", given=True) for name in ("one", "two")]
    options = {"over": {"one": "a", "two": "b"}, "count_max": 2}
    batch = run("expand", options, {sent[0]: [["x"], ["x"] * 3], sent[1]: [["x"] * 2, ["x"] * 3]})
    assert all(isinstance(failure, Refused) for failure in batch.failures.values())
    assert [failure.code for failure in batch.failures.values()] == [Code.SHAPE_MISMATCH, Code.INPUT_TOO_LARGE]


def test_a_list_of_ours_that_does_not_fit_the_callers_is_our_fault(run: "Run") -> None:
    sent = Field("documents", "BYTES", (), "texts", given=True)
    batch = run(
        "expand", {"over": {"documents": "a", "scores": "b"}}, {sent: [["x"]], SCORES: [np.zeros(2, np.float32)]}
    )
    assert batch.failures[0].code is Code.BAD_OUTPUT_SHAPE and batch.failures[0].field == "scores"


def test_elements_of_what_the_caller_sent_are_the_callers_too() -> None:
    known = {"t": Field("t", "FP32", (-1, 4), given=True), "u": Field("u", "FP32", (-1, 4))}
    inner = kind_of("expand", kinds()).fields({"over": {"t": "a", "u": "b"}}, known)
    assert [field.given for field in inner] == [True, False]
    outer = kind_of("fold", kinds()).fields({"lists": {"a": "all", "b": "some"}}, {f.name: f for f in inner})
    assert [field.given for field in outer] == [True, False]


def test_an_element_that_fails_takes_its_row_with_it_and_no_other() -> None:
    inner, batch = documents()
    batch.fail(1, Refused(Code.INVALID_INPUT, "bb is bad"))
    batch.settle()
    assert (batch.rows, batch.columns["document"].tolist()) == (1, ["c"])
    folded(inner, {"lists": {"document": "kept"}}, batch)
    assert (batch.rows, batch.columns["query"].tolist(), batch.columns["kept"].tolist()) == (1, ["q2"], [["c"]])
    assert batch.failures[0].text == "bb is bad"


def test_a_note_on_an_element_says_which_it_is() -> None:
    inner, batch = documents()
    batch.note(1, "truncated", {"kept": 1})
    batch.columns["parts"] = object_column([[1, 2], [3], [4, 5]])
    expanded([*inner.values(), Field("parts", "BYTES", (), "json")], {"over": {"parts": "part"}}, batch)
    batch.note(4, "truncated", {"kept": 2})
    assert batch.notes == [
        (0, "truncated", {"kept": 1, "element": 1}), (1, "truncated", {"kept": 2, "element": [0, 1]})
    ]  # fmt: skip


def test_a_row_inside_two_expansions_fails_through_both() -> None:
    inner, batch = documents()
    batch.columns["parts"] = object_column([[1, 2], [3], [4, 5]])
    deeper = expanded([*inner.values(), Field("parts", "BYTES", (), "json")], {"over": {"parts": "part"}}, batch)
    assert batch.columns["part"].tolist() == [1, 2, 3, 4, 5]
    batch.fail(0, Refused(Code.INVALID_INPUT, "1 is bad"))
    batch.settle()
    assert batch.columns["part"].tolist() == [4, 5]
    folded(deeper, {"lists": {"part": "parts"}}, batch)
    assert batch.columns["parts"].tolist() == [[4, 5]]
    folded(inner, {"records": "all", "fields": ["document"]}, batch)
    assert (batch.columns["all"].tolist(), batch.columns["query"].tolist()) == ([[{"document": "c"}]], ["q2"])


def test_lists_and_records_come_back_in_order() -> None:
    inner, batch = documents()
    batch.columns["score"] = np.array([0.1, 0.7, 0.5], np.float32)
    inner["score"] = Field("score", "FP32")
    made = folded(
        inner,
        {"lists": {"document": "texts", "score": "scores"}, "records": "all", "fields": ["document", "score"]},
        batch,
    )
    assert made == [
        Field("texts", "BYTES", (), "texts"), Field("scores", "FP32", (-1,), "ragged"), Field("all", "BYTES", (), "json")
    ]  # fmt: skip
    assert batch.columns["texts"].tolist() == [["a", "bb"], ["c"]]
    assert [value.tolist() for value in batch.columns["scores"]] == [np.array([0.1, 0.7], np.float32).tolist(), [0.5]]
    assert batch.columns["all"].tolist() == [
        [{"document": "a", "score": 0.1}, {"document": "bb", "score": 0.7}],
        [{"document": "c", "score": 0.5}],
    ]


@pytest.mark.parametrize(
    ("how", "expected"),
    [("mean", [2.0, 7.0]), ("max", [3.0, 7.0]), ("min", [1.0, 7.0]), ("sum", [4.0, 7.0]), ("first", [1.0, 7.0]),
     ("last", [3.0, 7.0])],
)  # fmt: skip
def test_numbers_of_all_elements_are_pooled(how: str, expected: list[float]) -> None:
    inner, batch = documents()
    batch.columns["x"] = np.array([1, 3, 7], np.float32)
    folded({**inner, "x": Field("x", "FP32")}, {"pool": {"x": how}}, batch)
    assert batch.columns["x"].tolist() == expected


def test_lists_of_all_elements_are_joined_in_order() -> None:
    _, batch = documents()
    batch.columns["boxes"] = object_column([boxes(2), boxes(0), boxes(1)])
    batch.columns["words"] = object_column([["a"], [], ["b", "c"]])
    batch.columns["pair"] = np.arange(6, dtype=np.float32).reshape(3, 2)
    inner = {f.name: f for f in (BOXES, Field("words", "BYTES", (), "texts"), Field("pair", "FP32", (2,)))}
    made = folded(inner, {"join": {"boxes": "boxes", "words": "words", "pair": "pairs"}}, batch)
    assert made == [BOXES, Field("words", "BYTES", (), "texts"), Field("pairs", "FP32", (-1,), "ragged")]
    assert [row.tolist() for row in batch.columns["boxes"]] == [boxes(2).tolist(), boxes(1).tolist()]
    assert batch.columns["words"].tolist() == [["a"], ["b", "c"]]
    assert [row.tolist() for row in batch.columns["pairs"]] == [[0, 1, 2, 3], [4, 5]]


def test_a_row_without_elements_has_an_empty_list_joined() -> None:
    batch = Batch({"documents": object_column([[]])}, 1, [0])
    inner = expanded([TEXTS], OVER, batch)
    batch.columns["boxes"] = object_column([])
    folded({**inner, "boxes": BOXES}, {"join": {"boxes": "boxes"}}, batch)
    assert batch.columns["boxes"][0].shape == (0, 4)


def test_the_best_element_is_kept_and_of_equal_ones_the_first() -> None:
    inner, batch = documents()
    batch.columns["x"] = np.array([5, 5, 7], np.float32)
    folded({**inner, "x": Field("x", "FP32")}, {"best": "x", "keep": ["document", "x"]}, batch)
    assert batch.columns["document"].tolist() == ["a", "c"]


def test_no_best_is_picked_among_scores_that_are_not_numbers() -> None:
    inner, batch = documents()
    batch.columns["x"] = np.array([5, np.nan, 7], np.float32)
    folded({**inner, "x": Field("x", "FP32")}, {"best": "x", "keep": ["document"]}, batch)
    assert batch.columns["document"].tolist() == ["c"]
    assert batch.failures[0].code == Code.NON_FINITE_OUTPUT


def test_a_row_without_elements_has_empty_lists_and_nothing_to_pool() -> None:
    columns = {"documents": object_column([[], ["c"]])}
    batch = Batch(columns, 2, [0, 1])
    inner = expanded([TEXTS], OVER, batch)
    batch.columns["x"] = np.array([7], np.float32)
    options = {"lists": {"document": "kept"}, "pool": {"x": "max"}}
    folded({**inner, "x": Field("x", "FP32")}, options, batch)
    assert (batch.columns["kept"].tolist(), batch.columns["x"].tolist()) == ([["c"]], [7.0])
    assert isinstance(batch.failures[0], Failed)


def test_lists_become_objects_with_the_shortest_numbers(run: "Run") -> None:
    options = {"fields": {"box": "boxes", "score": "scores"}, "output": "detections"}
    scores = [np.array([0.1], np.float32), np.empty(0, np.float32)]
    found = run("records", options, {BOXES: [boxes(1), boxes(0)], SCORES: scores}).columns["detections"]
    assert found.tolist() == [[{"box": [0.0, 1.0, 2.0, 3.0], "score": 0.1}], []]


def test_lists_of_different_length_make_no_objects(run: "Run") -> None:
    options = {"fields": {"box": "boxes", "score": "scores"}}
    batch = run("records", options, {BOXES: [boxes(2)], SCORES: [np.zeros(1, np.float32)]})
    assert batch.failures[0].text == "boxes: the lists differ in length: box has 2, score has 1"
    batch = run("records", {"fields": {"x": "found"}}, {FOUND: [3, [7]]})
    assert batch.failures[0].text == "found: a list is needed here"
    assert batch.columns["records"].tolist() == [[{"x": 7}]]


@pytest.mark.parametrize(
    ("use", "options", "problem"),
    [
        ("expand", {"over": {"query": "x"}}, "over.query: query (text) is not a list in each row"),
        ("expand", {"over": {"documents": "query"}, "keep": ["query"]}, "'query' is made twice"),
        ("fold", {"lists": {"query": "x"}, "records": "x", "fields": ["query"]}, "records: 'x' is made twice"),
        ("fold", {}, "records: this fold keeps nothing"),
        ("fold", {"records": "all"}, "fields: records and fields stand together"),
        ("fold", {"best": "query", "keep": ["query"]}, "best: query (text) is not one number per row"),
        ("fold", {"lists": {"boxes": "all"}}, "lists.boxes: boxes cannot be an element of a list"),
        ("fold", {"join": {"query": "all"}}, "join.query: query (text) is not a list in each element"),
        ("records", {"fields": {"q": "query"}}, "fields.q: query (text) is not a list in each row"),
    ],
)
def test_what_cannot_work_is_refused_by_name(use: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(Misconfigured, match=r"pipeline\.toml") as caught:
        kind_of(use, kinds()).fields(options, {field.name: field for field in (TEXTS, QUERY, BOXES)})
    assert problem in str(caught.value)
