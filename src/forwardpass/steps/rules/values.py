"""What a rule sees of a field, and what it may make of an output: columns to plain values and back."""

import math
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from forwardpass.core.pipeline import ENCODED, Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.steps.kind import FLOATS, is_image
from forwardpass.steps.options import Wrong
from forwardpass.steps.protocol import Column

ELEMENTS_MAX = 4096  # of one row's tensor as a list
UNKNOWN: Any = object()
"""The sample of a field whose values may be anything."""


def can_be_read(field: Field, *, padded: bool) -> bool:
    """Whether an expression may name it. Not while it may hold padding: that would depend on the other rows."""
    if field.datatype == "BYTES":
        return field.kind not in ENCODED
    if field.datatype not in NUMPY_NAMES or is_image(field):
        return False
    if field.kind != "ragged" and padded and -1 in field.shape:
        return False
    return prod(abs(size) for size in field.shape) <= ELEMENTS_MAX


def can_be_set(field: Field) -> bool:
    """Whether a rule can give it a value: one number, truth or text, a list of texts, any JSON."""
    if field.kind in ("json", "texts"):
        return True
    known = field.datatype == "BYTES" or field.datatype in NUMPY_NAMES
    return known and not field.shape and field.kind not in ("ragged", *ENCODED)


def can_be_missing(field: Field) -> bool:
    """Whether a rule can drop it: texts and JSON can be null, and in JSON a floating number that is none."""
    return field.datatype == "BYTES" or (field.datatype in FLOATS and field.kind != "ragged")


def sample(field: Field) -> Any:
    """A value as the field has them, to try an expression with, or UNKNOWN."""
    if field.kind == "json":
        return UNKNOWN
    if field.kind == "texts":
        return ["a"]
    one: Any = 0.5 if field.datatype in FLOATS else 1
    if field.datatype in ("BYTES", "BOOL"):
        one = "a" if field.datatype == "BYTES" else True
    return np.full([abs(size) for size in field.shape], one, dtype=object).tolist()


def plain_values(field: Field, column: Column, too_large: Callable[[int], None]) -> list[Any]:
    """Per row what an expression sees: a float as JSON shows it (FP32 0.6 is 0.6), what is missing or NaN as None.

    Rows with too many elements are told to ``too_large``.
    """
    if field.kind == "ragged":
        return [_of_one(value, row, too_large) for row, value in enumerate(column)]
    if column.dtype == object:
        return list(column.tolist())
    if prod(column.shape[1:]) > ELEMENTS_MAX:
        for row in range(len(column)):
            too_large(row)
        return [None] * len(column)
    return _numbers(column)


def _of_one(value: NDArray[Any], row: int, too_large: Callable[[int], None]) -> list[Any] | None:
    if value.size > ELEMENTS_MAX:
        too_large(row)
        return None
    return _numbers(value)


def _numbers(array: NDArray[Any]) -> list[Any]:
    """A list nested as the array's shape says. Floats through their shortest decimal form, which keeps their order."""
    if array.dtype.kind != "f":
        return list(array.tolist())
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    values: list[Any] = orjson.loads(orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY))
    if None not in values if array.ndim == 1 else np.isfinite(array).all():
        return values
    elements = np.empty(array.size, dtype=object)
    elements[:] = [None if math.isnan(each) else float(str(each)) for each in array.ravel()]
    return list(elements.reshape(array.shape).tolist())


def fitted(field: Field, value: Any) -> Any:
    """The value as the output's column holds it. Raises Wrong when it is of another kind, without showing it."""
    if field.kind == "json":
        if not _is_json(value):
            raise Wrong("no JSON value", "text, true or false, a finite number, null, or lists and tables of these")
        return value
    if field.kind == "texts":
        if type(value) is list and all(type(each) is str for each in value):
            return value
        raise Wrong("no list of texts", "a list of texts")
    if field.datatype == "BYTES":
        if type(value) is str or value is None:
            return value
        raise Wrong("no text", "a text")
    if field.datatype == "BOOL":
        if type(value) is bool:
            return value
        raise Wrong("neither true nor false", "true or false")
    return _number(field, value)


def is_number_for(field: Field, value: Any) -> bool:
    """Whether the value is of the right kind for a numeric output, however large."""
    if field.datatype in ("BYTES", "BOOL"):
        return False
    return type(value) is int or (type(value) is float and field.datatype in FLOATS)


def _number(field: Field, value: Any) -> Any:
    dtype = np.dtype(NUMPY_NAMES[field.datatype])
    if field.datatype in FLOATS:
        if is_number_for(field, value) and abs(value) <= float(np.finfo(dtype).max):
            return dtype.type(value)
        raise Wrong("no such number", f"a finite number of {field.datatype}")
    bounds = np.iinfo(dtype)
    if is_number_for(field, value) and bounds.min <= value <= bounds.max:
        return dtype.type(value)
    raise Wrong("no such integer", f"an integer from {bounds.min} to {bounds.max}")


def _is_json(value: Any) -> bool:
    match value:
        case None | bool() | str() | int():
            return True
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_is_json, value))
        case dict():
            return all(type(key) is str for key in value) and all(map(_is_json, value.values()))
        case _:
            return False
