"""What a free worker is to do now: send these items, wait, or first end all that it has."""

import math

import msgspec

from forwardpass.batching.forecast import Forecast
from forwardpass.batching.policy import Wait, linger_s, release
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.timeline import BatchReport

_NOTHING = Wait(math.inf)


class Taken(msgspec.Struct, frozen=True, eq=False):
    """Out of the queue, to be sent now; ``limit`` rows was the most it could have, and ``why``."""

    items: list[Item]
    reason: str
    together: bool
    limit: int
    why: str


class MustBeIdle:
    """What is next is only for a worker that has nothing else."""


class Taking:
    """Asks ``policy`` about what waits, and takes it out of the queue."""

    def __init__(self, queue: Queue, forecast: Forecast, clock: Clock) -> None:
        self._queue = queue
        self._forecast = forecast
        self._clock = clock

    def look(self, worker: int, *, idle: bool) -> Taken | Wait | MustBeIdle:
        """``idle``: it has nothing, whatever the books say. Waits for ever where nothing waits that it may take."""
        forecast, queue, batch = self._forecast, self._queue, self._forecast.batch
        while queue.items:
            now = self._clock()
            waiting = queue.view(now, worker)
            if waiting is None:
                break
            if waiting.alone and not idle:  # whoever shares its process would share the blame for its death
                return MustBeIdle()
            limit = forecast.limits.of(waiting.key)
            rows, why = limit.rows, limit.why
            decision = release(waiting, batch, rows)
            if isinstance(decision, Wait):
                return decision
            together, most, reason = batch.enabled and not waiting.alone, rows, decision.reason
            starts_in_s = 0.0 if idle else forecast.workers.left_s(worker, now)
            if together and forecast.workers.count > 1 and waiting.rows == queue.rows and not waiting.pinned:
                share = forecast.share_rows(now, worker, waiting.rows, waiting.cost, starts_in_s)
                if share < min(rows, waiting.rows):
                    most, reason = share, "shared"
            items = queue.take(waiting.key, most, batch.cost_max, together=together, starts_in_s=starts_in_s)
            if items:
                return Taken(items, reason, together, rows, why)
            if starts_in_s > 0.0:  # all would be over before this worker has ended what it is at
                return MustBeIdle()
        return _NOTHING

    def lingers_s(self, last: BatchReport) -> float:
        """How long it waits for the clients of the batch that it has just answered; see ``policy.linger_s``."""
        return linger_s(self._queue.rows, last.rows, last.predicted_s)
