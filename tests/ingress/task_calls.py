"""A task's dialect from a body to a request, and from what a pipeline would answer to a body, without a pipeline."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from forwardpass.core.errors import Failure, Refused
from forwardpass.core.pipeline import Field, Input, Pipeline, Signature, Task, Version
from forwardpass.core.request import Answer, Note, Request
from forwardpass.core.tensor import Tensor, pack_bytes, unpack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialect import Call, Dialect
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import Match, Route

VERSION = Version("letters", 3, "0" * 64, "/folder", Pipeline(()))
ROUTE = Route(b"POST", "/", "", "infer", "")


def embedder(size: int = 2, *dimensions: int, ids: bool = True) -> Signature:
    task = Task("embed", "text", output="vector", dimensions=dimensions)
    taken = frozenset({"text"} if ids else ())
    return Signature((Input("text", "text"),), (Field("vector", "FP32", (size,)),), token_inputs=taken, task=task)


def classifier(*labels: str, kind: str = "text", **said: Any) -> Signature:
    """With a score of each label, in their order."""
    task = Task("classify", "it", output="scores", labels=labels, **said)
    given: Any = kind
    return Signature((Input("it", given),), (Field("scores", "FP32", (len(labels),)),), task=task)


def call(body: Any, query: str = "", **headers: str) -> Call:
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Call(HttpRequest(b"POST", "/", query, given, text, 0.0), Match(ROUTE, {}), "id-1", Timeline())


def requested(dialect: Dialect, signature: Signature, body: Any) -> Request:
    asked = call(body)
    dialect.target(asked)
    return dialect.decode(asked, signature)


def refused(dialect: Dialect, signature: Signature, body: Any, **given: Any) -> Refused:
    """Of a request, or of its answer."""
    with pytest.raises(Refused) as caught:
        answered(dialect, signature, body, np.zeros((1, 2)), **given)
    return caught.value


def answered(
    dialect: Dialect,
    signature: Signature,
    body: Any,
    *outputs: Any,
    failures: Mapping[int, Failure] | None = None,
    notes: Sequence[Note] = (),
    tokens: int = 0,
) -> HttpAnswer:
    """What a client gets when these come out, in the signature's order: arrays, or lists of texts or JSON values."""
    asked = call(body)
    dialect.target(asked)
    request = dialect.decode(asked, signature)
    tensors = {field.name: tensor(field, value) for field, value in zip(signature.outputs, outputs, strict=True)}
    answer = Answer(VERSION, signature, tensors, request.rows, failures or {}, notes, tokens=tokens)
    return dialect.encode(answer, request, asked)


def tensor(field: Field, value: Any) -> Tensor:
    if field.datatype != "BYTES":
        array = np.asarray(value, dtype="<f4")
        return Tensor(field.datatype, array.shape, array.tobytes())
    encoded: Callable[[Any], bytes] = str.encode if field.kind == "text" else lambda each: json.dumps(each).encode()
    return Tensor("BYTES", (len(value),), pack_bytes([encoded(each) for each in value]))


def json_of(answer: HttpAnswer) -> Any:
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


def texts(request: Request, column: int = 0) -> list[bytes | None]:
    return unpack_bytes(request.columns[column].data, request.rows)
