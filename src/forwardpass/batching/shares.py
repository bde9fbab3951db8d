"""Who is next among the tenants of a class: each in turn, in proportion to what it costs.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), all of one weight, with its tags given when work leaves and
not when it comes: so a tenant's own order stays free. A tenant's tag is what it has been given; the least goes first.
One who was away is not given what it missed: it begins where the least served of the others is.
"""

from collections.abc import Hashable, Iterable

from forwardpass.batching.forecast import NOTHING, Work
from forwardpass.batching.lines import Line
from forwardpass.batching.ticket import Item

SLOT_S = 0.0625
"""Deadlines this near to each other count as one when it is asked what is before a newcomer."""
GONE_MAX = 1024
"""Tags kept of tenants that have nothing waiting but were given more than others."""

Slot = tuple[int, int]


def charge_of(item: Item) -> int:
    """What an item counts for: its cost, but at least its rows, so that nobody can declare themselves out of it.

    Whole numbers: what is added up here is taken apart again, and nothing must be left over.
    """
    return max(round(item.cost), item.rows)


def slot_of(item: Item) -> Slot:
    return item.priority, int(item.ticket.deadline / SLOT_S)


class Share:
    """What one tenant has waiting in one class. ``tag``: see above; ``lines``: by key."""

    __slots__ = ("_last", "_slots", "bytes", "charge", "cost", "items", "lines", "number", "rows", "tag", "tenant")

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
        self._slots: dict[Slot, int] = {}
        self._last: Slot = (0, 0)

    def push(self, item: Item) -> None:
        self.items += 1
        self.rows += item.rows
        self.bytes += item.bytes_total
        self.cost += item.cost
        charge, slot = charge_of(item), slot_of(item)
        self.charge += charge
        self._slots[slot] = self._slots.get(slot, 0) + charge
        self._last = max(self._last, slot)

    def left(self, item: Item) -> None:
        self.items -= 1
        self.rows -= item.rows
        self.bytes -= item.bytes_total
        self.cost -= item.cost
        charge, slot = charge_of(item), slot_of(item)
        self.charge -= charge
        rest = self._slots[slot] - charge
        if rest:
            self._slots[slot] = rest
        else:
            del self._slots[slot]

    def before(self, slot: Slot) -> int:
        """What its charge is that would leave before one of this slot."""
        if slot >= self._last:
            return self.charge
        return sum([charge for each, charge in self._slots.items() if each <= slot])

    def first(self, worker: int) -> Line | None:
        """The line whose head is its most urgent of those this worker may run."""
        lines = [line for line in self.lines.values() if line.worker is None or line.worker == worker]
        if len(lines) < 2:
            return lines[0] if lines else None
        return min(lines, key=Line.head)


class Lane:
    """One class: its tenants that have something waiting, and the sums over them."""

    def __init__(self) -> None:
        self.shares: dict[str, Share] = {}
        self.items = 0
        self.rows = 0
        self.cost = 0.0
        self._gone: dict[str, int] = {}
        self._numbers = 0

    def push(self, item: Item) -> Share:
        share = self.shares.get(item.tenant)
        if share is None:
            self._numbers += 1
            share = Share(item.tenant, self._tag(item.tenant), self._numbers)
            self.shares[item.tenant] = share
            self._gone.pop(item.tenant, None)
        share.push(item)
        self.items += 1
        self.rows += item.rows
        self.cost += item.cost
        return share

    def left(self, item: Item) -> None:
        """It waits no more, and is in no line."""
        share = self.shares[item.tenant]
        share.left(item)
        self.items -= 1
        self.rows -= item.rows
        self.cost -= item.cost
        if not share.items:
            self._leave(share)

    def in_turn(self) -> Iterable[Share]:
        """The least served first."""
        if len(self.shares) < 2:
            return self.shares.values()
        return sorted(self.shares.values(), key=lambda share: (share.tag, share.number))

    def ahead_of(self, item: Item) -> Work:
        """What of this class would be served before an item that came now."""
        if not self.shares:
            return NOTHING
        own = self.shares.get(item.tenant)
        before = 0 if own is None else own.before(slot_of(item))
        level = before + (self._tag(item.tenant) if own is None else own.tag)
        rows = cost = items = 0.0
        for share in self.shares.values():
            part = before if share is own else level - share.tag
            if part > 0:
                fraction = part / share.charge if part < share.charge else 1.0
                rows += fraction * share.rows
                cost += fraction * share.cost
                items += fraction * share.items
        return Work(rows, cost, items)

    def _leave(self, share: Share) -> None:
        del self.shares[share.tenant]
        if not self.shares:
            self._gone.clear()
            self.cost = 0.0  # what adding and taking away left over
            return
        least = self._least()
        if share.tag > least:
            self._gone[share.tenant] = share.tag
        if len(self._gone) > GONE_MAX:
            self._gone = {tenant: tag for tenant, tag in self._gone.items() if tag > least}
            if len(self._gone) > GONE_MAX // 2:
                self._gone.clear()

    def _tag(self, tenant: str) -> int:
        return max(self._least(), self._gone.get(tenant, 0))

    def _least(self) -> int:
        return min([share.tag for share in self.shares.values()], default=0)
