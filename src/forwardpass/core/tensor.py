"""A tensor as bytes: what dialects decode to, what crosses to a worker, what comes back.

Names of datatypes are those of the Open Inference Protocol (V2). Data is little-endian and row-major. BYTES elements
are framed as on the V2 wire, a 4-byte little-endian length and then the bytes; inside forwardpass (never on a client's
wire) the length ``MISSING`` marks a missing value. Missing numbers are NaN in a floating datatype.
"""

import math
import struct
from collections.abc import Iterable, Sequence

import msgspec

from forwardpass.core.errors import Code, Refused

ITEM_BYTES: dict[str, int] = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
    "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8,
}  # fmt: skip
"""Bytes per element; BYTES is not here because its elements have no fixed size."""

NUMPY_NAMES: dict[str, str] = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
}  # fmt: skip
"""BF16 has no numpy type of its own: it travels as raw 2-byte elements."""

DATATYPES = (*ITEM_BYTES, "BYTES")
RANK_MAX = 16
ELEMENTS_MAX = 2**40
MISSING = 0xFFFFFFFF
_LENGTH = struct.Struct("<I")

Buffer = bytes | bytearray | memoryview


class Tensor(msgspec.Struct):
    """``data`` holds exactly ``prod(shape)`` elements of ``datatype``; the first axis is the rows.

    Rows with shapes of their own have these in ``shapes``; ``shape`` then says -1 where they may differ.
    """

    datatype: str
    shape: tuple[int, ...]
    data: Buffer
    shapes: Sequence[tuple[int, ...]] = ()

    @property
    def bytes_total(self) -> int:
        return self.data.nbytes if isinstance(self.data, memoryview) else len(self.data)


def element_count(shape: Sequence[int], field: str) -> int:
    """Product of a shape a client sent, checked before anything is allocated (FAULTS R7)."""
    if len(shape) > RANK_MAX:
        raise Refused(
            Code.SHAPE_OVERFLOW,
            f"{field}: shape has {len(shape)} dimensions; at most {RANK_MAX} are allowed",
            field=field,
        )
    for size in shape:
        if type(size) is not int or size < 0:
            raise Refused(Code.SHAPE_MISMATCH, f"{field}: dimensions must be integers of 0 or more", field=field)
    count = math.prod(shape)
    if count > ELEMENTS_MAX:
        raise Refused(
            Code.SHAPE_OVERFLOW,
            f"{field}: shape multiplies to {count} elements; at most {ELEMENTS_MAX} are allowed",
            field=field,
        )
    return count


def pack_bytes(elements: Iterable[bytes | None]) -> bytes:
    """Frame BYTES elements; None becomes a missing value."""
    parts: list[bytes] = []
    for element in elements:
        if element is None:
            parts.append(_LENGTH.pack(MISSING))
        else:
            parts.append(_LENGTH.pack(len(element)))
            parts.append(element)
    return b"".join(parts)


def unpack_bytes(data: Buffer, count: int) -> list[bytes | None]:
    """The ``count`` framed elements of ``data``; ValueError when the lengths do not add up to it exactly."""
    view = bytes(data)
    elements: list[bytes | None] = []
    position, end = 0, len(view)
    for _ in range(count):
        if position + 4 > end:
            raise ValueError("a length prefix is cut off")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if length == MISSING:
            elements.append(None)
            continue
        if length > end - position:
            raise ValueError("an element is longer than the data")
        elements.append(view[position : position + length])
        position += length
    if position != end:
        raise ValueError("bytes are left after the last element")
    return elements


def pack_texts(texts: Sequence[str]) -> bytes:
    """A list of text as one BYTES element, as it travels inside forwardpass."""
    return msgspec.msgpack.encode(list(texts))


def unpack_texts(element: Buffer) -> list[str]:
    """What ``pack_texts`` packed."""
    return msgspec.msgpack.decode(element, type=list[str])


def byte_offsets(data: Buffer, count: int) -> list[int]:
    """Where each of ``count`` framed elements starts, and the end; ValueError as in unpack_bytes."""
    offsets = [0]
    position, end = 0, len(data)
    for _ in range(count):
        if position + 4 > end:
            raise ValueError("a length prefix is cut off")
        (length,) = _LENGTH.unpack_from(data, position)
        position += 4 if length == MISSING else 4 + length
        if position > end:
            raise ValueError("an element is longer than the data")
        offsets.append(position)
    if position != end:
        raise ValueError("bytes are left after the last element")
    return offsets
