"""Zip files, by their list of entries: PyTorch, Keras, NumPy. Nothing is unpacked; a stored pickle is read in its place."""

from dataclasses import dataclass
from typing import Any

from forwardpass.pipeline.inspection import pickles
from forwardpass.pipeline.inspection.reading import LISTED_MAX, Cursor, File, Report, listed

MAGIC = b"PK\x03\x04"
ENTRIES_MAX = 100_000
NAME_BYTES_MAX = 1024
_END, _END_64, _PLACE_64, _ENTRY = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x01\x02"
_TAIL_BYTES = 22 + 65_535
_STORED = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    method: int
    packed: int
    unpacked: int
    begin: int  # of its local header


def report(file: File) -> Report:
    """Raises Misconfigured for what is damaged."""
    entries = _entries(file)
    names = [entry.name for entry in entries]
    kind = _kind(names)
    facts: dict[str, Any] = {
        "entries": len(entries),
        "unpacked_bytes": sum(entry.unpacked for entry in entries),
        "names": listed(names),
    }
    inside = [entry for entry in entries if entry.name.endswith((".pkl", ".pickle"))]
    if inside:
        facts["pickles"] = _pickles(file, inside[:LISTED_MAX])
    if len(inside) > LISTED_MAX:
        facts["pickles_not_looked_into"] = len(inside) - LISTED_MAX
    unsafe = [name for name in names if name.startswith("/") or ".." in name.split("/") or "\\" in name]
    if unsafe:
        facts["names_that_leave"] = listed(unsafe)
    return Report(kind, facts, unfit="an archive is never unpacked here; export the model to ONNX")


def _kind(names: list[str]) -> str:
    last = {name.rpartition("/")[2] for name in names}
    if "data.pkl" in last:
        return "TorchScript" if "constants.pkl" in last else "PyTorch checkpoint"
    if {"config.json", "metadata.json", "model.weights.h5"} <= last:
        return "Keras 3 model"
    if names and all(name.endswith(".npy") for name in names):
        return "NumPy arrays (npz)"
    return "zip archive"


def _pickles(file: File, entries: list[_Entry]) -> dict[str, dict[str, Any]]:
    """What each holds, by name; as many opcodes of all together are looked at as of one pickle."""
    found: dict[str, dict[str, Any]] = {}
    left = pickles.OPCODES_MAX
    for entry in entries:
        if entry.method != _STORED:
            found[entry.name] = {"unread": "compressed"}
            continue
        local = file.at(entry.begin, 30)
        place = entry.begin + 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        found[entry.name] = pickles.report(file, place, place + entry.packed, left).facts
        left = max(0, left - found[entry.name]["opcodes"])
    return found


def _entries(file: File) -> list[_Entry]:
    tail = file.at(max(0, file.size - _TAIL_BYTES), min(file.size, _TAIL_BYTES))
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise file.bad("cut short: the list at the end of the zip is missing")
    count = int.from_bytes(tail[at + 10 : at + 12], "little")
    begin = int.from_bytes(tail[at + 16 : at + 20], "little")
    if begin == 0xFFFFFFFF or count == 0xFFFF:
        count, begin = _large(file, file.size - len(tail) + at)
    if count > ENTRIES_MAX:
        raise file.bad(f"{count} entries; at most {ENTRIES_MAX}")
    cursor = Cursor(file, begin)
    entries = [_entry(file, cursor) for _ in range(count)]
    if len({entry.name for entry in entries}) != len(entries):
        raise file.bad("an entry is there twice: readers differ in which they take")
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.begin):
        if entry.begin < end:
            raise file.bad(f'damaged: the entry "{entry.name[:64]}" lies over another')
        end = entry.begin + 30 + entry.packed
    if end > begin:
        raise file.bad("damaged: an entry lies over the zip's list")
    return entries


def _large(file: File, end: int) -> tuple[int, int]:
    """How many entries, and where their list is, of a zip of over 4 GiB or 65,535 entries."""
    place = file.at(end - 20, 20)
    if place[:4] != _PLACE_64:
        raise file.bad("damaged: the large zip does not say where its list is")
    record = file.at(int.from_bytes(place[8:16], "little"), 56)
    if record[:4] != _END_64:
        raise file.bad("damaged: the large zip's list is not where it should be")
    return int.from_bytes(record[32:40], "little"), int.from_bytes(record[48:56], "little")


def _entry(file: File, cursor: Cursor) -> _Entry:
    head = cursor.take(46)
    lengths = [int.from_bytes(head[at : at + 2], "little") for at in (28, 30, 32)]
    if head[:4] != _ENTRY or lengths[0] > NAME_BYTES_MAX:
        raise file.bad("damaged: an entry of the zip's list is none")
    name = cursor.take(lengths[0]).decode("utf-8", "replace")
    extra = cursor.take(lengths[1])
    cursor.skip(lengths[2])
    sizes = [int.from_bytes(head[at : at + 4], "little") for at in (24, 20, 42)]  # unpacked, packed, begin
    sizes = _sizes_64(extra, sizes)
    if sizes[2] + 30 > file.size:
        raise file.bad("damaged: an entry lies outside the zip")
    return _Entry(name, int.from_bytes(head[10:12], "little"), sizes[1], sizes[0], sizes[2])


def _sizes_64(extra: bytes, sizes: list[int]) -> list[int]:
    """Those that do not fit 32 bits stand in the extra field 1, in this order."""
    at = 0
    while at + 4 <= len(extra):
        field, length = int.from_bytes(extra[at : at + 2], "little"), int.from_bytes(extra[at + 2 : at + 4], "little")
        values = extra[at + 4 : at + 4 + length]
        if field == 1:
            full = []
            for size in sizes:
                large = size == 0xFFFFFFFF and len(values) >= 8
                full.append(int.from_bytes(values[:8], "little") if large else size)
                values = values[8:] if large else values
            return full
        at += 4 + length
    return sizes
