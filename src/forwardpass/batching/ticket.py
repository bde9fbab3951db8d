"""A request's claim on an answer: it ends exactly once, whoever comes first."""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.request import Note
from forwardpass.core.tensor import Buffer
from forwardpass.core.timeline import BatchReport


@dataclass(slots=True)  # not frozen: made for every request, and that costs three times as much
class OutputColumn:
    """One output of one item: ``data`` holds the item's successful rows, each of ``shape``."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Buffer


@dataclass(slots=True)  # not frozen: made for every request, and that costs three times as much
class ItemResult:
    """What a worker made of one item. ``rows`` succeeded; ``failures`` and ``notes`` count rows within the item."""

    rows: int
    outputs: Sequence[OutputColumn]
    failures: Mapping[int, Failure]
    notes: Sequence[Note]
    batch: BatchReport


class Ticket:
    """Collects the parts of one request. ``finish`` is the only way to end it, and only its first call counts.

    ``wait`` returns the parts in order or raises the Failure that ended the request. A caller that stops waiting
    (cancelled) ends it too.
    """

    __slots__ = ("_future", "_missing", "_parts", "deadline")

    def __init__(self, parts: int, deadline: float) -> None:
        self.deadline = deadline
        self._parts: list[ItemResult | None] = [None] * parts
        self._missing = parts
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def done(self) -> bool:
        return self._future.done()

    def deliver(self, part: int, result: ItemResult) -> None:
        """One part's result; the last one ends the request. A second result for a part is a defect of ours."""
        if self.done:
            return
        assert self._parts[part] is None, f"part {part} was delivered twice"
        self._parts[part] = result
        self._missing -= 1
        if self._missing == 0:
            self.finish(None)

    def finish(self, failure: Failure | None) -> bool:
        """End the request; False when it had ended before."""
        if self._future.done():
            return False
        if failure is None:
            assert self._missing == 0, "a request ended well before all its parts were in"
            self._future.set_result(None)
        else:
            self._future.set_exception(failure)
        return True

    async def wait(self, clock: Clock) -> list[ItemResult]:
        """The parts, in order. Raises the Failure that ended the request, deadline_exceeded among them."""
        timer = self._future.get_loop().call_later(max(0.0, self.deadline - clock()), self._expire)
        try:
            await self._future
        finally:
            timer.cancel()
        return [part for part in self._parts if part is not None]

    def _expire(self) -> None:
        self.finish(Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the answer was ready"))


@dataclass(slots=True, eq=False)
class Item:
    """The rows of one request that run together: what the queue orders and a batch is made of."""

    ticket: Ticket
    part: int
    columns: Sequence[Buffer]  # one per column of the signature: this item's rows
    shapes: Sequence[tuple[int, ...]]  # row shape per column
    rows: int
    cost: float
    bytes_total: int
    key: Hashable  # only items with equal keys share a batch
    priority: int  # 1 first
    queued_s: float
    alone: bool = False  # runs in a batch of its own: a member of a batch whose worker died
    deaths: int = 0  # workers that died with it
    waiting: bool = field(default=False)

    @property
    def live(self) -> bool:
        """Somebody still wants it."""
        return not self.ticket.done
