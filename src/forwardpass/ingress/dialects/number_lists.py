"""Long lists of numbers in a JSON text, read at the speed of simdjson into packed elements.

Only for what is right: each function answers None for all it is not sure of, and the exact and slower way then reads
the same text from its start and says what is wrong. So nothing here explains, and nothing is accepted here alone.
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, chain
from math import prod
from operator import mul
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONG_BYTES_MIN = 1024  # below, a plain decoder is as quick
EMPTY = b"[]"
_PIECE_BYTES = 128 * 1024  # simdjson keeps Python's lock while it parses one, and its tables stay in the cache
_DATA = b'"data"'
_OPENS = re.compile(rb'"data"[ \t\n\r]*:[ \t\n\r]*(?=\[)')
_READ_AS: dict[str, tuple[str, str]] = {
    "FP16": ("d", "<f2"), "FP32": ("d", "<f4"), "FP64": ("d", "<f8"), "INT8": ("i", "<i1"), "INT16": ("i", "<i2"),
    "INT32": ("i", "<i4"), "INT64": ("i", "<i8"), "UINT8": ("i", "<u1"), "UINT16": ("i", "<u2"),
    "UINT32": ("i", "<u4"), "UINT64": ("u", "<u8"),
}  # fmt: skip
"""What simdjson reads a datatype as, a double or an integer of 64 bits, and what is made of that."""
_NOT_READ = (ValueError, TypeError, RuntimeError)
"""What simdjson raises for what is no JSON, for what is no number, and for numbers and nesting beyond its own bounds."""


def cut_out(text: bytes) -> tuple[bytes, list[bytes]]:
    """The text with EMPTY for each ``"data"`` that looks like a list of numbers, and these lists unread, in order.

    A list is all from its bracket to the last one before the next string or object ends, begins or is named. When it
    is valid JSON and the shortened text is, with EMPTY where "data" belongs, then so is the whole text.
    """
    kept: list[bytes] = []
    lists: list[bytes] = []
    end = 0
    found = text.find(_DATA)
    while found >= 0:
        opens = _OPENS.match(text, found)
        found += len(_DATA)
        if opens is not None:
            start = opens.end()
            closes = text.rfind(b"]", start, _stop(text, start))
            if closes >= 0:
                kept += (text[end:start], EMPTY)
                end = closes + 1
                lists.append(text[start:end])
                found = end
        found = text.find(_DATA, found)
    return (b"".join((*kept, text[end:])), lists) if lists else (text, lists)


def _stop(text: bytes, start: int) -> int:
    """Where a list of numbers that starts there is over at the latest. Looks no further than the next quote."""
    quote = text.find(b'"', start)
    stop = len(text) if quote < 0 else quote
    brace = text.find(b"}", start, stop)
    return stop if brace < 0 else brace


def read(data: bytes, datatype: str, shape: Sequence[int]) -> memoryview | None:
    """The packed elements of a list of numbers, flat or nested just as the shape says, each rounded to nearest.

    None for a list of anything else, of more or fewer numbers or of one that does not fit the datatype.
    """
    read_as, simdjson, count = _READ_AS.get(datatype), _simdjson(), prod(shape)
    if read_as is None or simdjson is None or not 0 < 2 * count < len(data) or data[:1] != b"[" or data[-1:] != b"]":
        return None
    type, item = read_as
    packed = np.empty(count, item)
    try:
        with np.errstate(over="ignore"):  # infinity is looked for
            if data.find(b"[", 1) < 0:
                filled = _read_flat(simdjson.Parser(), data, type, packed)
            else:
                filled = _read_nested(simdjson.Parser(), data, type, packed, shape)
    except _NOT_READ:
        return None
    if not filled:
        return None
    packed.setflags(write=False)
    return packed.view(np.uint8).data


def _read_flat(parser: Any, data: bytes, type: str, packed: NDArray[Any]) -> bool:
    """Whether it holds as many numbers as ``packed`` and all fit it; read a piece at a time, each a list of its own."""
    start, filled = 1, 0
    comma = 0
    while comma >= 0:
        comma = data.find(b",", start + _PIECE_BYTES)
        piece = b"[%b]" % data[start : comma if comma >= 0 else -1]
        values = np.frombuffer(parser.parse(piece).as_buffer(of_type=type), _dtype(type))
        if not len(values) or filled + len(values) > len(packed) or not _fill(packed[filled:], values):
            return False  # without numbers: a comma too many
        filled += len(values)
        start = comma + 1
    return filled == len(packed)


def _read_nested(parser: Any, data: bytes, type: str, packed: NDArray[Any], shape: Sequence[int]) -> bool:
    """Whether the lists are nested as the shape says, and all their numbers fit ``packed``."""
    lists = 1 + sum(accumulate(shape[:-1], mul))
    if np.count_nonzero(np.frombuffer(data, np.uint8) == ord("[")) != lists:
        return False
    whole = parser.parse(data)
    level = [whole]
    for size in shape[:-1]:
        if any(len(inner) != size for inner in level):
            return False
        level = list(chain.from_iterable(level))
    if any(len(inner) != shape[-1] for inner in level):
        return False  # ``lists`` of them were seen, so what these hold are numbers
    values = np.frombuffer(whole.as_buffer(of_type=type), _dtype(type))
    return len(values) == len(packed) and _fill(packed, values)


def _fill(packed: NDArray[Any], values: NDArray[Any]) -> bool:
    """Put the values at the start of ``packed``; whether each is the number it was, or a float's nearest."""
    target = packed[: len(values)]
    target[:] = values
    return bool(np.isfinite(target).all() if packed.dtype.kind == "f" else (target == values).all())


def _dtype(type: str) -> str:
    return {"d": "=f8", "i": "=i8", "u": "=u8"}[type]


@cache
def _simdjson() -> ModuleType | None:
    """None where there is no build of it: all is then read the slower way."""
    try:
        import simdjson
    except (ImportError, RuntimeError):
        return None
    return simdjson
