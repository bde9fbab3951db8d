"""What the values of one column may be: the checks and the packing that every way in shares.

Each check takes ``at``, which names a row's value as a JSON pointer and is called only to explain a refusal.
"""

import difflib
import math
import struct
from collections.abc import Callable, Sequence

from forwardpass.core.errors import Code, Refused, show
from forwardpass.core.pipeline import Input

At = Callable[[int], str]

CODES: dict[str, str] = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i",
    "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
"""The struct code of each datatype; BF16 has none."""

FLOATS = frozenset({"FP16", "FP32", "FP64", "BF16"})


def may_be_missing(given: Input) -> bool:
    """Whether a value may be left out; a record's always may: what becomes of it is decided by the steps."""
    return given.missing or given.type == "record"


def element_at(where: str, shape: Sequence[int]) -> At:
    """Names the elements, counted row by row, of nested lists of this shape."""

    def at(index: int) -> str:
        steps: list[str] = []
        for size in reversed(shape):
            index, step = divmod(index, size)
            steps.append(f"/{step}")
        return where + "".join(reversed(steps))

    return at


def refuse(code: Code, where: str, text: str) -> Refused:
    return Refused(code, f"{where}: {text}", field=where)


def unknown_field(name: str, allowed: Sequence[str], place: str = "") -> Refused:
    """A refusal that says which names ``place`` takes and which of them was probably meant."""
    close = difflib.get_close_matches(name[:64], allowed, 1)
    meant = f"; did you mean '{close[0]}'?" if close else ""
    where = f"{place}/{show(name)}"
    listed = ", ".join(allowed[:16]) + (", …" if len(allowed) > 16 else "")
    return Refused(Code.UNKNOWN_FIELD, f"{where} is unknown{meant} (allowed: {listed})", field=where)


def pack_numbers(datatype: str, values: Sequence[float], at: At) -> bytes:
    """Little-endian elements, rounded to nearest; values of the right kind that do not fit are out_of_range."""
    code = CODES.get(datatype)
    if code is None:
        raise refuse(Code.DATATYPE_MISMATCH, at(0), f"{datatype} has no form as text; send it as binary data")
    try:
        return struct.pack(f"<{len(values)}{code}", *values)
    except (struct.error, OverflowError):
        index = next(index for index, value in enumerate(values) if not _fits(code, value))
        raise refuse(Code.OUT_OF_RANGE, at(index), f"{show(values[index])} does not fit {datatype}") from None


def check_bools(values: Sequence[int], at: At) -> None:
    for index, value in enumerate(values):
        if value not in (0, 1):
            raise refuse(Code.OUT_OF_RANGE, at(index), f"{show(value)} is neither true, false, 0 nor 1")


def check_numbers(values: Sequence[float], given: Input, at: At) -> None:
    """Refuse a number beyond the input's bounds, or a missing one (NaN) where there must be one."""
    present = values
    if any(map(math.isnan, values)):
        if not may_be_missing(given):
            row = next(row for row, value in enumerate(values) if math.isnan(value))
            raise refuse(Code.OUT_OF_RANGE, at(row), "expected a number, got NaN")
        present = [value for value in values if not math.isnan(value)]
    if not present:
        return
    if given.min is not None and min(present) < given.min:
        row = next(row for row, value in enumerate(values) if value < given.min)
        raise refuse(Code.OUT_OF_RANGE, at(row), f"{show(values[row])} is less than {given.min:g}, the minimum")
    if given.max is not None and max(present) > given.max:
        row = next(row for row, value in enumerate(values) if value > given.max)
        raise refuse(Code.OUT_OF_RANGE, at(row), f"{show(values[row])} is more than {given.max:g}, the maximum")


def check_lengths(elements: Sequence[bytes | None], given: Input, at: At) -> None:
    """Refuse an element longer or shorter than the input allows, or a missing one where there must be one."""
    optional, shortest, longest = may_be_missing(given), given.bytes_min, given.longest
    for row, element in enumerate(elements):
        if element is None:
            if not optional:
                raise refuse(Code.WRONG_TYPE, at(row), "a value is required, got null")
        elif longest is not None and len(element) > longest:
            raise refuse(Code.INPUT_TOO_LARGE, at(row), f"has {len(element)} bytes; at most {longest} are allowed")
        elif shortest is not None and len(element) < shortest:
            raise refuse(Code.OUT_OF_RANGE, at(row), f"has {len(element)} bytes; at least {shortest} are needed")


def check_texts(elements: Sequence[bytes], given: Input, where: str) -> None:
    """Refuse a list of no text or of too many, or one with a text out of bounds."""
    if not elements:
        raise refuse(Code.OUT_OF_RANGE, where, "the list is empty; at least 1 text is needed")
    if given.count_max is not None and len(elements) > given.count_max:
        raise refuse(Code.INPUT_TOO_LARGE, where, f"has {len(elements)} texts; at most {given.count_max} are allowed")
    check_lengths(elements, given, element_at(where, (len(elements),)))


def check_utf8(elements: Sequence[bytes | None], at: At) -> None:
    for row, element in enumerate(elements):
        try:
            if element is not None:
                element.decode()
        except UnicodeDecodeError as error:
            raise refuse(Code.INVALID_UTF8, at(row), f"is not UTF-8 at byte {error.start}") from None


def check_shape(shape: Sequence[int], wanted: Sequence[int], where: str) -> None:
    """Refuse a row shape that is not the wanted one, in which -1 is any size."""
    if shape == wanted:
        return
    if len(shape) != len(wanted) or any(need not in (size, -1) for size, need in zip(shape, wanted, strict=True)):
        raise refuse(Code.SHAPE_MISMATCH, where, f"expected rows of shape {list(wanted)}, got {list(shape)}")


def _fits(code: str, value: float) -> bool:
    try:
        struct.pack(f"<{code}", value)
    except (struct.error, OverflowError):
        return False
    return True
