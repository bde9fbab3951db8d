"""OpenAI's embeddings: what may be sent, and that vectors come back as PROTOCOLS 5.5 says."""

import base64
import struct
from typing import Any

import numpy as np
import pytest
from tests.ingress.task_calls import answered, call, classifier, embedder, json_of, refused, requested, texts

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.request import Note
from forwardpass.core.tokens import unpack_token_ids
from forwardpass.ingress.dialect import Target
from forwardpass.ingress.dialects.openai_embeddings import EMBEDDINGS, HARMLESS


def test_one_text_or_several_become_rows_in_their_order() -> None:
    assert texts(requested(EMBEDDINGS, embedder(), {"input": "a", "model": "m"})) == [b"a"]
    assert texts(requested(EMBEDDINGS, embedder(), {"input": ["b", "a"], "model": "m"})) == [b"b", b"a"]


@pytest.mark.parametrize(("given", "ids"), [([5, 6], [(5, 6)]), ([[5, 6], [7]], [(5, 6), (7,)])])
def test_token_ids_stand_for_a_text(given: Any, ids: list[tuple[int, ...]]) -> None:
    found = texts(requested(EMBEDDINGS, embedder(), {"input": given}))
    assert [unpack_token_ids(element or b"").ids for element in found] == ids
    assert refused(EMBEDDINGS, embedder(ids=False), {"input": given}).code == Code.WRONG_TYPE


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("m", Target("m", None, ("embed",))), ("m:2", Target("m", 2, ("embed",))), ("", Target("", None, ("embed",))),
        ("org/m", Target("org/m", None, ("embed",))), (":2", Target(":2", 2, ("embed",))),
    ],
)  # fmt: skip
def test_the_model_is_a_pipeline_or_a_version_of_one(model: str, target: Target) -> None:
    assert EMBEDDINGS.target(call({"input": "a", "model": model})) == target


def test_base64_is_little_endian_float32() -> None:
    answer = json_of(
        answered(EMBEDDINGS, embedder(), {"input": ["a", "b"], "encoding_format": "base64"}, [[1, 2], [3, 4]])
    )
    assert [base64.b64decode(each["embedding"]) for each in answer["data"]] == [
        struct.pack("<2f", 1, 2), struct.pack("<2f", 3, 4),
    ]  # fmt: skip


def test_the_answer_has_every_member_that_clients_read() -> None:
    answer = answered(EMBEDDINGS, embedder(), {"input": "a", "model": "letters"}, [[0.5, -1]], tokens=3)
    assert json_of(answer) == {
        "object": "list",
        "model": "letters",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}],
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    assert (b"X-Pipeline-Version", b"3") in answer.headers


def test_a_vector_is_cut_where_the_task_allows_it_and_is_of_length_1_again() -> None:
    body = {"input": "a", "dimensions": 2}
    answer = json_of(answered(EMBEDDINGS, embedder(3, 2), body, [[3, 4, 12]]))
    assert answer["data"][0]["embedding"] == pytest.approx([0.6, 0.8])
    assert json_of(answered(EMBEDDINGS, embedder(2), body, [[3, 4]]))["data"][0]["embedding"] == [3, 4]
    failure = refused(EMBEDDINGS, embedder(3, 1), body)
    assert (failure.field, failure.code) == ("/dimensions", Code.OUT_OF_RANGE)
    assert "1, 3" in failure.text


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"input": ""}, "/input", Code.MISSING_FIELD), ({"input": []}, "/input", Code.MISSING_FIELD),
        ({"input": ["a", ""]}, "/input/1", Code.MISSING_FIELD), ({"input": [[1], []]}, "/input/1", Code.MISSING_FIELD),
        ({"input": ["a", 1]}, "/input/1", Code.WRONG_TYPE), ({"input": [1, [1]]}, "/input/1", Code.WRONG_TYPE),
        ({"input": [True]}, "/input/0", Code.WRONG_TYPE), ({"input": None}, "/input", Code.WRONG_TYPE),
        ({"input": [1, -1]}, "/input/1", Code.OUT_OF_RANGE), ({"input": ["a"] * 2049}, "/input", Code.BATCH_TOO_LARGE),
        ({}, "/input", Code.MISSING_FIELD), ({"input": "a", "dimensions": 1.5}, "/dimensions", Code.WRONG_TYPE),
        ({"input": "a", "encoding_format": "int8"}, "/encoding_format", Code.OUT_OF_RANGE),
        ([], "", Code.WRONG_TYPE), (b"{", "", Code.JSON_INVALID),
        (b'{"input":"a","input":"b"}', "", Code.JSON_DUPLICATE_KEY),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(body: Any, field: str, code: Code) -> None:
    failure = refused(EMBEDDINGS, embedder(), body)
    assert (failure.field, failure.code) == (field, code)


def test_harmless_fields_are_a_closed_list() -> None:
    assert texts(requested(EMBEDDINGS, embedder(), {"input": "a", **dict.fromkeys(HARMLESS, "x")})) == [b"a"]
    assert "did you mean 'dimensions'?" in refused(EMBEDDINGS, embedder(), {"input": "a", "dimension": 2}).text


def test_a_field_that_is_null_is_one_left_out() -> None:
    nulls = dict.fromkeys(["model", "encoding_format", "dimensions", *HARMLESS])
    told = json_of(answered(EMBEDDINGS, embedder(), {"input": "a", **nulls}, [[1, 2]]))
    assert told == json_of(answered(EMBEDDINGS, embedder(), {"input": "a"}, [[1, 2]]))


def test_a_body_of_another_kind_is_refused() -> None:
    for asked in (call({"input": "a"}, content_type="text/plain"), call({"input": "a"}, "api=1")):
        with pytest.raises(Refused):
            EMBEDDINGS.target(asked)


def test_a_failed_row_fails_the_request_naming_its_place() -> None:
    failures = {1: Failed(Code.STEP_FAILED, "text: it broke", detail="why", retry_after_s=2.0)}
    with pytest.raises(Failed) as caught:
        answered(EMBEDDINGS, embedder(), {"input": ["a", "b"]}, [[1, 2]], failures=failures)
    assert (caught.value.text, caught.value.field) == ("/input/1: text: it broke", "/input/1")
    assert (caught.value.detail, caught.value.retry_after_s) == ("why", 2.0)


def test_a_number_that_json_does_not_have_is_told_as_a_failure() -> None:
    with pytest.raises(Failed) as caught:
        answered(EMBEDDINGS, embedder(), {"input": "a"}, [[np.nan, 1]])
    assert caught.value.code == Code.NON_FINITE_OUTPUT


def test_a_text_that_was_cut_is_told_in_a_header() -> None:
    notes = [Note(row, "truncated", {"tokens": 9, "kept": 6}) for row in range(2)]
    answer = answered(EMBEDDINGS, embedder(), {"input": ["a", "b"]}, [[1, 2], [3, 4]], notes=notes)
    assert (b"X-Notes", b"truncated=2") in answer.headers


def test_a_pipeline_of_another_task_says_what_it_does() -> None:
    failure = refused(EMBEDDINGS, classifier("a", "b"), {"input": "a"})
    assert failure.code == Code.INVALID_INPUT
    assert "it classifies" in failure.text
    assert '[task] with kind = "embed"' in failure.text
