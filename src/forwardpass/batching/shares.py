"""Who is next: the most urgent class; in it each tenant in turn, in proportion to what it costs; of a tenant, by deadline.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), all of one weight, with its tags given when work leaves and
not when it comes: so a tenant's own order stays free. A tenant's tag is what it has been given; the least goes first.
One who was away is not given what it missed: it begins where the least served of the others is. To find the next costs
as much however many there are; to say what is before a newcomer, a step for each: good for about a thousand at once.

Only numbers stand in the orders here, each for an item as long as that waits by it: so nothing holds the bytes of one
that has left. Numbers of such stay until they surface or outnumber the others.
"""

import heapq
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping

from forwardpass.batching.forecast import NOTHING, Work
from forwardpass.batching.ticket import Item
from forwardpass.core.caller import PRIORITIES, Priority

NAMES: tuple[Priority, ...] = tuple(sorted(PRIORITIES, key=lambda name: PRIORITIES[name]))
"""The classes in order. A request's number says its class, and its place in it: 1 to 4 is critical, 5 to 8 standard."""
ALONE = 0
"""The rank of what must run alone to be cleared or blamed: before all classes, whose ranks are 1 and up."""
SLOT_S = 0.0625
"""Deadlines this near to each other count as one when it is asked what is before a newcomer."""
GONE_MAX = 1024
"""Tags kept of tenants that have nothing waiting but were given more than others."""
SPARE_ENTRIES = 64
ROWS, BYTES = 0, 1
"""The two measures of what is held, which both have a bound."""
_BEGINS = [PRIORITIES[name] for name in NAMES]

Slot = tuple[int, int]
Entry = tuple[int, float, int]
"""Priority, deadline, number: that is the order of a line."""


def rank_of(priority: int) -> int:
    """The class of a priority, 1 the most urgent: the last one that begins at it or before."""
    return bisect_right(_BEGINS, priority) or 1


def rank(item: Item) -> None:
    """Say of an item which class it is in and what it counts for; before it is asked for or pushed anywhere.

    That is its cost, but at least its rows, so that nobody can declare themselves out of it; in whole numbers, since what
    is added up here is taken apart again, and nothing must be left over.
    """
    priority, cost, rows = item.priority, item.cost, item.rows
    item.rank = ALONE if item.alone else _RANKS[priority] if priority < len(_RANKS) else len(NAMES)
    item.charge = rows if cost <= rows else round(cost)


_RANKS = [rank_of(priority) for priority in range(_BEGINS[-1] + 1)]


def slot_of(item: Item) -> Slot:
    return item.priority, int(item.ticket.deadline / SLOT_S)


class Line:
    """Items of one key, class and tenant. Never asked when it is empty; ``waiting``: all that wait, by number."""

    __slots__ = ("_entries", "_waiting", "items", "worker")

    def __init__(self, worker: int | None, waiting: Mapping[int, Item]) -> None:
        self.worker = worker
        self.items = 0
        self._waiting = waiting
        self._entries: list[Entry] = []

    def __iter__(self) -> Iterator[Item]:
        """In no order."""
        return (self._waiting[entry[2]] for entry in self._entries if entry[2] in self._waiting)

    def push(self, item: Item) -> None:
        self.items += 1
        heapq.heappush(self._entries, (item.priority, item.ticket.deadline, item.number))

    def head(self) -> Entry:
        while self._entries[0][2] not in self._waiting:
            heapq.heappop(self._entries)
        return self._entries[0]

    def put_by(self) -> Entry | None:
        """The next one, taken out of the order though it still waits, until it is ``put_back``; None after the last."""
        while self._entries:
            entry = heapq.heappop(self._entries)
            if entry[2] in self._waiting:
                return entry
        return None

    def put_back(self, entry: Entry) -> None:
        heapq.heappush(self._entries, entry)

    def left(self) -> None:
        """One of its items waits no more."""
        self.items -= 1
        if len(self._entries) > SPARE_ENTRIES and len(self._entries) > 2 * self.items:
            self._entries = [entry for entry in self._entries if entry[2] in self._waiting]
            heapq.heapify(self._entries)


class Share:
    """What one tenant has waiting in one class. ``tag``: see above; ``lines``: by key; ``staying``: what has begun.

    ``slots`` and ``latest`` are made when they are first asked for, and kept up from then on: most never are.
    """

    __slots__ = (
        "_latest", "_slots", "bytes", "charge", "cost", "items", "lines", "number", "ordered", "rows", "staying", "tag",
        "tenant",
    )  # fmt: skip

    def __init__(self, tenant: str, tag: int, number: int) -> None:
        self.tenant = tenant
        self.tag = tag
        self.number = number
        self.lines: dict[Hashable, Line] = {}
        self.items = 0
        self.rows = 0
        self.bytes = 0
        self.cost = 0.0
        self.charge = 0
        self.staying = [0, 0]
        self.ordered = False
        self._slots: dict[Slot, int] | None = None
        self._latest: list[tuple[float, int]] | None = None

    def note(self, item: Item) -> None:
        """It came."""
        if self._slots is not None:
            slot = slot_of(item)
            self._slots[slot] = self._slots.get(slot, 0) + item.charge
        if self._latest is not None:
            heapq.heappush(self._latest, (-item.ticket.deadline, -item.number))

    def forget(self, item: Item) -> None:
        if self._slots is not None:
            slot = slot_of(item)
            self._slots[slot] -= item.charge
            if not self._slots[slot]:
                del self._slots[slot]
        if self._latest is not None and len(self._latest) > SPARE_ENTRIES + 2 * self.items:
            self._latest = None

    def held(self, measure: int) -> int:
        """How much may be made to leave."""
        return (self.rows if measure == ROWS else self.bytes) - self.staying[measure]

    def before(self, slot: Slot) -> int:
        """What its charge is that would leave before one of this slot."""
        if self._slots is None:
            self._slots, self.ordered = {}, True
            for line in self.lines.values():
                for item in line:
                    found = slot_of(item)
                    self._slots[found] = self._slots.get(found, 0) + item.charge
        return sum([charge for each, charge in self._slots.items() if each <= slot])

    def latest(self) -> list[tuple[float, int]]:
        """A heap of deadlines and numbers, both negative, the last deadline in front; also of some that have left."""
        if self._latest is None:
            items = [item for line in self.lines.values() for item in line]
            self._latest = [(-item.ticket.deadline, -item.number) for item in items]
            heapq.heapify(self._latest)
            self.ordered = True
        return self._latest

    def first(self, worker: int) -> Line | None:
        """The line whose head is its most urgent of those this worker may run."""
        if len(self.lines) == 1:
            (only,) = self.lines.values()
            return only if only.worker is None or only.worker == worker else None
        lines = [line for line in self.lines.values() if line.worker is None or line.worker == worker]
        return min(lines, key=Line.head, default=None)


class PriorityClass:
    """Its tenants that have something waiting, and the sums over them. ``keys``: how many lines there are of each."""

    def __init__(self) -> None:
        self.shares: dict[str, Share] = {}
        self.items = 0
        self.rows = 0
        self.cost = 0.0
        self.keys: dict[Hashable, int] = {}
        self._turns: list[tuple[int, int]] = []  # tag and number of each, where there are several; also older tags
        self._numbered: dict[int, Share] = {}
        self._gone: dict[str, int] = {}
        self._numbers = 0

    def push(self, item: Item) -> Share:
        share = self.shares.get(item.tenant)
        if share is None:
            share = self._join(item.tenant)
        rows, cost = item.rows, item.cost
        share.items += 1
        share.rows += rows
        share.bytes += item.bytes_total
        share.cost += cost
        share.charge += item.charge
        if share.ordered:
            share.note(item)
        self.items += 1
        self.rows += rows
        self.cost += cost
        return share

    def left(self, share: Share, item: Item) -> None:
        """It waits no more, and is in no line."""
        rows, cost = item.rows, item.cost
        share.items -= 1
        share.rows -= rows
        share.bytes -= item.bytes_total
        share.cost -= cost
        share.charge -= item.charge
        if share.ordered:
            share.forget(item)
        self.items -= 1
        self.rows -= rows
        self.cost -= cost
        if not share.items:
            self._leave(share)

    def charge(self, share: Share, charge: int) -> None:
        """Its tenant has had so much more."""
        share.tag += charge
        if len(self.shares) > 1:
            heapq.heappush(self._turns, (share.tag, share.number))
            if len(self._turns) > SPARE_ENTRIES + 2 * len(self.shares):
                self._order()

    def next_for(self, worker: int) -> Line | None:
        """The line of whose turn it is, of those this worker may run."""
        if not self.shares:
            return None
        line = self._least().first(worker)
        if line is not None or len(self.shares) == 1:
            return line
        in_turn = sorted(self.shares.values(), key=lambda share: (share.tag, share.number))
        return next((line for share in in_turn if (line := share.first(worker)) is not None), None)

    def all(self) -> Work:
        return Work(self.rows, self.cost, self.items, len(self.keys))

    def ahead_of(self, item: Item) -> Work:
        """What of this class would be served before an item that came now."""
        if not self.shares:
            return NOTHING
        own = self.shares.get(item.tenant)
        before = 0 if own is None else own.before(slot_of(item))
        level = before + (self._tag(item.tenant) if own is None else own.tag)
        rows = cost = items = kinds = 0.0
        for share in self.shares.values():
            part = before if share is own else level - share.tag
            if part > 0:
                fraction = part / share.charge if part < share.charge else 1.0
                rows += fraction * share.rows
                cost += fraction * share.cost
                items += fraction * share.items
                kinds += fraction * len(share.lines)
        return Work(rows, cost, items, min(kinds, len(self.keys)))

    def _join(self, tenant: str) -> Share:
        self._numbers += 1
        share = Share(tenant, self._tag(tenant), self._numbers)
        self.shares[tenant] = share
        self._numbered[share.number] = share
        if self._gone:
            self._gone.pop(tenant, None)
        if len(self.shares) == 2:
            self._order()
        elif len(self.shares) > 2:
            heapq.heappush(self._turns, (share.tag, share.number))
        return share

    def _leave(self, share: Share) -> None:
        del self.shares[share.tenant], self._numbered[share.number]
        if not self.shares:
            self._gone.clear()
            self.cost = 0.0  # what adding and taking away left over
            return
        least = self._least().tag
        if share.tag > least:
            self._gone[share.tenant] = share.tag
        if len(self._gone) > GONE_MAX:
            self._gone = {tenant: tag for tenant, tag in self._gone.items() if tag > least}
            if len(self._gone) > GONE_MAX // 2:
                self._gone.clear()

    def _tag(self, tenant: str) -> int:
        return max(self._least().tag, self._gone.get(tenant, 0)) if self.shares else 0

    def _least(self) -> Share:
        """The least served; there is one."""
        if len(self.shares) == 1:
            (only,) = self.shares.values()
            return only
        while True:
            tag, number = self._turns[0]
            share = self._numbered.get(number)
            if share is not None and share.tag == tag:
                return share
            heapq.heappop(self._turns)

    def _order(self) -> None:
        self._turns = [(share.tag, share.number) for share in self.shares.values()]
        heapq.heapify(self._turns)


def work_before(classes: Iterable[PriorityClass], work: Work) -> Work:
    """That and all of these classes."""
    for each in classes:
        if each.items:
            work = work.plus(each.all())
    return work
