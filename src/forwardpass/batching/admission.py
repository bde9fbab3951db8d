"""Who may come into the queue: where there is room, or others make room, and the answer is predicted to be in time.

Whole requests make room, none of which anything was taken yet. First those of lower classes, the lowest first; then, in
the newcomer's own class, those of tenants that would still hold as much as the newcomer's with it (the longest queue
drops: Suter, Lakshman, Stiliadis, Choudhury, INFOCOM 1998). Of a class the tenant that holds the most goes first, and of
a tenant what has the longest until its deadline.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from forwardpass.batching.contents import Contents
from forwardpass.batching.forecast import HEADROOM, Forecast, Work, retry_after_s
from forwardpass.batching.shares import BYTES, ROWS, Share
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Queue as Limits

Amount = tuple[int, int]


class Newcomer(NamedTuple):
    """A request, and what it would add to the queue."""

    items: Sequence[Item]
    rows: int
    bytes: int
    cost: float


class Admission:
    """``admit`` decides; it takes in nothing itself."""

    def __init__(self, limits: Limits, forecast: Forecast, contents: Contents, clock: Clock) -> None:
        self._limits = limits
        self._forecast = forecast
        self._contents = contents
        self._clock = clock

    def admit(self, items: Sequence[Item], rows: int, size: int, cost: float) -> None:
        """A request of so much may come: there is room, for which others may have had to leave, if it had none.

        Raises Failed queue_full, queue_bytes_full, queue_wait_too_long, and then nobody has left. An empty queue has
        room for any, and so has one from which all must leave for it.
        """
        now, contents, limits = self._clock(), self._contents, self._limits
        if contents.rows + rows <= limits.rows_max and contents.bytes + size <= limits.bytes_max:
            kinds = len(contents.groups) + (1 if len(items) == 1 else len({item.key for item in items}))
            count = len(contents.items) + len(items)
            ends_s = self._forecast.ends_in_s(now, contents.rows + rows, contents.cost + cost, count, kinds)
            in_time = ends_s <= limits.wait_max_s and ends_s * HEADROOM <= items[0].ticket.deadline - now
            if in_time and items[0].held is None:
                return  # behind all that waits, too: no need to know who is before whom
        newcomer = Newcomer(items, rows, size, cost)
        over = self._over(newcomer)
        ahead = self._contents.ahead_of(newcomer.items[0])
        wait_s, run_s = self._predict_s(now, newcomer, ahead)
        room = Room(self._contents, newcomer, over)
        if not room.possible():
            raise self._full(newcomer, wait_s)
        self._refuse_late(newcomer, now, ahead, wait_s, run_s)
        if over != (0, 0):
            leaving = room.leaving()
            if leaving is None:
                raise self._full(newcomer, wait_s)
            for request in leaving:
                self._shed(request, newcomer, wait_s)

    def predicted_wait_s(self, rank: int) -> float:
        """How long one more row of that class, whose deadline is far, would wait behind all of it."""
        work = self._contents.behind_class(rank).plus(Work(1.0, 1.0, 1.0))
        return self._forecast.wait_and_run_s(self._clock(), work)[0] + self._forecast.company_s(work)

    def _predict_s(self, now: float, newcomer: Newcomer, ahead: Work) -> tuple[float, float]:
        items = newcomer.items
        own = Work(newcomer.rows, newcomer.cost, len(items), self._contents.new_kinds(items))
        return self._forecast.wait_and_run_s(now, ahead.plus(own), items[0].worker)

    def _refuse_late(self, newcomer: Newcomer, now: float, ahead: Work, wait_s: float, run_s: float) -> None:
        """Its first batch may wait for so long, and all of it must be there before the deadline."""
        most_s, first_s = self._limits.wait_max_s, wait_s
        if wait_s > most_s and len(newcomer.items) > 1:
            first = newcomer.items[:1]
            first_s = self._predict_s(now, Newcomer(first, first[0].rows, 0, first[0].cost), ahead)[0]
        if first_s > most_s:
            text = f"queue.wait_max_s: the predicted wait is {first_s:.3f} s; at most {most_s:g} s are allowed"
            raise _too_long(text, first_s)
        left_s = newcomer.items[0].ticket.deadline - now
        if (wait_s + run_s) * HEADROOM > left_s:
            text = f"deadline: the answer is predicted in {wait_s + run_s:.3f} s; {max(0.0, left_s):.3f} s are left"
            raise _too_long(text, wait_s)

    def _over(self, newcomer: Newcomer) -> Amount:
        """By how much the queue would be too full with it; no more than what waits."""
        rows, size = self._held()
        return (
            min(max(0, rows + newcomer.rows - self._limits.rows_max), rows),
            min(max(0, size + newcomer.bytes - self._limits.bytes_max), size),
        )

    def _held(self) -> tuple[int, int]:
        """Rows and bytes that wait; what is left of requests that have begun never fills more than half of the queue."""
        contents, limits = self._contents, self._limits
        return (
            contents.rows - max(0, contents.staying[ROWS] - limits.rows_max // 2),
            contents.bytes - max(0, contents.staying[BYTES] - limits.bytes_max // 2),
        )

    def _shed(self, leaving: Sequence[Item], newcomer: Newcomer, wait_s: float) -> None:
        lower = leaving[0].rank > newcomer.items[0].rank
        whom = "more urgent work" if lower else "a tenant that holds less of it"
        text = f"queue: it is full, and this request made room for {whom}"
        for item in leaving:  # before it is told, and forgets what still waits for it
            self._contents.leave(item)
        leaving[0].ticket.finish(Failed(Code.SHED, text, retry_after_s=retry_after_s(wait_s)))

    def _full(self, newcomer: Newcomer, wait_s: float) -> Failed:
        rows, size = (held + more for held, more in zip(self._held(), (newcomer.rows, newcomer.bytes), strict=True))
        code, bound, value, most = Code.QUEUE_FULL, "rows_max", rows, self._limits.rows_max
        if rows <= most:
            code, bound, value, most = Code.QUEUE_BYTES_FULL, "bytes_max", size, self._limits.bytes_max
        text = f"queue.{bound}: the queue would hold {value}; at most {most} are allowed"
        return Failed(code, text, retry_after_s=retry_after_s(wait_s))


class Room:
    """How much must leave for a newcomer, and who does; chooses only."""

    def __init__(self, contents: Contents, newcomer: Newcomer, over: Amount) -> None:
        self._contents = contents
        self._rank, self._tenant = newcomer.items[0].rank, newcomer.items[0].tenant
        own = contents.classes[self._rank].shares.get(self._tenant)
        self._kept = (newcomer.rows + (own.rows if own else 0), newcomer.bytes + (own.bytes if own else 0))
        self._over = [*over]

    def possible(self) -> bool:
        """Whether there is so much that could leave, but for requests that are too large to."""
        return all(
            over
            <= sum([sum([held - least for held, least, _ in self._holders(rank, measure)]) for rank in self._ranks()])
            for measure, over in enumerate(self._over)
            if over
        )

    def leaving(self) -> list[Sequence[Item]] | None:
        """The requests that leave; None where that would not be enough."""
        found: dict[int, Sequence[Item]] = {}  # by the number of the first item
        for rank in self._ranks():
            for measure in (ROWS, BYTES):
                self._choose(rank, measure, found)
        return None if self._over[ROWS] > 0 or self._over[BYTES] > 0 else list(found.values())

    def _ranks(self) -> range:
        return range(len(self._contents.classes) - 1, self._rank - 1, -1)

    def _holders(self, rank: int, measure: int) -> list[tuple[int, int, Share]]:
        """What each holds that may have to leave some, and what it keeps at least."""
        shares = self._contents.classes[rank].shares.values()
        if rank > self._rank:
            return [(share.held(measure), 0, share) for share in shares]
        least = self._kept[measure]
        return [
            (held, least, share)
            for share in shares
            if share.tenant != self._tenant and (held := share.held(measure)) > least
        ]

    def _choose(self, rank: int, measure: int, found: dict[int, Sequence[Item]]) -> None:
        """Until nothing is over, of whoever holds the most; one whose leaving would take too much stays."""
        if self._over[measure] <= 0:
            return
        order = [(-held, share.number, least, share) for held, least, share in self._holders(rank, measure)]
        heapq.heapify(order)
        spared: list[tuple[Share, tuple[float, int]]] = []
        while order and self._over[measure] > 0:
            negative, number, least, share = order[0]
            if not share.latest():
                heapq.heappop(order)
                continue
            entry = heapq.heappop(share.latest())
            request = self._contents.request_of(-entry[1])
            if not request:
                continue
            spared.append((share, entry))
            amount = sum([item.rows for item in request]), sum([item.bytes_total for item in request])
            if request[0].number not in found and -negative - amount[measure] >= least:
                found[request[0].number] = request
                self._over[ROWS] -= amount[ROWS]
                self._over[BYTES] -= amount[BYTES]
                heapq.heapreplace(order, (negative + amount[measure], number, least, share))
        for share, entry in spared:  # whoever leaves surfaces and is forgotten
            heapq.heappush(share.latest(), entry)


def _too_long(text: str, wait_s: float) -> Failed:
    return Failed(Code.QUEUE_WAIT_TOO_LONG, text, retry_after_s=retry_after_s(wait_s))
