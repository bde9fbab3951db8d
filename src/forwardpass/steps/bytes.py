"""Steps on raw bytes: ``byte_windows``."""

from dataclasses import dataclass

import numpy as np

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import ENCODED, Field
from forwardpass.steps.kind import Fit, Kind, missing, pick
from forwardpass.steps.options import Trouble, field_name, flag, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

SIZE_MAX = 2**24
_RAW = Fit("raw bytes", lambda field: field.kind in ENCODED)


@dataclass(frozen=True, kw_only=True)
class ByteWindows:
    """The first and the last bytes of each value as numbers, as models of file types want them.

    Of the first ``block`` bytes, white space stripped in front, ``first`` are kept and padded behind; of the last
    ``block`` bytes, stripped behind, ``last`` are kept and padded in front. The defaults are Magika's. A value whose
    stripped first block has fewer than ``bytes_min`` bytes fails its row.
    """

    input: str | None = option(field_name(), "the bytes; without it the latest bytes field", None)
    output: str = option(field_name(), "where the numbers go", "bytes")
    block: int = option(whole(1, SIZE_MAX), "bytes looked at from each end", 4096)
    first: int = option(whole(0, SIZE_MAX), "bytes kept from the beginning", 1024)
    last: int = option(whole(0, SIZE_MAX), "bytes kept from the end", 1024)
    pad: int = option(whole(-(2**31), 2**31 - 1), "the number that stands for no byte", 256)
    strip: bool = option(flag(), "leave out ASCII white space before the first and after the last byte", True)
    bytes_min: int = option(whole(0, SIZE_MAX), "fewer bytes than this are refused", 8)


def _size_problems(options: ByteWindows) -> list[Trouble]:
    found = f"first = {options.first}, last = {options.last}, bytes_min = {options.bytes_min}"
    troubles = []
    if max(options.first, options.last, options.bytes_min) > options.block:
        troubles.append(("block", found, f"each at most block ({options.block})"))
    if options.first + options.last == 0:
        troubles.append(("first", found, "first or last of 1 or more"))
    return troubles


def _window_fields(options: ByteWindows, known: FieldMap) -> list[Field]:
    pick(known, options.input, _RAW)
    return [Field(options.output, "INT32", (options.first + options.last,))]


def _window(options: ByteWindows, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _RAW).name

    def run(batch: Batch) -> None:
        windows = np.full((batch.rows, options.first + options.last), options.pad, dtype=np.int32)
        for row, value in enumerate(batch.columns[source]):
            if value is None:
                batch.fail(row, missing(source))
                continue
            head, tail = value[: options.block], value[-options.block :]
            if options.strip:
                head, tail = head.lstrip(), tail.rstrip()
            if len(head) < options.bytes_min:
                batch.fail(row, _too_short(source, len(head), options))
                continue
            head, tail = head[: options.first], tail[max(0, len(tail) - options.last) :]
            windows[row, : len(head)] = np.frombuffer(head, dtype=np.uint8)
            windows[row, windows.shape[1] - len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
        batch.columns[options.output] = windows

    return run


def _too_short(source: str, count: int, options: ByteWindows) -> Refused:
    what = f"{source}: has {count} bytes{' without white space' if options.strip else ''}"
    return Refused(Code.INVALID_INPUT, f"{what}; at least {options.bytes_min} are needed", field=source)


BYTE_WINDOWS = Kind("byte_windows", ByteWindows, _window_fields, _window, _size_problems)
