"""V2's generate: inputs by name in, outputs by name out, at once or as the event of a stream."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ingress.calls import answer, call

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Input, Signature
from forwardpass.core.request import Answer, Request
from forwardpass.core.tensor import unpack_bytes
from forwardpass.ingress.dialects import generate
from forwardpass.ingress.message import HttpAnswer

UPPER = Signature((Input("prompt", "text"),), (Field("shout", "BYTES", (), "text"),))
TWO = Signature((Input("a", "text"), Input("b", "text"), Input("n", "number", missing=True)), UPPER.outputs)
AGED = Signature((Input("prompt", "text"), Input("age", "number")), ())
SHOUT = answer({UPPER.outputs[0]: ["HELLO"]})
STREAM = "/v2/models/{pipeline}/generate_stream"


def decoded(body: Any, signature: Signature = UPPER, pattern: str = "/v2/models/{pipeline}/generate") -> Request:
    return generate.decode(call(body, "", pattern=pattern), signature)


def test_triton_s_own_example_is_understood() -> None:
    request = decoded(
        {"id": "42", "text_input": "hello", "parameters": {"stream": False, "temperature": 0}, "max_tokens": 16}
    )
    assert unpack_bytes(request.columns[0].data, 1) == [b"hello"]
    assert request.client_id == "42"


@pytest.mark.parametrize("name", ["temperature", "top_p", "max_tokens", "stop", "details"])
def test_how_text_would_be_sampled_is_without_effect(name: str) -> None:
    for beside in ({name: ["a"]}, {"parameters": {name: ["a"], "my_own": "x"}}):
        assert decoded({"prompt": "hi", **beside}).columns == decoded({"prompt": "hi"}).columns


def test_inputs_stand_under_their_own_names() -> None:
    request = decoded({"a": "x", "b": "y", "n": 1.5, "parameters": {"priority": 2, "timeout": 500_000}}, TWO)
    assert [column.datatype for column in request.columns] == ["BYTES", "BYTES", "FP64"]
    assert (request.priority, request.deadline_s) == (2, 0.5)


@pytest.mark.parametrize(
    ("body", "signature", "code", "field"),
    [
        ({}, UPPER, Code.MISSING_FIELD, "/prompt"), ([], UPPER, Code.WRONG_TYPE, ""), (b"", UPPER, Code.JSON_INVALID, ""),
        ({"text_input": 3}, UPPER, Code.WRONG_TYPE, "/text_input"), ({"text_input": "x"}, TWO, Code.UNKNOWN_FIELD, "/text_input"),
        ({"text_input": "x", "prompt": "y"}, UPPER, Code.INVALID_INPUT, "/text_input"),
        ({"promt": "x"}, UPPER, Code.UNKNOWN_FIELD, "/promt"), ({"prompt": "x", "mine": 1}, UPPER, Code.UNKNOWN_FIELD, "/mine"),
        ({"prompt": "x", "parameters": {"a": {}}}, UPPER, Code.WRONG_TYPE, "/parameters/a"),
        ({"prompt": "x", "parameters": []}, UPPER, Code.WRONG_TYPE, "/parameters"),
        ({"prompt": "x", "timeout": 1, "parameters": {"timeout": 2}}, UPPER, Code.INVALID_INPUT, "/timeout"),
        ({"prompt": "x", "parameters": {"prority": 2}}, UPPER, Code.UNKNOWN_FIELD, "/parameters/prority"),
        ({"prompt": "x", "id": 3}, UPPER, Code.WRONG_TYPE, "/id"), ({"prompt": "x", "prority": 1}, UPPER, Code.UNKNOWN_FIELD, "/prority"),
        ({"prompt": "x", "stream": True}, UPPER, Code.INVALID_INPUT, "/stream"),
        ({"prompt": "x", "binary_data_output": True}, UPPER, Code.UNKNOWN_FIELD, "/binary_data_output"),
        ({"text_input": "x"}, AGED, Code.MISSING_FIELD, "/age"),
        ({"id": "x"}, Signature((Input("id", "text"),), ()), Code.NOT_IMPLEMENTED, ""),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(body: Any, signature: Signature, code: Code, field: str) -> None:
    with pytest.raises(Refused) as refusal:
        decoded(body, signature)
    assert (refusal.value.code, refusal.value.field) == (code, field)


def test_the_only_text_is_also_the_text_output() -> None:
    given = generate.encode(SHOUT, decoded({"id": "42", "prompt": "hello"}), call({}))
    named = {"id": "42", "model_name": "p", "model_version": "3", "shout": "HELLO", "text_output": "HELLO"}
    assert json.loads(_whole(given)) == named


def test_a_stream_is_one_event_and_ends() -> None:
    asked = {"prompt": "hello", "stream": True}
    given = generate.encode_stream(SHOUT, decoded(asked, pattern=STREAM), call(asked, pattern=STREAM))
    assert given.content_type == b"text/event-stream; charset=utf-8"
    event = _whole(given)
    assert event.startswith(b"data: {") and event.endswith(b"}\n\n") and event.count(b"\n") == 2
    assert json.loads(event[6:])["text_output"] == "HELLO"


def test_a_failure_before_the_first_event_is_raised_not_streamed() -> None:
    failed = Answer(SHOUT.version, UPPER, {}, 1, {0: Refused(Code.RULE_REFUSED, "not this text")}, ())
    with pytest.raises(Refused, match="not this text"):
        generate.encode_stream(failed, decoded({"prompt": "x"}, pattern=STREAM), call({}))


def _whole(given: HttpAnswer) -> bytes:
    async def joined(body: AsyncIterator[bytes]) -> bytes:
        return b"".join([chunk async for chunk in body])

    body = given.body
    if isinstance(body, bytes):
        return body
    assert isinstance(body, AsyncIterator)
    return asyncio.run(joined(body))
