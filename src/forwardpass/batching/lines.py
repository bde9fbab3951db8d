"""Items in the order in which they leave, and what a batch can be made of: those of one key.

Only numbers stand here, each for an item as long as that waits by it: so nothing holds the bytes of one that has left.
Numbers of such stay until they surface or outnumber the others.
"""

import heapq
from collections import deque
from collections.abc import Container

from forwardpass.batching.ticket import Item

Entry = tuple[int, float, int]
"""Priority, deadline, number: that is the order."""

SPARE_ENTRIES = 64


class Line:
    """Items of one key, class and tenant. Never asked when it is empty; ``waiting`` are the numbers of all that wait."""

    __slots__ = ("_entries", "_waiting", "items", "worker")

    def __init__(self, worker: int | None, waiting: Container[int]) -> None:
        self.worker = worker
        self.items = 0
        self._waiting = waiting
        self._entries: list[Entry] = []

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
