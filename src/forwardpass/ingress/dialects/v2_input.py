"""One input tensor of the Open Inference Protocol (V2), as a client sent it, to the column it is for."""

import re
import struct
from dataclasses import replace
from functools import cache
from itertools import chain
from math import nan, prod
from typing import Any

import msgspec

from forwardpass.core.errors import Code, show
from forwardpass.core.pipeline import ENCODED, Field, Input
from forwardpass.core.tensor import (
    DATATYPES,
    ITEM_BYTES,
    Buffer,
    Tensor,
    element_count,
    pack_bytes,
    pack_texts,
    unpack_bytes,
)
from forwardpass.ingress.dialects import number_lists
from forwardpass.ingress.strict_json import DECODE_ERRORS, check_nesting, explain
from forwardpass.pipeline.bounds import (
    CODES,
    FLOATS,
    At,
    check_bools,
    check_lengths,
    check_numbers,
    check_shape,
    check_texts,
    check_utf8,
    element_at,
    may_be_missing,
    pack_numbers,
    refuse,
)

Parameters = dict[str, str | int | float | bool]
NUMBERS = frozenset(CODES) - {"BOOL", "FP16"}
"""The datatypes a number input takes."""

ROWS_MAX = 65_536
"""Rows cost a client next to nothing and us some microseconds each; ``predict`` takes fewer (INSTANCES_MAX)."""

_OPENING = re.compile(rb"[\[ \t\n\r]*")


class InferInput(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """``data`` stays text until its datatype says how to read it; unset when the values are binary."""

    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parameters: Parameters | msgspec.UnsetType = msgspec.UNSET


def to_column(
    given: InferInput,
    where: str,
    values: msgspec.Raw | memoryview,
    field: Field,
    bounds: Input,
    leading: bool = True,
) -> Tensor:
    """The column ``field`` made of ``given``, whose values are JSON (Raw) or binary (memoryview). Raises Refused.

    Datatypes must be equal, with one exception: a number input takes any NUMBERS and makes FP64 of it, rounded to
    nearest. Inputs that are no tensors have the shape [rows] or [rows, 1]. Without a leading axis it is one row.
    """
    told = tuple(given.shape)  # what nested values are nested as
    shape = told if leading else (1, *told)
    count = prod(shape)
    if given.datatype != field.datatype or shape[1:] != field.shape or not shape or not 0 < shape[0] <= ROWS_MAX:
        count = _check(given, shape, field, where)  # seldom: a refusal, a free dimension, or a number that is cast
    place = f"{where}/data"
    if field.kind == "texts":
        _check(given, shape, field, where)
        return _text_lists(values, shape, told, place, field, bounds)
    if field.datatype == "BYTES":
        data = _texts(values, told, place, field, bounds)
        return Tensor("BYTES", shape if field.kind == "tensor" else shape[:1], data)
    packed: Buffer
    if isinstance(values, memoryview):
        packed = _sized(values, given.datatype, count, place)
    else:
        nullable = field.kind == "number" and may_be_missing(bounds) and given.datatype in FLOATS
        packed = _numbers(values, given.datatype, told, place, nullable)
    if field.kind == "tensor":
        return Tensor(field.datatype, shape, packed)
    numbers = struct.unpack(f"<{count}{CODES[given.datatype]}", packed)
    check_numbers(numbers, bounds, element_at(place, told))
    return Tensor("FP64", shape[:1], packed if given.datatype == "FP64" else struct.pack(f"<{count}d", *numbers))


def _check(given: InferInput, shape: tuple[int, ...], field: Field, where: str) -> int:
    """The number of elements. Raises Refused for what does not fit the field."""
    if given.datatype != "BYTES" and given.datatype not in ITEM_BYTES:
        allowed = ", ".join(DATATYPES)
        raise refuse(Code.DATATYPE_MISMATCH, f"{where}/datatype", f"'{show(given.datatype)}' is none of {allowed}")
    count = element_count(shape, f"{where}/shape")
    _check_rows(shape, field, f"{where}/shape")
    _check_datatype(given.datatype, field, where)
    return count


def _check_rows(shape: tuple[int, ...], field: Field, where: str) -> None:
    if not shape or shape[0] == 0:
        raise refuse(Code.SHAPE_MISMATCH, where, "the first dimension is the number of rows; at least 1 is needed")
    if shape[0] > ROWS_MAX:
        raise refuse(Code.BATCH_TOO_LARGE, where, f"at most {ROWS_MAX} rows are allowed, got {shape[0]}")
    if field.kind == "texts":
        check_shape(shape[1:], (-1,), where)
        if not shape[1]:
            raise refuse(
                Code.SHAPE_MISMATCH, where, "the second dimension is the number of texts; at least 1 is needed"
            )
    elif field.kind == "tensor" or shape[1:] != (1,):
        check_shape(shape[1:], field.shape, where)


def _check_datatype(datatype: str, field: Field, where: str) -> None:
    if datatype not in (NUMBERS if field.kind == "number" else (field.datatype,)):
        allowed = " or ".join(sorted(NUMBERS)) if field.kind == "number" else field.datatype
        text = f"input '{field.name}' takes {allowed}, got {datatype}"
        raise refuse(Code.DATATYPE_MISMATCH, f"{where}/datatype", text)


def _sized(raw: memoryview, datatype: str, count: int, where: str) -> memoryview:
    wanted = count * ITEM_BYTES[datatype]
    if len(raw) != wanted:
        text = f"the shape needs {wanted} bytes of {datatype}, got {len(raw)}"
        raise refuse(Code.BINARY_SIZE_MISMATCH, where, text)
    if datatype == "BOOL" and bytes(raw).translate(None, b"\0\1"):
        raise refuse(Code.OUT_OF_RANGE, where, "a BOOL is one byte, 0 or 1")
    return raw


def _elements(raw: memoryview, count: int, where: str) -> list[bytes | None]:
    try:
        elements = unpack_bytes(raw, count)
    except ValueError:
        elements = [None]
    if None in elements:  # the mark of a missing value is ours, and on the wire a length of 4 GiB
        text = f"the lengths of {count} BYTES elements do not add up to {len(raw)} bytes"
        raise refuse(Code.BINARY_SIZE_MISMATCH, where, text)
    return elements


def _texts(
    values: msgspec.Raw | memoryview, shape: tuple[int, ...], where: str, field: Field, bounds: Input
) -> bytes | memoryview:
    if isinstance(values, memoryview):
        at = element_at(where, shape)
        elements = _elements(values, prod(shape), where)
        check_lengths(elements, bounds, at)
        if field.kind not in ENCODED:
            check_utf8(elements, at)
        return values
    texts, at = _values(values, "BYTES", shape, where, may_be_missing(bounds))
    elements = [None if text is None else text.encode() for text in texts]
    check_lengths(elements, bounds, at)
    return pack_bytes(elements)


def _text_lists(
    values: msgspec.Raw | memoryview,
    shape: tuple[int, ...],
    told: tuple[int, ...],
    where: str,
    field: Field,
    bounds: Input,
) -> Tensor:
    """Rows of equally many texts, each row one element as it travels inside."""
    framed = _texts(values, told, where, field, replace(bounds, type="text"))
    elements = unpack_bytes(framed, prod(shape))
    packed = []
    for start in range(0, len(elements), shape[1]):
        row = [element or b"" for element in elements[start : start + shape[1]]]
        check_texts(row, bounds, f"{where}/{start // shape[1]}")
        packed.append(pack_texts([element.decode() for element in row]))
    return Tensor("BYTES", shape[:1], pack_bytes(packed))


def _numbers(data: msgspec.Raw, datatype: str, shape: tuple[int, ...], where: str, nullable: bool) -> Buffer:
    if datatype == "BF16":
        raise refuse(Code.DATATYPE_MISMATCH, where, "BF16 has no form in JSON; send it as binary data")
    text = memoryview(data)
    if len(text) >= number_lists.LONG_BYTES_MIN:
        packed = number_lists.read(text, datatype, shape)
        if packed is not None:
            return packed
    values, at = _values(data, datatype, shape, where, nullable)
    if datatype == "BOOL":
        check_bools(values, at)
    if nullable:
        values = [nan if value is None else value for value in values]
    return pack_numbers(datatype, values, at)


def _values(
    data: msgspec.Raw, datatype: str, shape: tuple[int, ...], where: str, nullable: bool
) -> tuple[list[Any], At]:
    """The elements of flat data, or of data nested exactly as the shape says, and how to name one."""
    kind = datatype if datatype in ("BYTES", "BOOL") else "FP" if datatype in FLOATS else "INT"
    count = prod(shape)
    form: tuple[int, ...] = (count,)
    try:
        values: list[Any] = _decoder(kind, 1, nullable).decode(data)
    except DECODE_ERRORS as error:
        opening = _OPENING.match(data)
        depth = 0 if opening is None else opening[0].count(b"[")
        if depth < 2:
            raise explain(error, {}, where) from None
        values, form = _nested(data, kind, depth, shape, where, nullable), shape
    if len(values) != count:
        text = f"the shape has {count} elements, the data {len(values)}"
        raise refuse(Code.SHAPE_MISMATCH, where, text)
    return values, element_at(where, form)


def _nested(data: msgspec.Raw, kind: str, depth: int, shape: tuple[int, ...], where: str, nullable: bool) -> list[Any]:
    if depth != len(shape):
        text = f"lists are nested {depth} deep; the shape has {len(shape)} dimensions"
        raise refuse(Code.SHAPE_MISMATCH, where, text)
    check_nesting(bytes(data))  # before more lists than are allowed are made of it
    try:
        level: list[Any] = [_decoder(kind, depth, nullable).decode(data)]
    except DECODE_ERRORS as error:
        raise explain(error, {}, where) from None
    for size in shape:
        if wrong := set(map(len, level)) - {size}:
            raise refuse(Code.SHAPE_MISMATCH, where, f"a list has {min(wrong)} elements where the shape says {size}")
        level = list(chain.from_iterable(level))
    return level


@cache
def _decoder(kind: str, depth: int, nullable: bool) -> "msgspec.json.Decoder[list[Any]]":
    """Four kinds, up to RANK_MAX levels, with or without null: a small closed set."""
    item: Any = {"BYTES": str, "BOOL": bool | int, "FP": float, "INT": int}[kind]
    nested: Any = item | None if nullable else item
    for _ in range(depth):
        nested = list[nested]
    return msgspec.json.Decoder(nested)
