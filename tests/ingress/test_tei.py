"""Text Embeddings Inference's own paths (PROTOCOLS 6)."""

from typing import Any

import pytest
from tests.ingress.task_calls import answered, call, classifier, embedder, json_of, refused, requested, texts

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.request import Note
from forwardpass.ingress.dialect import Target
from forwardpass.ingress.dialects.tei import EMBED, PREDICT
from forwardpass.ingress.status import error_answer

AB = classifier("a", "b")


def test_no_path_names_a_pipeline() -> None:
    assert EMBED.target(call({"inputs": "x"})) == Target("", None, ("embed",))
    assert PREDICT.target(call({"inputs": "x"})) == Target("", None, ("classify",))


@pytest.mark.parametrize(("given", "rows"), [("a", [b"a"]), (["a", "b"], [b"a", b"b"])])
def test_vectors_come_back_as_lists_of_length_1(given: Any, rows: list[bytes]) -> None:
    assert texts(requested(EMBED, embedder(), {"inputs": given})) == rows
    made = [[3.0, 4.0]] * len(rows)
    assert json_of(answered(EMBED, embedder(), {"inputs": given}, made)) == [pytest.approx([0.6, 0.8])] * len(rows)
    as_made = answered(EMBED, embedder(), {"inputs": given, "normalize": False}, made)
    assert json_of(as_made) == made


def test_a_vector_is_cut_where_the_task_allows_it() -> None:
    body = {"inputs": "a", "dimensions": 1}
    assert json_of(answered(EMBED, embedder(2, 1), body, [[-3, 4]])) == [[-1.0]]
    assert refused(EMBED, embedder(2), body).field == "/dimensions"
    as_made = answered(EMBED, embedder(2, 1), {**body, "normalize": False}, [[-3, 4]])
    assert json_of(as_made) == [[-3.0]]


def test_a_field_that_is_null_is_one_left_out() -> None:
    names = ["normalize", "truncate", "truncation_direction", "dimensions", "prompt_name"]
    asked = {"inputs": "a", **dict.fromkeys(names)}
    assert json_of(answered(EMBED, embedder(), asked, [[3, 4]])) == [pytest.approx([0.6, 0.8])]
    asked = {"inputs": "a", **dict.fromkeys(["raw_scores", "truncate", "truncation_direction"])}
    assert len(json_of(answered(PREDICT, AB, asked, [[0.25, 0.75]]))) == 2


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"inputs": ""}, "/inputs", Code.MISSING_FIELD), ({"inputs": []}, "/inputs", Code.MISSING_FIELD),
        ({"inputs": ["a"] * 2049}, "/inputs", Code.INPUT_TOO_LARGE), ({"input": "a"}, "/input", Code.UNKNOWN_FIELD),
        ({"inputs": "a", "prompt_name": "query"}, "/prompt_name", Code.INVALID_INPUT),
        ({"inputs": "a", "truncation_direction": "up"}, "/truncation_direction", Code.OUT_OF_RANGE),
    ],
)  # fmt: skip
def test_what_cannot_be_embedded_is_named(body: Any, field: str, code: Code) -> None:
    failure = refused(EMBED, embedder(), body)
    assert (failure.field, failure.code) == (field, code)


def test_labels_come_back_with_their_scores_the_greatest_first() -> None:
    told = [{"label": "b", "score": 0.75}, {"label": "a", "score": 0.25}]
    assert json_of(answered(PREDICT, AB, {"inputs": "x"}, [[0.25, 0.75]])) == told
    assert json_of(answered(PREDICT, AB, {"inputs": ["x"], "parameters": {}}, [[0.25, 0.75]])) == told
    several = answered(PREDICT, AB, {"inputs": [["x"], ["y"]]}, [[0.25, 0.75], [0.25, 0.75]])
    assert json_of(several) == [told, told]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"inputs": ["a", "pair"]}, "/inputs"), ({"inputs": [["a", "pair"]]}, "/inputs/0"), ({"inputs": []}, "/inputs"),
        ({"inputs": [["a"], "b"]}, "/inputs/1"), ({"inputs": [[""]]}, "/inputs/0"), ({"inputs": ""}, "/inputs"),
        ({"inputs": "a", "parameters": {"top_k": 1}}, "/parameters/top_k"), ({"inputs": "a", "raw_scores": True}, "/raw_scores"), ({"inputs": [["a"]] * 2049}, "/inputs"),
    ],
)  # fmt: skip
def test_what_cannot_be_classified_is_named(body: Any, field: str) -> None:
    assert refused(PREDICT, AB, body).field == field


def test_a_picture_has_no_place_here() -> None:
    assert "picture" in refused(PREDICT, classifier("a", kind="image"), {"inputs": "x"}).text


@pytest.mark.parametrize(("dialect", "signature"), [(EMBED, embedder()), (PREDICT, AB)])
def test_what_may_not_be_cut_is_refused_when_it_was(dialect: Any, signature: Any) -> None:
    notes = [Note(0, "truncated", {"tokens": 9, "kept": 6})]
    failure = refused(dialect, signature, {"inputs": "x", "truncate": False}, notes=notes)
    assert (failure.code, failure.field) == (Code.INPUT_TOO_LARGE, "/inputs")


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (Refused(Code.MISSING_FIELD, "x"), 400, "empty"), (Refused(Code.INPUT_TOO_LARGE, "x"), 413, "validation"),
        (Failed(Code.ENGINE_FAILED, "x"), 500, "backend"), (Failed(Code.NOT_READY, "x"), 503, "unhealthy"),
        (Failed(Code.QUEUE_FULL, "x"), 503, "overloaded"),
    ],
)  # fmt: skip
def test_errors_have_its_own_words(failure: Any, status: int, kind: str) -> None:
    answer = error_answer(failure, "tei", "id")
    assert (answer.status, json_of(answer)["error_type"], json_of(answer)["error"]) == (status, kind, "x")
