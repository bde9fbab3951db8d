"""All that waits of one version: the items, and the orders they stand in."""

from collections.abc import Hashable

from forwardpass.batching.classes import ALONE, NAMES, rank_of
from forwardpass.batching.forecast import NOTHING, Work
from forwardpass.batching.lines import Group, Line
from forwardpass.batching.room import Room
from forwardpass.batching.shares import Lane, charge_of
from forwardpass.batching.ticket import Item


class Contents:
    """``items`` by number, ``lanes`` by rank, ``groups`` by key; ``rows`` and ``bytes`` are the sums over all.

    ``room``: the requests of which nothing has left yet, once they are added there.
    """

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        self.lanes = [Lane() for _ in range(len(NAMES) + 1)]
        self.groups: dict[Hashable, Group] = {}
        self.room = Room()
        self.rows = 0
        self.bytes = 0
        self._last_number = 0
        self._for_worker: dict[int | None, int] = {}  # how many items; None: for any

    def push(self, item: Item) -> None:
        self._last_number += 1
        item.number = self._last_number
        self.items[item.number] = item
        self.rows += item.rows
        self.bytes += item.bytes_total
        self._for_worker[item.worker] = self._for_worker.get(item.worker, 0) + 1
        group = self.groups.get(item.key)
        if group is None:
            group = self.groups[item.key] = Group(item.worker, self.items)
        group.push(item)
        rank = rank_in(item)
        share = self.lanes[rank].push(item)
        line = share.lines.get(item.key)
        if line is None:
            line = share.lines[item.key] = group.lines[rank, item.tenant] = Line(item.worker, self.items)
        line.push(item)

    def charge(self, item: Item) -> None:
        """It is about to leave for a batch: its tenant has had so much more."""
        self.lanes[rank_in(item)].shares[item.tenant].tag += charge_of(item)

    def leave(self, item: Item) -> None:
        self.room.touched(item.ticket)
        del self.items[item.number]
        item.number = 0
        self.rows -= item.rows
        self.bytes -= item.bytes_total
        self._for_worker[item.worker] -= 1
        rank, group = rank_in(item), self.groups[item.key]
        line = group.lines[rank, item.tenant]
        line.left()
        if not line.items:
            del self.lanes[rank].shares[item.tenant].lines[item.key], group.lines[rank, item.tenant]
        self.lanes[rank].left(item)
        group.left(item)
        if not group.items:
            del self.groups[item.key]

    def anything_for(self, worker: int) -> bool:
        return bool(self._for_worker.get(None) or self._for_worker.get(worker))

    def next_for(self, worker: int) -> Item | None:
        """Whose turn it is of those this worker may run."""
        for lane in self.lanes:
            for share in lane.in_turn():
                line = share.first(worker)
                if line is not None:
                    return self.items[line.head()[2]]
        return None

    def ahead_of(self, item: Item) -> Work:
        """What would be served before an item that came now."""
        rank = rank_in(item)
        return self._work_before(rank, self.lanes[rank].ahead_of(item))

    def behind_class(self, rank: int) -> Work:
        """All that waits of that class and of those before it."""
        return self._work_before(rank + 1, NOTHING)

    def _work_before(self, rank: int, work: Work) -> Work:
        for lane in self.lanes[:rank]:
            if lane.items:
                work = work.plus(Work(lane.rows, lane.cost, lane.items))
        return work


def rank_in(item: Item) -> int:
    return ALONE if item.alone else rank_of(item.priority)
