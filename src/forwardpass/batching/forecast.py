"""When something that comes now would be started and how long it would run: by what ran lately and what runs now."""

import math
from typing import NamedTuple

from forwardpass.batching.cost import CostModel
from forwardpass.batching.running import Running
from forwardpass.core.clock import jitter
from forwardpass.core.pipeline import Batch

HEADROOM = 1.25
"""What is predicted to need the whole of its time until the deadline comes too late about every second time."""

RETRY_MIN_S = 1.0
RETRY_MAX_S = 5.0


class Work(NamedTuple):
    """So much of a queue; of what others have, a part."""

    rows: float
    cost: float
    items: float

    def plus(self, other: "Work") -> "Work":
        return Work(self.rows + other.rows, self.cost + other.cost, self.items + other.items)


NOTHING = Work(0.0, 0.0, 0.0)


class Forecast:
    """One per version. ``batch`` is how its rows are put together, ``running`` what its workers have."""

    def __init__(self, batch: Batch, workers: int = 1) -> None:
        self.batch = batch
        self.model = CostModel()
        self.running = Running(workers)

    def wait_and_run_s(self, now: float, ahead: Work, own: Work, groups: int) -> tuple[float, float]:
        """Until the last batch with ``own`` in it starts, behind ``ahead``, and how long that runs; zeros while nothing is known.

        ``groups``: so many kinds of items wait that share no batch.
        """
        if not self.model.confident:
            return 0.0, 0.0
        work = ahead.plus(own)
        batches = self._batches(work, groups)
        run_s = self.model.predict_s(work.cost / batches)
        return _level(self.running.free_in_s(now), (batches - 1) * run_s), run_s

    def full_batch_s(self, cost: float) -> float:
        """How long a batch runs for which so much waits."""
        most = cost if self.batch.cost_max is None else min(cost, self.batch.cost_max)
        return self.model.predict_s(most) if self.model.confident else 0.0

    def _batches(self, work: Work, groups: int) -> int:
        if not self.batch.enabled:
            return max(1, math.ceil(work.items))
        least = max(work.rows / self.batch.rows_max, min(groups, work.items))
        if self.batch.cost_max is not None:
            least = max(least, min(work.cost / self.batch.cost_max, work.items))
        return max(1, math.ceil(least))


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
