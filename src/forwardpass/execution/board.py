"""Where the front marks items that nobody waits for any more while their batch waits in a worker: shared memory.

A mark is seen at once, whatever the worker is at, and costs no frame. The front only writes here and never reads, so a
worker that scribbles on it harms nobody else; its size is sealed, so that no side can cut it under the other.
"""

import fcntl
import mmap
import os
from contextlib import ExitStack
from types import TracebackType
from typing import Self

BATCHES = 4  # more than a worker ever has at a time
ITEMS_MAX = 4096  # of one batch; those behind are run though nobody waits
BYTES = BATCHES * ITEMS_MAX
_CLEAN = bytes(ITEMS_MAX)
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Board:
    """The front's side. ``descriptor`` is what the worker's process inherits."""

    def __init__(self) -> None:
        with ExitStack() as undo:
            self.descriptor = os.memfd_create("forwardpass", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            undo.callback(os.close, self.descriptor)
            os.ftruncate(self.descriptor, BYTES)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self._marks = mmap.mmap(self.descriptor, BYTES)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._marks.close()
        os.close(self.descriptor)

    def clear(self, batch: int) -> None:
        """A batch of that number is about to be sent: everybody waits for its items."""
        start = _start(batch)
        self._marks[start : start + ITEMS_MAX] = _CLEAN

    def mark(self, batch: int, item: int) -> bool:
        """Nobody waits any more for this item of a batch that was sent and has not been answered; False without a place."""
        if item >= ITEMS_MAX:
            return False
        self._marks[_start(batch) + item] = 1
        return True


class Marks:
    """The worker's side."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor over."""
        self._marks = mmap.mmap(descriptor, BYTES, prot=mmap.PROT_READ)
        os.close(descriptor)

    def any(self, batch: int) -> bool:
        """Whether there may be a mark for this batch; quick."""
        start = _start(batch)
        return self._marks.find(b"\1", start, start + ITEMS_MAX) >= 0

    def of(self, batch: int) -> bytes:
        """One byte an item of this batch, not zero when nobody waits for it; items from ITEMS_MAX on have none."""
        start = _start(batch)
        return self._marks[start : start + ITEMS_MAX]


def _start(batch: int) -> int:
    return batch % BATCHES * ITEMS_MAX
