"""Members of lost batches that wait to run again alone: each is to be cleared or blamed, whoever still waits for it."""

import asyncio
from itertools import count

from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock

PROBE_S = 300.0
"""How long one waits for its worker to come back, even when its caller has left: as long as any deadline."""

SWEEP_S = 5.0


class Probes:
    """Puts them into the queue, and takes out again those that no worker came for."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._ids = count(1)
        self._timer: asyncio.TimerHandle | None = None

    def add(self, item: Item) -> None:
        item.alone = True
        item.key = ("alone", next(self._ids))
        item.until_s = max(item.ticket.deadline, self._clock() + PROBE_S)
        self._queue.put_back([item])
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self.expire)

    def expire(self) -> None:
        """Forget those whose time is over; the deadline has told their callers."""
        now = self._clock()
        waiting = [item for item in self._queue.waiting() if item.alone]
        self._queue.discard([item for item in waiting if item.until_s <= now], probes=True)
        left = any(item.waiting for item in waiting)
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self.expire) if left else None
