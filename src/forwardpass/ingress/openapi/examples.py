"""Requests that a reader can send as they stand: golden examples, or made up from the signature."""

import base64
import struct
from collections.abc import Mapping
from math import isnan, prod
from typing import Any

import numpy as np
import orjson

from forwardpass.core.errors import Refused
from forwardpass.core.pipeline import ENCODED, Input
from forwardpass.core.tensor import NUMPY_NAMES, unpack_bytes
from forwardpass.ingress.openapi.served import Schema, Served
from forwardpass.pipeline import fields

EXAMPLES_MAX = 3
EXAMPLE_BYTES_MAX = 10 * 1024
ELEMENTS_MAX = 256

_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAT0lEQVR42u3PQQkAAAgEsEtrFrOY0gi+hcEKLNXzWgQEBAQEBAQE"
    "BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQELgv94YF4+PcehgAAAABJRU5ErkJggg=="
)
"""64 x 64 pixels of one colour."""
_RATE_HZ = 8000
_SAMPLES = 800


def records(served: Served) -> dict[str, Schema]:
    """By name a few records, each as an example object; none where there is none that is small enough."""
    found: dict[str, Schema] = {}
    for place, golden in enumerate(served.definition.golden, 1):
        value = _small(golden.request)
        if value is not None and len(found) < EXAMPLES_MAX and _fits(served, value):
            found[f"golden_{place}"] = {"summary": f"golden example {place}", "value": value}
    if found:
        return found
    made = _small(made_up(served))
    return {"made_up": {"summary": "made up", "value": made}} if made is not None and _fits(served, made) else {}


def made_up(served: Served) -> dict[str, Any] | None:
    """A record whose every value is right for its input; None where it would be long."""
    inputs = served.signature.inputs
    if any(given.type == "tensor" and prod(map(abs, given.shape)) > ELEMENTS_MAX for given in inputs):
        return None
    return {given.name: _value(given) for given in inputs}


def infer_request(served: Served, record: Mapping[str, Any]) -> Schema | None:
    """The same record as the V2 protocol has it in JSON; None where it has no form there."""
    signature = served.signature
    inputs: list[Schema] = []
    columns, rows = fields.encode(signature, [record])
    for column, field in zip(columns, signature.columns, strict=True):
        if field.kind in ENCODED:
            return None
        shape, data = list(column.shape), None
        if field.kind == "texts":
            data = list(record[field.name])
            shape = [rows, len(data)]
        elif column.datatype == "BYTES":
            elements = unpack_bytes(column.data, prod(shape))
            data = [None if element is None else element.decode() for element in elements]
        else:
            numbers = np.frombuffer(column.data, NUMPY_NAMES[column.datatype])
            data = [None if isnan(value) else value for value in numbers.tolist()]
        shape = shape if signature.leading else shape[1:]
        inputs.append({"name": field.name, "shape": shape, "datatype": column.datatype, "data": data})
    return {"inputs": inputs}


def _fits(served: Served, record: Mapping[str, Any]) -> bool:
    try:
        fields.encode(served.signature, [record])
    except Refused:
        return False
    return True


def _small(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The record as plain JSON, if it is a short one."""
    if record is None:
        return None
    try:
        text = orjson.dumps(record, default=_encoded)
    except TypeError:  # an integer of more than 64 bits
        return None
    small: dict[str, Any] | None = orjson.loads(text) if len(text) <= EXAMPLE_BYTES_MAX else None
    return small


def _encoded(value: Any) -> str:
    """Bytes as JSON has them. Raises TypeError for anything else, as orjson wants it."""
    return base64.b64encode(memoryview(value)).decode("ascii")


def _value(given: Input) -> Any:
    match given.type:
        case "number":
            low = given.min if given.min is not None else 1.0
            return max(low, 1.0) if given.max is None else min(max(low, 1.0), given.max)
        case "text" | "category":
            return _text(given)
        case "texts":
            return [_text(given)]
        case "record":
            return {name: 1.0 if kind == "number" else _text(given) for name, kind in given.columns.items()}
        case "image":
            return _PNG
        case "audio":
            return base64.b64encode(_silence()).decode("ascii")
        case "bytes":
            return base64.b64encode(_text(given).encode()).decode("ascii")
        case "tensor":
            return _nested(list(map(abs, given.shape)), _element(given.datatype))


def _text(given: Input) -> str:
    text = "a short text" if given.type in ("text", "texts") else "a"
    if given.bytes_min:
        text = (text * given.bytes_min)[: max(len(text), given.bytes_min)]
    return text if given.longest is None else text[: given.longest]


def _element(datatype: str) -> Any:
    return "a" if datatype == "BYTES" else True if datatype == "BOOL" else 1 if "INT" in datatype else 0.5


def _nested(shape: list[int], element: Any) -> Any:
    return [_nested(shape[1:], element) for _ in range(shape[0])] if shape else element


def _silence() -> bytes:
    """A tenth of a second of 8-bit sound in a WAVE file."""
    form = struct.pack("<HHIIHH", 1, 1, _RATE_HZ, _RATE_HZ, 1, 8)
    chunks = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", _SAMPLES)
    return b"RIFF" + struct.pack("<I", len(chunks) + _SAMPLES) + chunks + b"\x80" * _SAMPLES
