"""TEI's ``POST /``, where its clients ask for whatever the model does."""

from typing import Any

import pytest
from tests.ingress.task_calls import answered, call, classifier, embedder, json_of, refused

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field, Input, Signature, Task
from forwardpass.ingress.dialects.tei import EMBED, PREDICT
from forwardpass.ingress.dialects.tei_any import TEI_ANY

AB = classifier("a", "b")
PAIRS = Signature(
    (Input("document", "text"), Input("query", "text")),
    (Field("score", "FP32"),),
    task=Task("rank", "query", "document", "score"),
)
RANK = {"query": "q", "texts": ["a", "b"]}


@pytest.mark.parametrize(
    ("body", "tasks"),
    [
        ({"inputs": "x"}, ("embed", "classify")), ({"inputs": "x", "truncate": True}, ("embed", "classify")),
        ({"inputs": "x", "normalize": True}, ("embed",)), ({"inputs": "x", "raw_scores": False}, ("classify",)),
        (RANK, ("rank", "embed")), ({}, ("embed", "classify")),
    ],
)  # fmt: skip
def test_the_keys_of_a_body_say_who_is_asked(body: Any, tasks: tuple[str, ...]) -> None:
    assert TEI_ANY.target(call(body)) == ("", None, tasks)


def test_inputs_are_embedded_or_classified_as_the_pipeline_does() -> None:
    body = {"inputs": ["x"]}
    vectors = json_of(answered(TEI_ANY, embedder(), body, [[3, 4]]))
    assert vectors == json_of(answered(EMBED, embedder(), body, [[3, 4]])) == [pytest.approx([0.6, 0.8])]
    labels = json_of(answered(TEI_ANY, AB, body, [[0.25, 0.75]]))
    assert labels == json_of(answered(PREDICT, AB, body, [[0.25, 0.75]]))
    assert labels[0] == {"label": "b", "score": 0.75}


def test_a_query_ranks_its_texts() -> None:
    assert json_of(answered(TEI_ANY, PAIRS, RANK, [0.25, 0.5])) == [
        {"index": 1, "score": 0.5},
        {"index": 0, "score": 0.25},
    ]
    assert [each["index"] for each in json_of(answered(TEI_ANY, embedder(), RANK, [[1, 0], [0, 1], [1, 0]]))] == [1, 0]


@pytest.mark.parametrize(
    ("signature", "body", "field", "code"),
    [
        (AB, [], "", Code.WRONG_TYPE), (AB, b"", "", Code.JSON_INVALID), (AB, {}, "/inputs", Code.MISSING_FIELD),
        (AB, {"inputs": "x", "normalise": True}, "/normalise", Code.UNKNOWN_FIELD),
        (embedder(), {"inputs": "x", "normalise": True}, "/normalise", Code.UNKNOWN_FIELD),
        (PAIRS, {"query": "q", "text": ["a"]}, "/text", Code.UNKNOWN_FIELD), (AB, RANK, "/model", Code.INVALID_INPUT),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(signature: Signature, body: Any, field: str, code: Code) -> None:
    failure = refused(TEI_ANY, signature, body)
    assert (failure.field, failure.code) == (field, code)
