"""The batches that a worker has: how long each may take, what nobody waits for of them, and how they end with it.

A running batch cannot be stopped by itself. One past its limit ends the process; so does one that nobody has waited for
for a time, when a restart costs little beside that, and then it is nobody's fault and nothing runs again. What such a
batch had runs by itself when it comes again, and for as long as a batch may: a hang is told from slow work by that.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from forwardpass.batching.executor import Outcome, WorkerLost
from forwardpass.batching.quarantine import digest
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code
from forwardpass.execution.board import Board

ABANDONED_S = 5.0
TOLD_ITEMS_MAX = 16
TOLD_BYTES_MAX = 4 * 1024 * 1024  # of one item; a digest of more would hold the event loop up
ABANDONED_LOADS = 4.0  # and at least so many times what loading the version took
DOUBLED_MAX = 16  # times


@dataclass(slots=True)
class Running:
    """One batch, from when it was sent; ``since`` is when it became the one that runs, as far as we know."""

    items: Sequence[Item]
    future: "asyncio.Future[Outcome]"
    since: float
    left_at: float | None = None  # when nobody was found to wait for it any more

    @property
    def abandoned(self) -> bool:
        return not any(item.live or item.suspect for item in self.items)


class Sent:
    """By number, the oldest first: that one runs, what comes behind it waits in the worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[int, Running] = {}
        self._ended = 0  # processes, one after the other, that were ended for nobody and had answered nothing

    def __len__(self) -> int:
        return len(self._running)

    def add(self, batch: int, items: Sequence[Item], future: "asyncio.Future[Outcome]") -> None:
        for place, item in enumerate(items):
            item.sent = batch, place
        self._running[batch] = Running(items, future, self._clock())

    def pop(self, batch: int) -> Running | None:
        """It was answered: what was sent ahead starts now."""
        self._ended = 0
        found = self._running.pop(batch, None)
        for other in self._running.values():
            other.since = self._clock()
        return found

    def forgive(self, now: float, gap_s: float) -> None:
        """What the front slept through counts against nobody's limit."""
        for running in self._running.values():
            running.since = min(now, running.since + gap_s)
            if running.left_at is not None:
                running.left_at = min(now, running.left_at + gap_s)

    def over(self, now: float, limit_s: float) -> bool:
        """Whether one has run for longer than a batch may."""
        return any(now - running.since > limit_s for running in self._running.values())

    def abandoned(self, now: float, load_s: float, limit_s: float) -> bool:
        """Whether the one that runs has been nobody's for so long that to end its process is the better way.

        Twice as long after each process that was ended so and answered nothing, up to ``limit_s``.
        """
        first = next(iter(self._running.values()), None)
        if first is None or not first.abandoned:
            return False
        if first.left_at is None:
            first.left_at = max(now, first.since)
        patience_s = max(ABANDONED_S, ABANDONED_LOADS * load_s) * (1 << min(self._ended, DOUBLED_MAX))
        return now - max(first.left_at, first.since) > min(limit_s, patience_s)

    def forget(self, items: Sequence[Item], board: Board | None) -> None:
        """Nobody waits for these any more: what has not begun of them is not to."""
        for item in items:
            batch, place = item.sent
            running = self._running.get(batch)
            if running is None or item.alone or place >= len(running.items) or running.items[place] is not item:
                continue  # not sent, answered, or another worker's
            if board is not None and board.mark(batch, place):
                item.left_s = self._clock()

    def told(self) -> dict[str, str]:
        """Of the batch that runs, for the log: whose requests these are and digests of what they sent, never that itself."""
        first = next(iter(self._running.values()), None)
        items = first.items[:TOLD_ITEMS_MAX] if first else ()
        digests = [
            digest(item.columns, item.shapes, item.rows).hex() if item.bytes_total <= TOLD_BYTES_MAX else "large"
            for item in items
        ]
        return {"requests": " ".join(item.ticket.request for item in items), "inputs": " ".join(digests)}

    def lose(self, code: Code, *, nobodys: bool) -> None:
        """The process has ended. ``nobodys``: for the sake of a batch that was abandoned; what waited behind is blameless."""
        lost, self._running = list(self._running.values()), {}
        self._ended += nobodys
        for place, running in enumerate(lost):
            if not running.future.done():
                left = nobodys and place == 0
                running.future.set_exception(WorkerLost(code, started=left or not nobodys, nobodys=left))
