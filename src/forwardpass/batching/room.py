"""Who leaves when there is no room for somebody who comes: whole requests of which nothing has been taken yet.

First those of lower classes, the lowest first; then, in the newcomer's own class, those of tenants that would still hold
more than the newcomer's with it (the longest queue drops: Suter, Lakshman, Stiliadis, Choudhury, INFOCOM 1998). Of a
class the tenant that holds the most goes first, and of a tenant what has the longest until its deadline.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from forwardpass.batching.classes import rank_of
from forwardpass.batching.lines import SPARE_ENTRIES
from forwardpass.batching.ticket import Item, Ticket

ROWS, BYTES = 0, 1
"""The two measures of what is held: places in the lists below."""

Amount = tuple[int, int]


class Request(NamedTuple):
    """The items of one that waits as a whole."""

    number: int
    items: tuple[Item, ...]
    amount: Amount


class _Holding:
    """Of one tenant in one class, the requests that may be made to leave, by number."""

    __slots__ = ("_order", "amount", "requests")

    def __init__(self) -> None:
        self.requests: dict[int, Request] = {}
        self.amount = [0, 0]
        self._order: list[tuple[float, int]] = []  # the last deadline in front; also of some that left

    def add(self, request: Request) -> None:
        self.requests[request.number] = request
        heapq.heappush(self._order, (-request.items[0].ticket.deadline, -request.number))
        self.amount[ROWS] += request.amount[ROWS]
        self.amount[BYTES] += request.amount[BYTES]

    def remove(self, request: Request) -> None:
        del self.requests[request.number]
        self.amount[ROWS] -= request.amount[ROWS]
        self.amount[BYTES] -= request.amount[BYTES]
        if len(self._order) > SPARE_ENTRIES and len(self._order) > 2 * len(self.requests):
            self._order = [entry for entry in self._order if -entry[1] in self.requests]
            heapq.heapify(self._order)

    def last(self) -> Request:
        while -self._order[0][1] not in self.requests:
            heapq.heappop(self._order)
        return self.requests[-self._order[0][1]]


class Room:
    """The requests that wait as a whole. Who makes one leave ends it and takes its items out of the queue."""

    def __init__(self) -> None:
        self._requests: dict[Ticket, Request] = {}
        self._holdings: dict[int, dict[str, _Holding]] = {}

    def add(self, items: Sequence[Item]) -> None:
        """A request has come, with all its items."""
        first = items[0]
        request = Request(first.number, tuple(items), amount_of(items))
        self._requests[first.ticket] = request
        self._holdings.setdefault(rank_of(first.priority), {}).setdefault(first.tenant, _Holding()).add(request)

    def touched(self, ticket: Ticket) -> None:
        """One of its items waits no more: from now on the request is none of those that may be made to leave."""
        request = self._requests.pop(ticket, None)
        if request is None:
            return
        first = request.items[0]
        holdings = self._holdings[rank_of(first.priority)]
        holding = holdings[first.tenant]
        holding.remove(request)
        if not holding.requests:
            del holdings[first.tenant]

    def can_make(self, over: Amount, items: Sequence[Item]) -> bool:
        """Whether so much would leave for these, in each of the measures that is over."""
        return all(over[measure] <= 0 or self._sum(measure, items) >= over[measure] for measure in (ROWS, BYTES))

    def next_to_leave(self, over: Amount, items: Sequence[Item]) -> Request:
        """Where ``can_make`` said yes, and as long as something is over: who leaves next for these."""
        measure = ROWS if over[ROWS] > 0 else BYTES
        own, tenant = rank_of(items[0].priority), items[0].tenant
        lower = [rank for rank, holdings in self._holdings.items() if rank > own and holdings]
        holdings = self._holdings[max(lower, default=own)]
        among = holdings.items() if lower else [each for each in holdings.items() if each[0] != tenant]
        return max(among, key=lambda each: each[1].amount[measure])[1].last()

    def _sum(self, measure: int, items: Sequence[Item]) -> int:
        own, tenant = rank_of(items[0].priority), items[0].tenant
        total = 0
        for rank, holdings in self._holdings.items():
            if rank > own:
                total += sum([holding.amount[measure] for holding in holdings.values()])
        mates = self._holdings.get(own, {})
        kept = amount_of(items)[measure] + (mates[tenant].amount[measure] if tenant in mates else 0)
        return total + sum(
            [max(0, holding.amount[measure] - kept) for name, holding in mates.items() if name != tenant]
        )


def amount_of(items: Sequence[Item]) -> Amount:
    return sum([item.rows for item in items]), sum([item.bytes_total for item in items])
