"""When something that comes now would be started and how long it would run: by what ran lately and what runs now."""

import math
from collections import deque
from typing import NamedTuple

import msgspec

from forwardpass.batching.cost import CONFIDENT_BATCHES, CostModel
from forwardpass.batching.limit import Limits
from forwardpass.batching.policy import shared_rows
from forwardpass.core.clock import jitter
from forwardpass.core.pipeline import Batch

HEADROOM = 1.25
"""What is predicted to need the whole of its time until the deadline comes too late about every second time."""

RETRY_MIN_S = 1.0
RETRY_MAX_S = 5.0


class Work(NamedTuple):
    """So much of a queue; of what others have, a part. ``kinds``: of so many keys, which share no batch."""

    rows: float
    cost: float
    items: float
    kinds: float = 0.0

    def plus(self, other: "Work") -> "Work":
        return Work(self.rows + other.rows, self.cost + other.cost, self.items + other.items, self.kinds + other.kinds)


NOTHING = Work(0.0, 0.0, 0.0, 0.0)


class Underway(msgspec.Struct, eq=False):
    """A batch in a worker; one that was sent ahead waits there until those before it have ended."""

    worker: int
    sent_s: float
    expected_s: float


class Workers:
    """``count`` take batches; one that is waited for though it has none is away: it starts, or starts again."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._underway: dict[int, deque[Underway]] = {}
        self._ended_s: dict[int, float] = {}
        self._awaited: set[int] = set()

    @property
    def idle(self) -> bool:
        """No worker has a batch."""
        return not self._underway

    def any_free(self, worker: int | None = None) -> bool:
        """Whether this one has nothing to do, or any that is there (None); when none has, those that are away count too."""
        if not self._underway:
            return True
        if worker is not None:
            return worker not in self._underway
        return self.count > len(self._underway) + len(self._awaited - self._underway.keys())

    def await_worker(self, worker: int) -> None:
        self._awaited.add(worker)

    def vacant(self, worker: int) -> None:
        """It takes a batch now."""
        self._awaited.discard(worker)

    def begin(self, worker: int, now: float, expected_s: float) -> Underway:
        batch = Underway(worker, now, expected_s)
        waiting = self._underway.get(worker)
        if waiting is None:
            self._underway[worker] = deque((batch,))
        else:
            waiting.append(batch)
        return batch

    def end(self, batch: Underway, now: float) -> float:
        """It was answered, or its worker died. Returns for how long the worker was at it and at nothing else."""
        worker, began_s = batch.worker, self._ended_s.get(batch.worker, 0.0)
        waiting = self._underway[worker]
        if len(waiting) > 1:
            waiting.remove(batch)
        else:
            assert waiting[0] is batch, "it was begun"
            del self._underway[worker]
        self._ended_s[worker] = now
        return now - (began_s if began_s > batch.sent_s else batch.sent_s)

    def left_s(self, worker: int, now: float) -> float:
        """Until this worker is free. One that is overdue by so much is expected to need as much again."""
        underway = self._underway.get(worker)
        if not underway:
            return 0.0
        first = underway[0]
        left_s = abs(max(first.sent_s, self._ended_s.get(worker, 0.0)) + first.expected_s - now)
        if len(underway) == 1:
            return left_s
        return left_s + sum([each.expected_s for each in underway]) - first.expected_s

    def others_free_in_s(self, worker: int, now: float) -> list[float]:
        """For each other worker that can be counted on, the soonest first."""
        busy = [self.left_s(other, now) for other in self._underway if other != worker]
        away = len(self._awaited - self._underway.keys() - {worker})
        return sorted([0.0] * (self.count - 1 - len(busy) - away) + busy)

    def free_in_s(self, now: float) -> list[float]:
        """For each worker that can be counted on, the soonest first; never empty."""
        busy = [self.left_s(worker, now) for worker in self._underway]
        if len(busy) == self.count == 1:
            return busy
        away = len(self._awaited - self._underway.keys())
        return sorted([0.0] * (self.count - len(busy) - away) + busy) or [0.0]


class Forecast:
    """One per version. ``batch`` is how its rows are put together, ``workers`` who takes them."""

    def __init__(self, batch: Batch, workers: int = 1) -> None:
        self.batch = batch
        self.model = CostModel()
        self.limits = Limits(batch)
        self.workers = Workers(workers)

    def wait_and_run_s(self, now: float, work: Work, worker: int | None = None) -> tuple[float, float]:
        """Until the last batch of all this work starts, and how long it runs; zeros while nothing is known.

        ``worker``: the only one that may run the last of it. What a batch waits for company is not counted: nobody's
        deadline is missed for that.
        """
        model = self.model
        if not model.confident:
            return 0.0, 0.0
        batches = self._batches(work)
        run_s = model.predict_s(work.cost / batches)
        wait_s = _level(self.workers.free_in_s(now), (batches - 1) * run_s)
        return wait_s if worker is None else max(wait_s, self.workers.left_s(worker, now)), run_s

    def ends_in_s(self, now: float, rows: int, cost: float, items: int, kinds: int) -> float:
        """Until all this work has ended; the same, in fewer steps: it is asked for every request."""
        model, batch = self.model, self.batch
        if model.observed < CONFIDENT_BATCHES:
            return 0.0
        if self.workers.count != 1 or not batch.enabled or batch.cost_max is not None:
            wait_s, run_s = self.wait_and_run_s(now, Work(rows, cost, items, kinds))
            return wait_s + run_s
        batches = max(-(-rows // self.limits.rows), kinds if kinds < items else items)
        return self.workers.left_s(0, now) + batches * model.predict_s(cost / batches)

    def company_s(self, work: Work) -> float:
        """How long a batch of so much would wait for more, if nobody's deadline is near."""
        return 0.0 if not self.batch.enabled or work.rows >= self.limits.rows else self.batch.wait_ms / 1000

    def share_rows(self, now: float, worker: int, rows: int, cost: float, starts_in_s: float) -> int:
        """How many of so many rows this worker takes, whose batch would start in so many seconds; see ``shared_rows``."""
        model = self.model
        if not model.confident:
            return rows
        fixed_s = model.predict_s(0.0)
        per_row_s = (model.predict_s(cost) - fixed_s) / rows
        return shared_rows(rows, [starts_in_s, *self.workers.others_free_in_s(worker, now)], fixed_s, per_row_s)

    def full_batch_s(self, cost: float) -> float:
        """How long a batch runs for which so much waits."""
        most = cost if self.batch.cost_max is None else min(cost, self.batch.cost_max)
        return self.model.predict_s(most) if self.model.confident else 0.0

    def _batches(self, work: Work) -> int:
        batch = self.batch
        if not batch.enabled:
            return max(1, math.ceil(work.items))
        least = max(work.rows / self.limits.rows, min(work.kinds, work.items), 1.0)
        if batch.cost_max is not None:
            least = max(least, min(work.cost / batch.cost_max, work.items))
        return math.ceil(least)


def retry_after_s(wait_s: float) -> float:
    """When a client that was turned away may come again; not all at once (FAULTS 5.3)."""
    return min(max(wait_s, RETRY_MIN_S / 0.8), RETRY_MAX_S / 1.2) * jitter()


def _level(free_in_s: list[float], work_s: float) -> float:
    """When that much work is done by workers that are free in so many seconds, the soonest first."""
    level_s = free_in_s[0]
    for count, next_s in enumerate(free_in_s[1:], 1):
        room_s = (next_s - level_s) * count
        if work_s <= room_s:
            return level_s + work_s / count
        work_s -= room_s
        level_s = next_s
    return level_s + work_s / len(free_in_s)
