"""What a batch is made of: a group's items in their order, without those that would run for nobody."""

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forwardpass.batching.lines import Entry, Group, Line
from forwardpass.batching.shares import Lane, charge_of
from forwardpass.batching.ticket import Item


class Filled(NamedTuple):
    """``over``: nobody waits for them any more. ``late``: they would run for nobody, and took the place of others."""

    taken: list[Item]
    over: list[Item]
    late: list[Item]


class Filling:
    """One batch of at most ``rows_max`` rows and ``cost_max``, that starts in so many seconds.

    ``ready_in_s``, where it is set, is when its answers come: what is over before that is passed over, so that under
    pressure whole batches are in time (the early drop of Shen et al., Nexus, SOSP 2019). If nothing else is there, it runs.
    """

    def __init__(self, rows_max: int, cost_max: float | None, now: float, starts_in_s: float) -> None:
        self._rows_max = rows_max
        self._cost_max = cost_max
        self._now = now
        self._starts_s = now + starts_in_s if starts_in_s > 0.0 else now
        self.ready_in_s = 0.0

    def fill(self, group: Group, lanes: Sequence[Lane], waiting: Mapping[int, Item]) -> Filled:
        """Chooses only; the items are still in the queue."""
        taken: list[Item] = []
        over: list[Item] = []
        late: list[tuple[Line, Entry]] = []
        later: list[tuple[Line, Entry]] = []
        rows, cost = 0, 0.0
        ready_s = self._starts_s + self.ready_in_s
        order = [_place(rank, lanes[rank], tenant, line) for (rank, tenant), line in group.lines.items()]
        heapq.heapify(order)
        while order:
            rank, tag, number, line = order[0]
            entry = line.put_by()
            if entry is None:
                heapq.heappop(order)
                continue
            item = waiting[entry[2]]
            deadline = item.ticket.deadline
            if not item.alone and (item.ticket.done or deadline <= self._now):
                over.append(item)
            elif not item.alone and deadline <= self._starts_s:
                later.append((line, entry))
            elif not item.alone and deadline < ready_s:
                late.append((line, entry))
            else:
                rows += item.rows
                cost += item.cost
                full = rows > self._rows_max or (self._cost_max is not None and cost > self._cost_max)
                if taken and full:
                    later.append((line, entry))
                    break
                taken.append(item)
                heapq.heapreplace(order, (rank, tag + charge_of(item), number, line))
        for line, entry in later if taken else later + late:
            line.put_back(entry)
        if late and not taken and self.ready_in_s:
            self.ready_in_s = 0.0
            again = self.fill(group, lanes, waiting)
            return Filled(again.taken, over + again.over, [])
        return Filled(taken, over, [waiting[entry[2]] for _, entry in late] if taken else [])


def _place(rank: int, lane: Lane, tenant: str, line: Line) -> tuple[int, int, int, Line]:
    share = lane.shares[tenant]
    return rank, share.tag, share.number, line
