"""What waits for a worker: bounded, ordered by class, then in turn between tenants, then by deadline; grouped by batch key.

Only ``arrival`` ever waits; everything else is plain and synchronous, so it is tested without a loop. ``contents`` says
whose turn it is and what a batch is made of, ``admission`` who may come and who leaves for it.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence

from forwardpass.batching.admission import Admission
from forwardpass.batching.arrivals import Arrivals
from forwardpass.batching.contents import Contents, Filling
from forwardpass.batching.forecast import HEADROOM, Forecast, retry_after_s
from forwardpass.batching.policy import Waiting
from forwardpass.batching.shares import NAMES, rank, rank_of
from forwardpass.batching.ticket import Item
from forwardpass.core.caller import PRIORITIES
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Queue as QueueLimits

TOGETHER_S = 0.005
"""What requests that come together may take as one: of longer work each worker had better take a part."""


class Queue:
    """Items of one variant. ``put`` refuses what is over a bound, at once and by the bound's name."""

    def __init__(self, limits: QueueLimits, forecast: Forecast, clock: Clock) -> None:
        self._limits = limits
        self._forecast = forecast
        self._clock = clock
        self._contents = Contents()
        self._admission = Admission(limits, forecast, self._contents, clock)
        self._arrivals = Arrivals(self._contents.anything_for)

    @property
    def rows(self) -> int:
        return self._contents.rows

    @property
    def bytes(self) -> int:
        return self._contents.bytes

    @property
    def items(self) -> int:
        return len(self._contents.items)

    def put(self, items: Sequence[Item]) -> None:
        """Take all of a request's items in, or none. Others may have to leave for it: their tickets end with shed.

        Raises Failed queue_full, queue_bytes_full, queue_wait_too_long. Where nothing waits and a worker is free it takes
        anything, whatever is predicted: its rows and bytes were bounded at the door.
        """
        contents, rows, size, cost = self._contents, 0, 0, 0.0
        for item in items:
            rank(item)
            rows += item.rows
            size += item.bytes_total
            cost += item.cost
        if contents.items or not self._forecast.workers.any_free(items[0].worker):
            self._admission.admit(items, rows, size, cost)
        contents.push_whole(items)
        self._arrivals.came()

    def together(self, rows: int) -> int:
        """How many of these rows may come in as one: as many as a batch has, and none where the queue fills.

        Of several workers each had better take a part of work that is longer than TOGETHER_S.
        """
        forecast, most = self._forecast, min(rows, self._forecast.limits.rows)
        if self._contents.rows + rows > self._limits.rows_max // 2 or not forecast.model.confident:
            return 0
        alone = forecast.workers.count == 1
        return most if alone or forecast.model.predict_s(float(most)) <= TOGETHER_S else 0

    def put_back(self, items: Sequence[Item]) -> None:
        """Return items whose batch was lost; they were admitted before, so no bound applies."""
        for item in items:
            if item.live:
                self._contents.push_back(item)
                self._arrivals.came()

    def discard(self, items: Sequence[Item], *, probes: bool = False) -> None:
        """Forget items nobody waits for any more, ``probes`` too; those already taken are none of the queue's business."""
        for item in items:
            if item.number and (probes or not item.alone):
                self._contents.leave(item)

    def view(self, now: float, worker: int = 0) -> Waiting | None:
        """The group whose first item is the next of those this worker may run, or None when there is none."""
        item = self._contents.next_for(worker)
        if item is None:
            return None
        group = self._contents.groups[item.key]
        alone, pinned = item.alone or item.suspect, group.worker is not None
        if not self._forecast.batch.wait_ms:
            return Waiting(item.key, group.rows, group.cost, 0.0, alone, pinned=pinned)
        oldest_s, deadline = group.oldest_s(), group.deadline()
        run_s = HEADROOM * self._forecast.full_batch_s(group.cost) or (deadline - oldest_s) / 2  # nobody knows yet
        return Waiting(item.key, group.rows, group.cost, now - oldest_s, alone, deadline - run_s - now, pinned)

    def take(
        self, key: Hashable, rows_max: int, cost_max: float | None, *, together: bool, starts_in_s: float = 0.0
    ) -> list[Item]:
        """The next items of a group that fit one batch; the first always, however large it is.

        None that is over, nor, when more waits than one batch takes, one that would be over before its answer is there,
        unless a place is left over; those that have to make way end. A batch that ``starts_in_s`` takes none that would
        be over by then; they go on waiting.
        """
        contents = self._contents
        group = contents.groups.get(key)
        if group is None:
            return []
        filling = Filling(rows_max if together else 0, cost_max, self._clock(), starts_in_s)
        if together and group.rows > rows_max:
            filling.ready_in_s = HEADROOM * self._forecast.full_batch_s(group.cost * rows_max / group.rows)
        taken, over, late = filling.choose(group, contents)
        contents.charge(taken)
        for item in taken:
            contents.leave(item)
            item.take()
        for item in (*over, *late):  # all of them before anybody is told, who forgets what still waits for it
            contents.leave(item)
        for item in over:
            item.ticket.finish(Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the request was run"))
        for item in late:
            text = "queue: more waits than predicted, and the answer would come after the deadline"
            item.ticket.finish(Failed(Code.SHED, text, retry_after_s=retry_after_s(filling.ready_in_s)))
        return taken

    def predicted_wait_s(self) -> float:
        """How long one more row of standard priority, whose deadline is far, would wait behind all of its class."""
        return self._admission.predicted_wait_s(rank_of(PRIORITIES["standard"]))

    def by_class(self) -> Mapping[str, int]:
        """How many items wait."""
        return {name: self._contents.classes[number].items for number, name in enumerate(NAMES, 1)}

    async def arrival(self, timeout_s: float | None = None, worker: int = 0) -> None:
        """Until something comes that this worker may run, or the time is over; see ``Arrivals.wait``."""
        await self._arrivals.wait(worker, timeout_s)

    def clear(self) -> list[Item]:
        """Everything that waits, taken out: the variant stops or its model is unavailable."""
        items = list(self.waiting())
        self.discard(items, probes=True)
        return items

    def waiting(self) -> Iterator[Item]:
        return iter(self._contents.items.values())
