"""Long lists of numbers in a JSON text, read at the speed of simdjson into packed elements.

Only for what is right: each function leaves alone what it is not sure of, and the exact and slower way then reads the
same text from its start and says what is wrong. So nothing here explains, and nothing is accepted that is refused there.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain
from math import prod
from operator import mul
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONG_BYTES_MIN = 32 * 1024  # below, a plain decoder is as quick
PIECE_BYTES = 256 * 1024  # simdjson keeps Python's lock while it parses one, and its tables stay in the cache
EMPTY = b"[]"
_DATA = b'"data"'
_OPENS = re.compile(rb'"data"[ \t\n\r]*:[ \t\n\r]*(?=\[)')
_COMMA, _CLOSES, _OPENING = re.compile(b","), re.compile(b"]"), re.compile(rb"[\[ \t\n\r]*")
_BIT_6 = np.uint64(0x4040_4040_4040_4040)
_READ_AS = {
    "FP16": ("d", "<f2"), "FP32": ("d", "<f4"), "FP64": ("d", "<f8"), "INT8": ("i", "<i1"), "INT16": ("i", "<i2"),
    "INT32": ("i", "<i4"), "INT64": ("i", "<i8"), "UINT8": ("i", "<u1"), "UINT16": ("i", "<u2"),
    "UINT32": ("i", "<u4"), "UINT64": ("u", "<u8"),
}  # fmt: skip
"""What simdjson reads a datatype as, a double or an integer of 64 bits, and what is made of that."""
_WIDE = {"d": "=f8", "i": "=i8", "u": "=u8"}
_NOT_READ = (ValueError, TypeError, RuntimeError)
"""What simdjson raises for what is no JSON, for what is no number, and for numbers and nesting beyond its own bounds."""


def cut_out(text: bytes) -> tuple[bytes, list[memoryview]]:
    """The text with EMPTY for each ``"data"`` that looks like a list of numbers, and these lists unread, in order.

    Such a list goes from its bracket to the last one before the next quote or brace. If it is valid JSON, and what is
    left of the text is so with EMPTY where a "data" belongs, then so is the whole text.
    """
    kept: list[bytes] = []
    lists: list[memoryview] = []
    end = 0
    found = text.find(_DATA)
    while found >= 0:
        opens = _OPENS.match(text, found)
        found += len(_DATA)
        closes = -1 if opens is None else text.rfind(b"]", opens.end(), _stop(text, opens.end()))
        if opens is not None and closes >= 0:
            kept += (text[end : opens.end()], EMPTY)
            found = end = closes + 1
            lists.append(memoryview(text)[opens.end() : end])
        found = text.find(_DATA, found)
    return b"".join((*kept, text[end:])), lists


def _stop(text: bytes, start: int) -> int:
    """Where a list of numbers that starts there is over at the latest. Looks no further than the next quote."""
    quote = text.find(b'"', start)
    stop = len(text) if quote < 0 else quote
    brace = text.find(b"}", start, stop)
    return stop if brace < 0 else brace


def read(data: memoryview, datatype: str, shape: Sequence[int], piece_bytes: int = PIECE_BYTES) -> memoryview | None:
    """The packed elements of a list of numbers, flat or nested just as the shape says, each rounded to nearest.

    None for a list of anything else, of more or fewer numbers or of one that does not fit the datatype.
    """
    read_as, simdjson, count = _READ_AS.get(datatype), _simdjson(), prod(shape)
    if read_as is None or simdjson is None or not 0 < 2 * count < len(data):
        return None
    brackets = _brackets(data)
    nested_as = next((form for form in ((count,), shape) if _are_of(brackets, form)), None)
    if nested_as is None:
        return None
    (type, item), parser, filled = read_as, simdjson.Parser(), 0
    packed = np.empty(count, item)
    try:
        for piece in _pieces(data, len(nested_as), piece_bytes):
            values = _numbers(parser.parse(piece), type, nested_as)
            if values is None or not _fill(packed[filled:], values):
                return None
            filled += len(values)
    except _NOT_READ:
        return None
    if filled != count:
        return None
    packed.setflags(write=False)
    return packed.view(np.uint8).data


def _brackets(data: memoryview) -> bytes:
    """All brackets of a list of numbers; of anything else, any bytes."""
    text = np.frombuffer(data, np.uint8)
    words = text[: len(text) // 8 * 8].view(np.uint64)
    # Of all that a number is made of only an exponent's letter has this bit, which brackets have too.
    found = np.concatenate((words[(words & _BIT_6) != 0].view(np.uint8), text[len(words) * 8 :]))
    return found[found >= ord("[")].tobytes().translate(None, b"e")


def _are_of(brackets: bytes, shape: Sequence[int]) -> bool:
    """Whether these are the brackets of lists nested as the shape says."""
    if len(brackets) != 2 * sum(accumulate(shape[:-1], mul, initial=1)):
        return False
    expected = EMPTY
    for size in reversed(shape[:-1]):
        expected = b"[%b]" % (expected * size)
    return brackets == expected


def _pieces(data: memoryview, depth: int, piece_bytes: int) -> Iterator[bytes]:
    """Lists ``depth`` deep that are valid JSON just when the whole is: its text between some commas, each made whole.

    Nested lists are cut behind a closing bracket only, so that every innermost list stays in one piece.
    """
    start, opened = 0, 0
    while True:
        closes = (_CLOSES if depth > 1 else _COMMA).search(data, start + piece_bytes)
        comma = closes and _COMMA.search(data, closes.start())
        if closes is None or comma is None:
            yield b"[" * opened + data[start:]
            return
        end = comma.start()
        opening = _OPENING.match(data, end + 1)
        assert opening is not None, "it matches anywhere"
        still_open = depth - opening[0].count(b"[")
        yield b"".join((b"[" * opened, data[start:end], b"]" * still_open))
        start, opened = end + 1, still_open


def _numbers(parsed: Any, type: str, shape: Sequence[int]) -> NDArray[Any] | None:
    """What a piece holds: rows of the shape's last size, and at least one. TypeError for what is no number."""
    rows: Iterable[Any] = (parsed,)
    for _ in shape[1:]:
        rows = chain.from_iterable(rows)
    if len(shape) > 1 and any(len(row) != shape[-1] for row in rows):
        return None
    values = np.frombuffer(parsed.as_buffer(of_type=type), _WIDE[type])
    return values if len(values) else None  # a comma too many makes a piece without numbers


def _fill(packed: NDArray[Any], values: NDArray[Any]) -> bool:
    """Put the values at the start of ``packed``; whether each is the number it was, or a float's nearest."""
    target = packed[: len(values)]
    with np.errstate(over="ignore"):  # infinity is looked for
        target[:] = values
    return bool(np.isfinite(target).all() if packed.dtype.kind == "f" else (target == values).all())


@cache
def _simdjson() -> ModuleType | None:
    """None where there is no build of it: all is then read the slower way."""
    try:
        import simdjson
    except (ImportError, RuntimeError):
        return None
    return simdjson
