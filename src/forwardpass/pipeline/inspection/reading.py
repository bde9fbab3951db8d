"""How a model file is looked into: in small pieces, within its size, and with one kind of failure.

Nothing here runs a library's parser, unpacks anything without a bound, or makes an object that a file names.
"""

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.pipeline.files import kind_problem, open_folder
from forwardpass.pipeline.onnx_file import invalid

JSON_BYTES_MAX = 64 * 1024**2
JSON_VALUES_MAX = 3_000_000
"""Counted before parsing, as each value costs up to a hundred bytes of memory."""

PIECE_BYTES = 256 * 1024
LISTED_MAX = 100
"""So many of one thing are named in a report; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one file is. ``problem`` says why it is not whole, ``unfit`` why it is not taken in although it is whole."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    unfit: str = ""

    @property
    def fits(self) -> bool:
        """Whether it would be taken in by itself, as a pipeline of this one file."""
        return not self.problem and not self.unfit


@dataclass(frozen=True, slots=True)
class File:
    """An open file of this size. ``beside`` says how large a file in the same folder is; None: there is none."""

    descriptor: int
    name: str
    size: int
    beside: Callable[[str], int | None]

    def at(self, offset: int, count: int) -> bytes:
        """Exactly these bytes. Raises Misconfigured when the file does not have them."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise self.cut(offset + count)
        data = os.pread(self.descriptor, count, offset)
        if len(data) != count:
            raise self.bad("changed while it was read")
        return data

    def start(self, count: int) -> bytes:
        """So many bytes, or all if there are fewer."""
        return self.at(0, min(count, self.size))

    def bad(self, found: str) -> Misconfigured:
        return invalid(self.name, found, "")

    def cut(self, needed: int) -> Misconfigured:
        return self.bad(f"cut short or damaged: {self.size} bytes are there, {needed} are needed")


class Cursor:
    """Reads a file forward, with one piece of it in memory. Every failure is Misconfigured."""

    def __init__(self, file: File, place: int = 0) -> None:
        self.file = file
        self.place = place
        self._piece = b""
        self._begin = 0

    def take(self, count: int) -> bytes:
        """The next bytes; at most a piece, whoever wants more skips."""
        if count > PIECE_BYTES:
            raise self.file.bad(f"a value of {count} bytes where at most {PIECE_BYTES} are read")
        at = self.place - self._begin
        if not 0 <= at <= len(self._piece) - count:
            self._fill(count)
            at = 0
        self.place += count
        return self._piece[at : at + count]

    def skip(self, count: int) -> None:
        if count < 0 or self.place + count > self.file.size:
            raise self.file.cut(self.place + count)
        self.place += count

    def number(self, code: str) -> int:
        """One little-endian whole number, by its struct code."""
        value: int = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return value

    def line(self, bytes_max: int = 4096) -> bytes:
        """Up to the next line's end, without it."""
        at = self.place - self._begin
        end = self._piece.find(b"\n", at, at + bytes_max) if 0 <= at <= len(self._piece) else -1
        if end < 0 and not 0 <= at <= len(self._piece) - bytes_max:
            self._fill(0)
            at, end = 0, self._piece.find(b"\n", 0, bytes_max)
        if end < 0:
            raise self.file.bad(f"a line without an end within {bytes_max} bytes")
        self.place += end + 1 - at
        return self._piece[at:end]

    def _fill(self, count: int) -> None:
        """A new piece from here on, of ``count`` bytes or more."""
        length = max(count, min(PIECE_BYTES, self.file.size - self.place))
        self._piece, self._begin = self.file.at(self.place, length), self.place


def parsed(file: File, data: bytes) -> Any:
    """Strict JSON: no key twice, no NaN, no more values than are worth their memory. Raises Misconfigured."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > JSON_VALUES_MAX:
        raise file.bad(f"JSON of more than {JSON_VALUES_MAX} values")

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError("a key is there twice")
        return table

    def number(text: str) -> float:
        raise ValueError(f"{text} is no JSON")

    try:
        return json.loads(data, object_pairs_hook=whole, parse_constant=number, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) and "twice" in str(error) else "no JSON, or cut short"
        raise file.bad(f"damaged: {why}") from error


def listed(names: Iterator[str] | Mapping[str, Any] | list[str]) -> list[str]:
    """The first of them, and how many more there are."""
    every = list(names)
    more = [f"… and {len(every) - LISTED_MAX} more"] if len(every) > LISTED_MAX else []
    return every[:LISTED_MAX] + more


@contextmanager
def opened(path: Path) -> Iterator[File]:
    """A file for looking into: a regular one, no link. Raises Misconfigured when it cannot be read."""
    try:
        place = path.parent.resolve(strict=True)
        folder = open_folder(place)
    except OSError as error:
        raise _unreadable(path, "cannot be read", str(error)) from error
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        if kind_problem(status) not in ("", "a file with hard links"):
            raise _unreadable(path, kind_problem(status))
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:

            def beside(name: str) -> int | None:
                try:
                    other = os.stat(name, dir_fd=folder, follow_symlinks=False)
                except (OSError, ValueError):
                    return None
                return None if kind_problem(other) else other.st_size

            yield File(descriptor, path.name, os.fstat(descriptor).st_size, beside)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unreadable(path, "cannot be read", str(error)) from error
    finally:
        os.close(folder)


def _unreadable(path: Path, found: str, detail: str = "") -> Misconfigured:
    return Misconfigured(Code.LOAD_FAILED, (Problem(str(path), "", found, "a file or a folder"),), detail=detail)


def _whole_number(text: str) -> int:
    if len(text) > 20:
        raise ValueError("a number of more than 20 digits")
    return int(text)
