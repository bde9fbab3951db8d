"""A signature as JSON Schema: records as the plain dialect takes them, outputs as it gives them.

What JSON Schema has no word for, a length in bytes of UTF-8 above all, is in the descriptions.
"""

from collections.abc import Sequence
from math import isfinite, prod

from forwardpass.core.pipeline import ENCODED, Field, Input, Signature
from forwardpass.ingress.openapi.served import Schema, list_of, object_of
from forwardpass.pipeline.bounds import FLOATS

_FLOAT_MAX = {"FP16": 65504.0, "FP32": 3.4028234663852886e38}
_MEDIA = {"image": "image/*", "audio": "audio/*", "bytes": "application/octet-stream"}
_WHAT = {"image": "an image file", "audio": "a sound file", "bytes": "bytes"}


def record(signature: Signature) -> Schema:
    """One record: every input by its name."""
    optional = tuple(given.name for given in signature.inputs if given.missing)
    return object_of({given.name: input_value(given) for given in signature.inputs}, optional)


def input_value(given: Input) -> Schema:
    """The value of one input."""
    match given.type:
        case "number":
            return _number(given, given.missing)
        case "text" | "category":
            return _text(given, given.missing)
        case "texts":
            count = {"minItems": 1} | ({} if given.count_max is None else {"maxItems": given.count_max})
            return {**list_of(_text(given, False), **count), "description": "a list of texts"}
        case "record":
            columns = {
                name: _number(given, True) if kind == "number" else _text(given, True)
                for name, kind in given.columns.items()
            }
            return {**object_of(columns, tuple(columns)), "description": "columns; one left out is a missing value"}
        case "tensor":
            return tensor(given.datatype, given.shape)
        case _:
            return _encoded(given.type, given.bytes_max, given.bytes_min)


def outputs(signature: Signature) -> Schema:
    """The outputs of one row."""
    return object_of({field.name: _output(field) for field in signature.outputs})


def tensor(datatype: str, shape: Sequence[int], *, answered: bool = False) -> Schema:
    """One row of a tensor as nested lists; where no size is free, a request may give one flat list too."""
    item = _element(datatype, answered)
    nested = item
    for size in reversed(shape):
        nested = list_of(nested, **({} if size < 0 else {"minItems": size, "maxItems": size}))
    described = {"description": _tensor_text(datatype, shape)}
    if answered or len(shape) < 2 or -1 in shape:
        return {**nested, **described}
    count = prod(shape)
    return {"anyOf": [nested, list_of(item, minItems=count, maxItems=count)], **described}


def integer_bounds(datatype: str) -> Schema:
    """The least and the greatest value of an integer datatype."""
    bits = int(datatype.lstrip("UINT"))
    low, high = (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {"minimum": low, "maximum": high}


def _tensor_text(datatype: str, shape: Sequence[int]) -> str:
    if not shape:
        return f"one {datatype}"
    free = ", where -1 is any size" if -1 in shape else ""
    return f"{datatype} of shape {list(shape)}{free}"


def _element(datatype: str, answered: bool) -> Schema:
    if datatype == "BYTES":
        return {"type": ["string", "null"]} if answered else {"type": "string"}
    if datatype == "BOOL":
        return {"type": "boolean"} if answered else {"type": ["boolean", "integer"], "minimum": 0, "maximum": 1}
    if datatype in FLOATS:
        most = _FLOAT_MAX.get(datatype)
        if answered:
            return {"type": ["number", "null"]}  # NaN and infinities
        return {"type": "number", **({} if most is None else {"minimum": -most, "maximum": most})}
    return {"type": "integer", **integer_bounds(datatype)}


def _output(field: Field) -> Schema:
    """Null stands for a missing value, which rules and steps may make of any that is no number."""
    match field.kind:
        case "text" | "category":
            return {"type": ["string", "null"]}
        case "texts":
            return {"type": ["array", "null"], "items": {"type": "string"}}
        case "json":
            return {"description": "any JSON value"}
        case kind if kind in ENCODED:
            schema = _encoded(field.kind, None, None)
            return {**schema, "type": ["string", "null"]}
        case _:
            return tensor(field.datatype, field.shape, answered=True)


def _number(given: Input, nullable: bool) -> Schema:
    schema: Schema = {"type": ["number", "null"] if nullable else "number"}
    if given.min is not None and isfinite(given.min):  # JSON has no infinity, and it bounds nothing
        schema["minimum"] = given.min
    if given.max is not None and isfinite(given.max):
        schema["maximum"] = given.max
    return schema


def _text(given: Input, nullable: bool) -> Schema:
    schema: Schema = {"type": ["string", "null"] if nullable else "string"}
    bounds: list[str] = []
    if given.longest is not None:
        schema["maxLength"] = given.longest
        bounds.append(f"at most {given.longest}")
    if given.bytes_min:
        schema["minLength"] = -(-given.bytes_min // 4)  # a character has four bytes at most
        bounds.append(f"at least {given.bytes_min}")
    return {**schema, "description": f"{' and '.join(bounds)} bytes of UTF-8"} if bounds else schema


def _encoded(kind: str, bytes_max: int | None, bytes_min: int | None) -> Schema:
    schema: Schema = {"type": "string", "contentEncoding": "base64", "contentMediaType": _MEDIA[kind]}
    text = f"{_WHAT[kind]} in base64"
    if bytes_max is not None:
        schema["maxLength"] = 4 * -(-bytes_max // 3)
        text += f", at most {bytes_max} bytes"
    if bytes_min:
        schema["minLength"] = 4 * -(-bytes_min // 3)
    return {**schema, "description": text}
