"""A catalogue in a version's folder: a vector and a JSON object for each item."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from forwardpass.core.errors import show
from forwardpass.steps.kind import invalid

ITEMS_MAX = 1_000_000
ITEM_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Items:
    """The vectors stay in the file, mapped, so that a version's workers share them; lines are parsed when answered."""

    vectors: NDArray[np.float32]
    lines: Sequence[bytes]
    places: dict[str, int]  # by id; empty when no key of ids was asked for


def load_items(folder: Path, vectors: str, items: str, key: str | None, *, taken: str | None = None) -> Items:
    """Both files, checked whole. ``key`` is where an item's id stands; no item may have the key ``taken``.

    Raises Misconfigured, naming file and line.
    """
    found = _read_vectors(folder, vectors)
    lines = (folder / items).read_bytes().removesuffix(b"\n").split(b"\n")
    if len(lines) != len(found):
        raise invalid("", f"{len(lines)} items", f"{len(found)}, the number of vectors in {vectors}", file=items)
    places: dict[str, int] = {}
    for place, line in enumerate(lines):
        item = _read_item(items, place, line)
        if taken in item:
            raise _wrong(items, place, f"has a key {show(taken)}", "another name for the score: the option score")
        if key is not None:
            name = item.get(key)
            if not isinstance(name, str) or name in places:
                what = "which another item has" if isinstance(name, str) else "no text"
                raise _wrong(items, place, f"{show(key)} is {show(name)}, {what}", "an id, a text of its own")
            places[name] = place
    return Items(found, lines, places)


def _read_vectors(folder: Path, file: str) -> NDArray[np.float32]:
    wanted = f"a .npy file of FP32 [items, size], row-major, with 1 to {ITEMS_MAX} items"
    try:
        # A header that says otherwise than the file's size, an object array, no .npy at all: all are ValueError.
        found: NDArray[Any] = np.lib.format.open_memmap(folder / file, mode="r")
    except (ValueError, OSError, EOFError) as error:
        refusal = invalid("", "not a .npy file that can be read", wanted, file=file)
        refusal.detail = str(error)
        raise refusal from None
    if found.dtype != np.float32 or found.ndim != 2 or not found.flags.c_contiguous:
        raise invalid("", f"{found.dtype} {list(found.shape)}", wanted, file=file)
    if not 0 < len(found) <= ITEMS_MAX or found.shape[1] == 0:
        raise invalid("", f"{found.shape[0]} vectors of size {found.shape[1]}", wanted, file=file)
    if not np.isfinite(found.sum(axis=1, dtype=np.float64)).all():  # no FP32 numbers overflow a sum in FP64
        raise invalid("", "a vector holds a number that is not finite", "finite numbers", file=file)
    return np.asarray(found)


def _read_item(file: str, place: int, line: bytes) -> dict[str, Any]:
    if len(line) > ITEM_BYTES_MAX:
        raise _wrong(file, place, f"{len(line)} bytes", f"at most {ITEM_BYTES_MAX}")
    try:
        item = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _wrong(file, place, f"not JSON: {error}", "one JSON object a line") from None
    if not isinstance(item, dict):
        raise _wrong(file, place, f"{show(item)}", "one JSON object a line")
    return item


def _wrong(file: str, place: int, found: str, allowed: str) -> Exception:
    return invalid("", f"line {place + 1}: {found}", allowed, file=file)
