"""Reranking in the three forms of PROTOCOLS 6, over each kind of pipeline that can."""

import math
from typing import Any

import numpy as np
import pytest
from tests.ingress.task_calls import answered, classifier, embedder, json_of, refused, requested, texts

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.pipeline import Field, Input, Signature, Task, TaskScale
from forwardpass.core.request import Note
from forwardpass.core.tensor import unpack_texts
from forwardpass.ingress.dialects.rerank import COHERE_RERANK, RERANK, TEI_RERANK

QUERY, LIST, ONE = Input("query", "text"), Input("documents", "texts", count_max=3), Input("document", "text")
BODY = {"query": "q", "documents": ["a", {"text": "b"}, "c"]}


def ranker(scale: TaskScale = "as_is") -> Signature:
    task = Task("rank", "query", "documents", "ranking", scale=scale)
    return Signature((QUERY, LIST), (Field("ranking", "BYTES", (), "json"),), task=task)


def pairs(scale: TaskScale = "as_is") -> Signature:
    task = Task("rank", "query", "document", "score", scale=scale)
    return Signature((ONE, QUERY), (Field("score", "FP32"),), task=task)


def ranking(*scores: tuple[int, float]) -> list[list[dict[str, float]]]:
    return [[{"index": index, "score": score} for index, score in scores]]


def results(signature: Signature, output: Any, **more: Any) -> list[tuple[int, float]]:
    body = json_of(answered(RERANK, signature, {**BODY, **more}, output))
    return [(each["index"], each["relevance_score"]) for each in body["results"]]


def test_documents_go_in_as_the_pipeline_takes_them() -> None:
    listed = requested(RERANK, ranker(), BODY)
    assert (texts(listed), [unpack_texts(each or b"") for each in texts(listed, 1)]) == ([b"q"], [["a", "b", "c"]])
    paired = requested(RERANK, pairs(), BODY)
    assert (texts(paired), texts(paired, 1)) == ([b"a", b"b", b"c"], [b"q"] * 3)
    assert texts(requested(RERANK, embedder(), BODY)) == [b"q", b"a", b"b", b"c"]


def test_the_best_comes_first_and_of_equal_ones_the_lower_index() -> None:
    assert results(pairs(), [0.25, 0.75, 0.25]) == [(1, 0.75), (0, 0.25), (2, 0.25)]
    assert results(pairs(), [0.25, 0.75, 0.5], top_n=2) == [(1, 0.75), (2, 0.5)]
    assert results(ranker(), ranking((2, 0.5), (0, 0.5))) == [(0, 0.5), (2, 0.5)]


@pytest.mark.parametrize(
    ("scale", "told"),
    [("as_is", [3.0, -2.0]), ("cosine", [1.0, 0.0]), ("logit", [1 / (1 + math.exp(-3)), 1 / (1 + math.exp(2))])],
)
def test_scores_are_told_as_the_task_says(scale: TaskScale, told: list[float]) -> None:
    assert [score for _, score in results(pairs(scale), [-2, 3, -2])][:2] == pytest.approx(told)


def test_an_embedder_ranks_by_the_cosine() -> None:
    found = results(embedder(), [[2, 0], [3, 4], [-1, 0], [5, 0]])
    assert found == [(2, 1.0), (0, pytest.approx(0.6)), (1, 0.0)]


def test_jinas_answer_has_the_documents_and_usage() -> None:
    answer = json_of(answered(RERANK, pairs(), {**BODY, "model": "letters/3"}, [0, 1, 0], tokens=7))
    assert answer["results"][0] == {"index": 1, "relevance_score": 1.0, "document": {"text": "b"}}
    assert (answer["model"], answer["usage"]) == ("letters/3", {"prompt_tokens": 7, "total_tokens": 7})
    without = json_of(answered(RERANK, pairs(), {**BODY, "return_documents": False}, [0, 1, 0]))
    assert without["results"][0] == {"index": 1, "relevance_score": 1.0}


def test_coheres_answer_is_its_own() -> None:
    answer = json_of(answered(COHERE_RERANK, pairs(), BODY, [0, 1, 0], tokens=7))
    assert answer == {
        "id": "id-1",
        "results": [{"index": index, "relevance_score": float(index == 1)} for index in (1, 0, 2)],
        "meta": {
            "api_version": {"version": "2"}, "billed_units": {"search_units": 1}, "tokens": {"input_tokens": 7},
        },
    }  # fmt: skip


def test_teis_answer_is_a_bare_list() -> None:
    body = {"query": "q", "texts": ["a", "b"], "return_text": True}
    told = json_of(answered(TEI_RERANK, pairs("logit"), body, [0, 2]))
    assert told == [
        {"index": 1, "text": "b", "score": pytest.approx(1 / (1 + math.exp(-2)))}, {"index": 0, "text": "a", "score": 0.5},
    ]  # fmt: skip
    raw = json_of(answered(TEI_RERANK, pairs("logit"), {"query": "q", "texts": ["a"], "raw_scores": True}, [2]))
    assert raw == [{"index": 0, "score": 2.0}]


def test_what_may_not_be_cut_is_refused_when_it_was() -> None:
    note = Note(1, "truncated", {"tokens": 9, "kept": 6})
    body = {"query": "q", "texts": ["a", "b"], "truncate": False}
    failure = refused_cut(body, note)
    assert (failure.code, failure.field) == (Code.INPUT_TOO_LARGE, "/texts/1")
    assert "9" in failure.text
    assert json_of(answered(TEI_RERANK, pairs(), {**body, "truncate": True}, [0, 1], notes=[note]))


def cut_note(row: int, kept: int, field: str = "document", end: str = "right") -> Note:
    beside = {} if end == "right" else {"from": end}
    return Note(row, "truncated", {"field": field, "tokens": 99, "kept": kept, **beside})


@pytest.mark.parametrize(
    ("documents", "notes", "tokens", "most"),
    [
        (["abc", "d"], [], 40, 3),  # a token is of one byte at least
        (["a" * 50, "d"], [], 40, 40),  # nor has a document more than all texts together
        (["a" * 500, "d"], [cut_note(0, 6)], 40, 6),  # the longest were cut to that
        (["a" * 500, "d"], [cut_note(0, 6, "query")], 40, 40),  # which of the query says nothing
    ],
)
def test_a_bound_on_the_tokens_of_a_document_is_kept_or_refused(
    documents: Any, notes: Any, tokens: int, most: int
) -> None:
    body = {"query": "q", "documents": documents, "max_tokens_per_doc": most}
    assert answered(COHERE_RERANK, pairs(), body, [0, 1], notes=notes, tokens=tokens).status == 200
    with pytest.raises(Refused, match=rf"^/max_tokens_per_doc: up to {most} tokens"):
        answered(COHERE_RERANK, pairs(), {**body, "max_tokens_per_doc": most - 1}, [0, 1], notes=notes, tokens=tokens)


def test_where_a_text_may_be_cut_is_kept_or_refused() -> None:
    for end, other in (("left", "Right"), ("right", "Left")):
        body = {"query": "q", "texts": ["a", "b"], "truncation_direction": end}
        note = cut_note(1, 6, end=end)
        assert answered(TEI_RERANK, pairs(), body, [0, 1], notes=[note]).status == 200
        failure = refused_cut({**body, "truncation_direction": other}, note)
        assert (failure.code, failure.field) == (Code.INPUT_TOO_LARGE, "/texts/1")


def test_jinas_truncation_false_refuses_what_was_cut() -> None:
    body = {"query": "q", "documents": ["a", "b"], "truncation": True}
    assert answered(RERANK, pairs(), body, [0, 1], notes=[cut_note(0, 6)]).status == 200
    with pytest.raises(Refused, match=r"^/documents/0: has 99 tokens"):
        answered(RERANK, pairs(), {**body, "truncation": False}, [0, 1], notes=[cut_note(0, 6)])


def test_a_field_that_is_null_is_one_left_out() -> None:
    nothing = dict.fromkeys(["model", "top_n", "return_documents", "max_tokens_per_doc", "truncation"])
    cohere = answered(COHERE_RERANK, pairs(), {**BODY, **nothing, "priority": None}, [0, 1, 0])
    assert json_of(cohere) == json_of(answered(COHERE_RERANK, pairs(), BODY, [0, 1, 0]))
    tei = {"query": "q", "texts": ["a", "b"]}
    nulls = dict.fromkeys(["raw_scores", "return_text", "truncate", "truncation_direction"])
    told = json_of(answered(TEI_RERANK, pairs(), {**tei, **nulls}, [0, 1]))
    assert told == json_of(answered(TEI_RERANK, pairs(), tei, [0, 1]))


def refused_cut(body: Any, note: Note) -> Refused:
    with pytest.raises(Refused) as caught:
        answered(TEI_RERANK, pairs(), body, [0, 1], notes=[note])
    return caught.value


@pytest.mark.parametrize(
    ("more", "field", "code"),
    [
        ({"query": ""}, "/query", Code.MISSING_FIELD), ({"documents": []}, "/documents", Code.MISSING_FIELD),
        ({"documents": ["a"] * 4}, "/documents", Code.INPUT_TOO_LARGE), ({"top_n": 0}, "/top_n", Code.OUT_OF_RANGE),
        ({"documents": ["a"] * 2049}, "/documents", Code.BATCH_TOO_LARGE),
        ({"documents": [1]}, "/documents/0", Code.WRONG_TYPE), ({"top": 1}, "/top", Code.UNKNOWN_FIELD),
        ({"documents": [{"txt": "a"}]}, "/documents/0/txt", Code.UNKNOWN_FIELD),
        ({"max_tokens_per_doc": 0}, "/max_tokens_per_doc", Code.OUT_OF_RANGE), ({"priority": 1}, "/priority", Code.UNKNOWN_FIELD),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(more: dict[str, Any], field: str, code: Code) -> None:
    failure = refused(RERANK, ranker(), {**BODY, **more})
    assert (failure.field, failure.code) == (field, code)


@pytest.mark.parametrize("made", [ranking((0, 1), (0, 1)), ranking((3, 1)), [[{"score": 1}]], [[1, 2]], [{}], [["a"]]])
def test_a_ranking_that_ranks_no_documents_is_the_servers_fault(made: Any) -> None:
    with pytest.raises(Failed) as caught:
        results(ranker(), made)
    assert caught.value.code == Code.BAD_OUTPUT_SHAPE


def test_the_failure_of_a_document_names_it() -> None:
    failures = {0: Failed(Code.STEP_FAILED, "it broke")}
    for signature, place in ((pairs(), "/documents/0"), (embedder(), "/query"), (ranker(), "/documents")):
        with pytest.raises(Failed) as caught:
            answered(COHERE_RERANK, signature, BODY, np.zeros((0,)) if signature != ranker() else [], failures=failures)
        assert caught.value.field == place


def test_a_classifier_ranks_nothing() -> None:
    assert "it classifies" in refused(RERANK, classifier("a"), BODY).text
