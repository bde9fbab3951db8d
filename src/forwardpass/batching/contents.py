"""All that waits of one version, and what a batch is made of: a group's items in their order, none that is over."""

import heapq
from collections import deque
from collections.abc import Container, Hashable, Sequence
from typing import NamedTuple

from forwardpass.batching.alike import WINDOW_BATCHES, alike
from forwardpass.batching.forecast import NOTHING, Work
from forwardpass.batching.shares import (
    BYTES,
    NAMES,
    ROWS,
    SPARE_ENTRIES,
    Entry,
    Line,
    PriorityClass,
    Share,
    rank,
    work_before,
)
from forwardpass.batching.ticket import Item, Ticket


class Group:
    """All that waits by one key, for one worker only or for any (None). ``lines``: by class and tenant."""

    __slots__ = ("_arrivals", "_waiting", "cost", "items", "lines", "rows", "worker")

    def __init__(self, worker: int | None, waiting: Container[int]) -> None:
        self.worker = worker
        self.lines: dict[tuple[int, str], Line] = {}
        self.items = 0
        self.rows = 0
        self.cost = 0.0
        self._waiting = waiting
        self._arrivals: deque[tuple[int, float]] = deque()

    def push(self, item: Item) -> None:
        self.items += 1
        self.rows += item.rows
        self.cost += item.cost
        self._arrivals.append((item.number, item.queued_s))

    def left(self, item: Item) -> None:
        self.items -= 1
        self.rows -= item.rows
        self.cost -= item.cost
        if len(self._arrivals) > SPARE_ENTRIES and len(self._arrivals) > 2 * self.items:
            self._arrivals = deque(entry for entry in self._arrivals if entry[0] in self._waiting)

    def oldest_s(self) -> float:
        """When that came which waits the longest. It is not empty."""
        while self._arrivals[0][0] not in self._waiting:
            self._arrivals.popleft()
        return self._arrivals[0][1]

    def deadline(self) -> float:
        """The earliest of those that are next in their lines. It is not empty."""
        return min([line.head()[1] for line in self.lines.values()])


class Contents:
    """``items`` by number, ``classes`` by rank, ``groups`` by key; ``rows``, ``bytes`` and ``cost`` are the sums over all."""

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        self.classes = [PriorityClass() for _ in range(len(NAMES) + 1)]
        self.groups: dict[Hashable, Group] = {}
        self.rows = 0
        self.bytes = 0
        self.cost = 0.0
        self._last_number = 0
        self._pinned: dict[int, int] = {}  # how many items only this worker may run
        self._pinned_items = 0
        self._whole: dict[Ticket, Sequence[Item]] = {}  # requests of several items that all wait
        self.staying = [0, 0]  # rows and bytes of these:
        self._staying: set[int] = set()  # items whose request has begun, or that had been taken before

    def push(self, item: Item) -> None:
        """It was ranked before."""
        self._last_number = number = self._last_number + 1
        item.number = number
        self.items[number] = item
        self.cost += item.cost
        self.rows += item.rows
        self.bytes += item.bytes_total
        if item.held is not None:
            self._pinned[item.held.worker] = self._pinned.get(item.held.worker, 0) + 1
            self._pinned_items += 1
        its_class = self.classes[item.rank]
        share = its_class.push(item)
        key = item.key
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(item.worker, self.items)
        group.push(item)
        line = share.lines.get(key)
        if line is None:
            line = share.lines[key] = group.lines[item.rank, item.tenant] = Line(item.worker, self.items)
            its_class.keys[key] = its_class.keys.get(key, 0) + 1
        line.push(item)

    def push_whole(self, items: Sequence[Item]) -> None:
        """All of a request: it may be made to leave until the first of them has left."""
        for item in items:
            self.push(item)
        if len(items) > 1:
            self._whole[items[0].ticket] = items

    def push_back(self, item: Item) -> None:
        """It was taken before, and its tenant charged for what it has not had; it cannot be made to leave."""
        rank(item)
        self.push(item)
        its_class = self.classes[item.rank]
        share = its_class.shares[item.tenant]
        if not item.alone:  # that one ran
            its_class.charge(share, -item.charge)
        self._stay(item, share)

    def charge(self, items: Sequence[Item]) -> None:
        """They are about to leave for a batch."""
        if len(items) == 1:
            its_class = self.classes[items[0].rank]
            return its_class.charge(its_class.shares[items[0].tenant], items[0].charge)
        charges: dict[tuple[int, str], int] = {}
        for item in items:
            whose = item.rank, item.tenant
            charges[whose] = charges.get(whose, 0) + item.charge
        for (number, tenant), charge in charges.items():
            its_class = self.classes[number]
            its_class.charge(its_class.shares[tenant], charge)

    def leave(self, item: Item) -> None:
        number = item.number
        item.number = 0
        del self.items[number]
        self.cost = self.cost - item.cost if self.items else 0.0
        self.rows -= item.rows
        self.bytes -= item.bytes_total
        if item.held is not None:
            self._pinned[item.held.worker] -= 1
            self._pinned_items -= 1
        its_class, key = self.classes[item.rank], item.key
        share, group = its_class.shares[item.tenant], self.groups[key]
        if number in self._staying:
            self._staying.discard(number)
            share.staying[ROWS] -= item.rows
            share.staying[BYTES] -= item.bytes_total
            self.staying[ROWS] -= item.rows
            self.staying[BYTES] -= item.bytes_total
        elif self._whole:
            self._begin(item, share)
        line = share.lines[key]
        line.left()
        if not line.items:
            del share.lines[key], group.lines[item.rank, item.tenant]
            its_class.keys[key] -= 1
            if not its_class.keys[key]:
                del its_class.keys[key]
        its_class.left(share, item)
        group.left(item)
        if not group.items:
            del self.groups[key]

    def anything_for(self, worker: int) -> bool:
        return len(self.items) > self._pinned_items or bool(self._pinned.get(worker))

    def next_for(self, worker: int) -> Item | None:
        """Whose turn it is of those this worker may run."""
        for its_class in self.classes:
            line = its_class.next_for(worker) if its_class.items else None
            if line is not None:
                return self.items[line.head()[2]]
        return None

    def ahead_of(self, item: Item) -> Work:
        """What would be served before an item that came now."""
        return work_before(self.classes[: item.rank], self.classes[item.rank].ahead_of(item))

    def behind_class(self, number: int) -> Work:
        """All that waits of that class and of those before it."""
        return work_before(self.classes[: number + 1], NOTHING)

    def new_kinds(self, items: Sequence[Item]) -> int:
        """How many keys of these nobody waits by in their class and those before it."""
        before = self.classes[: items[0].rank + 1]
        return sum([all(key not in each.keys for each in before) for key in {item.key for item in items}])

    def request_of(self, number: int) -> Sequence[Item]:
        """All items of the request that this is of, if it may be made to leave; else none."""
        item = self.items.get(number)
        if item is None or number in self._staying:
            return ()
        return self._whole.get(item.ticket) or (item,)

    def _begin(self, item: Item, share: Share) -> None:
        """The rest of its request stays until it has its turn."""
        for other in self._whole.pop(item.ticket, ()):
            if other.number:
                self._stay(other, share)

    def _stay(self, item: Item, share: Share) -> None:
        self._staying.add(item.number)
        share.staying[ROWS] += item.rows
        share.staying[BYTES] += item.bytes_total
        self.staying[ROWS] += item.rows
        self.staying[BYTES] += item.bytes_total


class Chosen(NamedTuple):
    """``over``: nobody waits for them any more. ``late``: they would run for nobody, and others have their places."""

    taken: list[Item]
    over: list[Item]
    late: list[Item]


class Filling:
    """One batch of at most ``rows_max`` rows and ``cost_max``, that starts in so many seconds.

    ``ready_in_s``, where it is set, is when its answers come: what is over before that is passed over, so that under
    pressure whole batches are in time (the early drop of Shen et al., Nexus, SOSP 2019). Places that are left over are
    theirs: the prediction may be wrong. No more are ended than had to make way.
    """

    def __init__(self, rows_max: int, cost_max: float | None, now: float, starts_in_s: float) -> None:
        self._rows_max = rows_max
        self._cost_max = cost_max
        self._now = now
        self._starts_s = now + starts_in_s if starts_in_s > 0.0 else now
        self.ready_in_s = 0.0
        self._window = 1  # so many batches' worth is taken, and one made of that
        self._rows = 0
        self._cost = 0.0

    def choose(self, group: Group, contents: Contents) -> Chosen:
        """Chooses only; the items are still in the queue."""
        waiting = contents.items
        taken: list[Item] = []
        over: list[Item] = []
        late: list[tuple[Line, Entry]] = []
        later: list[tuple[Line, Entry]] = []
        now, starts_s, ready_s = self._now, self._starts_s, self._starts_s + self.ready_in_s
        order = _turns(group, contents.classes)
        several, full = len(order) > 1, False
        while order and not full:
            number, tag, joined, line = order[0]
            entry = line.put_by()
            if entry is None:
                heapq.heappop(order)
                continue
            item = waiting[entry[2]]
            deadline = entry[1]
            if item.alone:
                full = not self._take(item, taken)
            elif deadline <= now or item.ticket.done:
                over.append(item)
                continue
            elif deadline <= starts_s or deadline < ready_s:
                (later if deadline <= starts_s else late).append((line, entry))
                continue
            else:
                if item.length and not taken and self._too_many(group):
                    self._window = WINDOW_BATCHES
                full = not self._take(item, taken)
            if full:
                line.put_back(entry)
            elif several:
                heapq.heapreplace(order, (number, tag + item.charge, joined, line))
        if self._window > 1:
            taken, full = self._alike(taken, group)
        displaced: list[Item] = []
        places = self._rows  # what is in time has displaced so much
        for line, entry in late:
            item = waiting[entry[2]]
            if not full and self._take(item, taken):
                continue
            full = True
            if item.rows <= places:
                places -= item.rows
                displaced.append(item)
            else:
                later.append((line, entry))
        for line, entry in later:
            line.put_back(entry)
        return Chosen(taken, over, displaced)

    def _too_many(self, group: Group) -> bool:
        too_dear = self._cost_max is not None and group.cost > self._cost_max
        return self._rows_max > 0 and (group.rows > self._rows_max or too_dear)

    def _alike(self, items: list[Item], group: Group) -> tuple[list[Item], bool]:
        """Of those whose turn it is, the ones of about one length; and whether others were passed over for them."""
        taken, passed = alike(items, self._rows_max, self._cost_max, self._starts_s + 2.0 * self.ready_in_s)
        for item in passed:
            group.lines[item.rank, item.tenant].put_back((item.priority, item.ticket.deadline, item.number))
        self._window = 1
        self._rows, self._cost = sum([item.rows for item in taken]), sum([item.cost for item in taken])
        return taken, bool(passed)

    def _take(self, item: Item, taken: list[Item]) -> bool:
        """False when it does not fit; the first one always does."""
        rows, cost = self._rows + item.rows, self._cost + item.cost
        rows_max, cost_max = self._window * self._rows_max, self._cost_max
        if taken and (rows > rows_max or (cost_max is not None and cost > self._window * cost_max)):
            return False
        self._rows, self._cost = rows, cost
        taken.append(item)
        return True


def _turns(group: Group, classes: Sequence[PriorityClass]) -> list[tuple[int, int, int, Line]]:
    """A heap of its lines, each with its class's rank, its tenant's tag and number."""
    if len(group.lines) == 1:
        return [(0, 0, 0, line) for line in group.lines.values()]
    order = []
    for (number, tenant), line in group.lines.items():
        share = classes[number].shares[tenant]
        order.append((number, share.tag, share.number, line))
    heapq.heapify(order)
    return order
