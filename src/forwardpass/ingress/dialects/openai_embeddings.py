"""``POST /v1/embeddings``: OpenAI's form over a pipeline that embeds texts. TEI's form of the same path is this one."""

from binascii import b2a_base64
from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Call, Dialect, Target
from forwardpass.ingress.dialects.envelope import raise_first
from forwardpass.ingress.dialects.task_body import GivenInput, place_of, read, target_of, texts_of
from forwardpass.ingress.dialects.task_request import (
    check_dimensions,
    cut,
    headers_of,
    made_unit,
    request_of,
    task_of,
    vectors_of,
)
from forwardpass.ingress.message import HttpAnswer
from forwardpass.pipeline.bounds import refuse

HARMLESS = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
"""Accepted and without effect: they name the caller or tell OpenAI's own service how to book the request."""


class EmbeddingsMessage(msgspec.Struct, forbid_unknown_fields=True):
    input: GivenInput
    model: str | None = None
    encoding_format: str | None = None
    dimensions: int | None = None


def _target(call: Call) -> Target:
    message = call.message = read(call.http, EmbeddingsMessage, HARMLESS)
    if message.encoding_format not in (None, "float", "base64"):
        raise refuse(Code.OUT_OF_RANGE, "/encoding_format", 'must be "float" or "base64"')
    return target_of(message.model, "embed")


def _decode(call: Call, signature: Signature) -> Request:
    message: EmbeddingsMessage = call.message
    task = task_of(signature, "embed")
    check_dimensions(message.dimensions, task, signature)
    texts = texts_of(message.input, "/input", Code.BATCH_TOO_LARGE)
    return request_of(
        call, signature, task, len(texts), {task.input: (texts, partial(place_of, message.input, "/input"))}
    )


def _encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    message: EmbeddingsMessage = call.message
    raise_first(answer, partial(place_of, message.input, "/input"))
    whole = vectors_of(answer, task_of(answer.signature, "embed"))
    vectors = cut(whole, message.dimensions)
    if vectors is not whole:
        vectors = made_unit(vectors)
    data = b",".join(_as_base64(vectors) if message.encoding_format == "base64" else _as_numbers(vectors))
    model = orjson.dumps(message.model or answer.version.pipeline)
    usage = b'{"prompt_tokens":%d,"total_tokens":%d}' % (answer.tokens, answer.tokens)
    body = b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (data, model, usage)
    return HttpAnswer(200, body, headers=headers_of(answer, request))


def _as_base64(vectors: NDArray[np.float32]) -> Iterator[bytes]:
    """What OpenAI's own client asks for: written by hand, as nothing in it needs an escape."""
    for index, vector in enumerate(np.ascontiguousarray(vectors)):
        yield b'{"object":"embedding","index":%d,"embedding":"%b"}' % (index, b2a_base64(vector, newline=False))


def _as_numbers(vectors: NDArray[np.float32]) -> Iterator[bytes]:
    for index, vector in enumerate(np.ascontiguousarray(vectors)):
        numbers = orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY)
        yield b'{"object":"embedding","index":%d,"embedding":%b}' % (index, numbers)


EMBEDDINGS = Dialect(_decode, _encode, _target)
