"""Counts that the listening processes of one server keep where all of them see them: limits hold over all together.

Each process has a row that it alone writes (the owner clears that of a front that died), in shared memory of which
nothing is read but whole numbers. Addresses have PLACES; which one, nobody outside can tell. Two that meet in one are
counted as one, so that a limit of an address may be felt too early, never too late.
"""

import fcntl
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from forwardpass.core.clock import Clock, random_bytes
from forwardpass.core.errors import Code
from forwardpass.ingress.message import HttpStatistics

PLACES = 65536
SALT_BYTES = 16
_CODES = tuple(Code)
_OPEN, _HELD, _RUNNING, _REQUESTS, _CANCELLED, _BEAT, _FULL = range(7)
_REFUSED = 8  # and the codes after it
_HEAD = 512  # numbers, one page
_ROW = _HEAD + 2 * PLACES
_WIDTH = 8
_MICROSECONDS = 1_000_000
_COUNT_MAX = 2**63 - 1
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW  # who cut it short would end all that look at it


class Board:
    """The memory itself, of the owner (row 0) and its fronts."""

    def __init__(self, rows: int, descriptor: int | None = None) -> None:
        """Made anew, or that of a ``descriptor``, which stays the caller's. Raises OSError."""
        assert _REFUSED + len(_CODES) <= _HEAD
        size = rows * _ROW * _WIDTH
        self.rows = rows
        self.descriptor = _memory(size) if descriptor is None else descriptor
        self._memory = mmap.mmap(self.descriptor, size)
        self.numbers = memoryview(self._memory).cast("q")

    def clear(self, row: int) -> None:
        """Its process died: it holds nothing any more, and what ran there was given up. Other counts stay."""
        first = row * _ROW
        given_up = self.numbers[first + _CANCELLED] + self.numbers[first + _RUNNING]
        self.numbers[first + _CANCELLED] = given_up & _COUNT_MAX  # whatever it wrote there before it died
        for number in (_OPEN, _HELD, _RUNNING, _BEAT):
            self.numbers[first + number] = 0
        start, size = (first + _HEAD) * _WIDTH, 2 * PLACES * _WIDTH
        self._memory[start : start + size] = bytes(size)

    def beat_s(self, row: int) -> float:
        """When its process last said that it goes on; 0.0: not yet."""
        return self.numbers[row * _ROW + _BEAT] / _MICROSECONDS

    def statistics(self, row: int) -> HttpStatistics:
        first = row * _ROW
        refused = {code: self.numbers[first + _REFUSED + place] for place, code in enumerate(_CODES)}
        connections, running, requests, cancelled = (
            self.numbers[first + number] for number in (_OPEN, _RUNNING, _REQUESTS, _CANCELLED)
        )
        told = {code: count for code, count in refused.items() if count}
        return HttpStatistics(connections, running, requests, cancelled, told)


@dataclass(frozen=True, slots=True)
class Row:
    """What one process writes, and what it reads of the others: ``BytesInFlight`` and ``OpenConnections`` ask it."""

    board: Board
    own: int
    salt: bytes

    def open_elsewhere(self) -> int:
        return self._elsewhere(_OPEN)

    def open_elsewhere_of(self, address: str) -> int:
        return self._elsewhere(_HEAD + _place(address, self.salt))

    def tell_open(self, count: int, more: int, address: str) -> None:
        self._tell(_OPEN, count, _HEAD, more, address)

    def held_elsewhere(self) -> int:
        return self._elsewhere(_HELD)

    def held_elsewhere_of(self, address: str) -> int:
        return self._elsewhere(_HEAD + PLACES + _place(address, self.salt))

    def tell_held(self, count: int, more: int, address: str) -> None:
        self._tell(_HELD, count, _HEAD + PLACES, more, address)

    def tell_running(self, count: int) -> None:
        self.board.numbers[self.own * _ROW + _RUNNING] = count

    def tell_requests(self, count: int) -> None:
        self.board.numbers[self.own * _ROW + _REQUESTS] = count

    def tell_cancelled(self, count: int) -> None:
        self.board.numbers[self.own * _ROW + _CANCELLED] = count

    def tell_refused(self, code: Code, count: int) -> None:
        self.board.numbers[self.own * _ROW + _REFUSED + _CODES.index(code)] = count

    def beat(self, clock: Clock) -> None:
        self.board.numbers[self.own * _ROW + _BEAT] = int(clock() * _MICROSECONDS)

    @property
    def memory_full(self) -> bool:
        """What the owner last said."""
        return bool(self.board.numbers[_FULL])

    def tell_memory(self, full: bool) -> None:
        self.board.numbers[_FULL] = full

    def _elsewhere(self, number: int) -> int:
        numbers, own = self.board.numbers, self.own
        rows: Iterable[int] = range(self.board.rows)
        return sum(numbers[row * _ROW + number] for row in rows if row != own)

    def _tell(self, number: int, count: int, places: int, more: int, address: str) -> None:
        first, numbers = self.own * _ROW, self.board.numbers
        numbers[first + number] = count
        if address:
            numbers[first + places + _place(address, self.salt)] += more


def _memory(size: int) -> int:
    memory = os.memfd_create("forwardpass-fronts", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
    return memory


def new_salt() -> bytes:
    return random_bytes(SALT_BYTES)


@lru_cache(maxsize=4096)
def _place(address: str, salt: bytes) -> int:
    return int.from_bytes(blake2b(address.encode(), digest_size=2, key=salt).digest(), "little")
