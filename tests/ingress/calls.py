"""Calls and answers for tests of dialects, without a server."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Field, Pipeline, Signature, Step, Version
from forwardpass.core.request import Answer, Note
from forwardpass.core.tensor import NUMPY_NAMES, Tensor, pack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.message import HttpRequest
from forwardpass.ingress.routes import Match, Route

VERSION = Version("p", 3, "digest", "/folder", Pipeline((Step("model"),)))


def call(
    body: Any, kind: str = "application/json", headers: Mapping[str, str] | None = None, pattern: str = "/x"
) -> Call:
    """A POST of this body: bytes as they are, text in UTF-8, anything else as JSON."""
    given = {name.lower().encode(): value.encode("latin-1") for name, value in (headers or {}).items()}
    if kind:
        given[b"content-type"] = kind.encode()
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    match = Match(Route(b"POST", pattern, "x", "infer", "a test's"), {})
    return Call(HttpRequest(b"POST", pattern, "", given, raw, 0.0), match, "id-1", Timeline())


def answer(
    outputs: Mapping[Field, Sequence[Any]],
    failures: Mapping[int, Failure] | None = None,
    notes: Sequence[Note] = (),
) -> Answer:
    """What a pipeline with these outputs gave for as many rows."""
    tensors = {field.name: _tensor(field, rows) for field, rows in outputs.items()}
    rows = len(next(iter(outputs.values()))) + len(failures or {})
    return Answer(VERSION, Signature((), tuple(outputs)), tensors, rows, failures or {}, notes)


def _tensor(field: Field, rows: Sequence[Any]) -> Tensor:
    import numpy as np

    if field.kind == "json":
        return Tensor("BYTES", (len(rows),), pack_bytes([json.dumps(row).encode() for row in rows]))
    if field.datatype == "BYTES":
        return Tensor("BYTES", (len(rows),), pack_bytes([None if row is None else row.encode() for row in rows]))
    array = np.array(rows, dtype=NUMPY_NAMES[field.datatype])
    return Tensor(field.datatype, array.shape, array.tobytes())
