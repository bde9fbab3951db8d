"""What waits for a worker: bounded, ordered by priority then deadline, grouped by batch key.

Only ``arrival`` ever waits; everything else is plain and synchronous, so it is tested without a loop.
"""

import heapq
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from forwardpass.batching.arrivals import Arrivals
from forwardpass.batching.cost import CostModel, predicted_wait_s
from forwardpass.batching.policy import Waiting
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Queue as QueueLimits

_Entry = tuple[int, float, int, Item]


@dataclass(slots=True)
class _Group:
    """Items of one batch key, for one worker only or for any (None). Entries of items that left early stay in the heap until they surface or outnumber."""

    worker: int | None
    heap: list[_Entry] = field(default_factory=list)
    arrivals: deque[Item] = field(default_factory=deque)
    items: int = 0
    rows: int = 0
    cost: float = 0.0

    def head(self) -> _Entry:
        while not self.heap[0][3].waiting:
            heapq.heappop(self.heap)
        return self.heap[0]

    def oldest_s(self) -> float:
        while not self.arrivals[0].waiting:
            self.arrivals.popleft()
        return self.arrivals[0].queued_s

    def compact(self) -> None:
        if len(self.heap) > 64 and len(self.heap) > 2 * self.items:
            self.heap = [entry for entry in self.heap if entry[3].waiting]
            heapq.heapify(self.heap)
        if len(self.arrivals) > 64 and len(self.arrivals) > 2 * self.items:
            self.arrivals = deque(item for item in self.arrivals if item.waiting)


class Queue:
    """Items of one variant. ``put`` refuses what is over a bound, at once and by the bound's name."""

    def __init__(self, limits: QueueLimits, model: CostModel, clock: Clock) -> None:
        self.rows = 0
        self.bytes = 0
        self.items = 0
        self.parallel = 1  # workers that take from here
        self._limits = limits
        self._model = model
        self._clock = clock
        self._groups: dict[Hashable, _Group] = {}
        self._sequence = count()
        self._arrivals = Arrivals(lambda worker: any(self._heads(worker)))

    def put(self, items: Sequence[Item]) -> None:
        """Take all of a request's items in, or none. Raises Failed queue_full, queue_bytes_full, queue_wait_too_long."""
        if self.items:  # an empty queue takes any request: its rows and bytes were bounded at the door
            rows, total = self.rows, self.bytes
            for item in items:
                rows += item.rows
                total += item.bytes_total
            limits, wait_s = self._limits, self.predicted_wait_s()
            if rows > limits.rows_max:
                raise _full("rows_max", rows, limits.rows_max, Code.QUEUE_FULL, wait_s)
            if total > limits.bytes_max:
                raise _full("bytes_max", total, limits.bytes_max, Code.QUEUE_BYTES_FULL, wait_s)
            left_s = items[0].ticket.deadline - items[0].queued_s
            if wait_s > left_s or wait_s > limits.wait_max_s:
                left_s = max(0.0, min(left_s, limits.wait_max_s))
                text = f"queue.wait_max_s: the predicted wait is {wait_s:.3f} s and {left_s:.3f} s are left"
                raise Failed(Code.QUEUE_WAIT_TOO_LONG, text, retry_after_s=wait_s)
        for item in items:
            self._push(item)

    def put_back(self, items: Sequence[Item]) -> None:
        """Return items whose batch was lost; they were admitted before, so no bound applies."""
        for item in items:
            if item.live:
                self._push(item)

    def discard(self, items: Sequence[Item], *, probes: bool = False) -> None:
        """Forget items nobody waits for any more, ``probes`` too; those already taken are none of the queue's business."""
        for item in items:
            if item.waiting and (probes or not item.alone):
                self._leave(item)

    def view(self, now: float, worker: int = 0) -> Waiting | None:
        """The group whose first item is the most urgent of those this worker may run, or None when there is none."""
        best = min(self._heads(worker), default=None)
        if best is None:
            return None
        item = best[3]
        group = self._groups[item.key]
        return Waiting(item.key, group.rows, group.cost, now - group.oldest_s(), item.alone)

    def take(self, key: Hashable, rows_max: int, cost_max: float | None, *, together: bool) -> list[Item]:
        """The most urgent items of a group that fit one batch; the first always, however large it is."""
        taken: list[Item] = []
        rows, cost = 0, 0.0
        while (group := self._groups.get(key)) is not None:
            item = group.head()[3]
            if not item.live:
                self._leave(item)
                continue
            rows += item.rows
            cost += item.cost
            full = rows > rows_max or (cost_max is not None and cost > cost_max)
            if taken and (full or not together):
                break
            heapq.heappop(group.heap)
            self._leave(item)
            item.take()
            taken.append(item)
        return taken

    def predicted_wait_s(self) -> float:
        """How long an item that came now would wait, by what batches took lately."""
        return predicted_wait_s(self.rows, self.items, self._model, self.parallel)

    async def arrival(self, timeout_s: float | None = None, worker: int = 0) -> None:
        """Until something comes that this worker may run, or the time is over; see ``Arrivals.wait``."""
        await self._arrivals.wait(worker, timeout_s)

    def clear(self) -> list[Item]:
        """Everything that waits, taken out: the variant stops or its model is unavailable."""
        items = list(self.waiting())
        self.discard(items, probes=True)
        return items

    def waiting(self) -> Iterator[Item]:
        return (entry[3] for group in self._groups.values() for entry in group.heap if entry[3].waiting)

    def _heads(self, worker: int) -> Iterator[_Entry]:
        return (group.head() for group in self._groups.values() if group.worker in (None, worker))

    def _push(self, item: Item) -> None:
        item.waiting = True
        self.rows += item.rows
        self.bytes += item.bytes_total
        self.items += 1
        group = self._groups.setdefault(item.key, _Group(item.worker))
        group.items += 1
        group.rows += item.rows
        group.cost += item.cost
        group.arrivals.append(item)
        priority = 0 if item.alone else item.priority
        heapq.heappush(group.heap, (priority, item.ticket.deadline, next(self._sequence), item))
        self._arrivals.came()

    def _leave(self, item: Item) -> None:
        item.waiting = False
        self.rows -= item.rows
        self.bytes -= item.bytes_total
        self.items -= 1
        group = self._groups[item.key]
        group.items -= 1
        group.rows -= item.rows
        group.cost -= item.cost
        if group.items == 0:
            del self._groups[item.key]
        else:
            group.compact()


def _full(bound: str, value: int, limit: int, code: Code, wait_s: float) -> Failed:
    text = f"queue.{bound}: the queue would hold {value}; at most {limit} are allowed"
    return Failed(code, text, retry_after_s=max(wait_s, 0.1))
