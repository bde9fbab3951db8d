"""A request's claim on an answer: it ends exactly once, whoever comes first."""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from forwardpass.core.errors import Failure
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

    ``await ticket.ended`` returns when all parts are in, or raises the Failure that ended the request; a caller that
    stops waiting ends it too.
    """

    __slots__ = ("_missing", "_parts", "deadline", "ended")

    def __init__(self, parts: int, deadline: float) -> None:
        self.deadline = deadline
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parts: list[ItemResult | None] = [None] * parts
        self._missing = parts

    @property
    def done(self) -> bool:
        return self.ended.done()

    def parts(self) -> list[ItemResult]:
        """In order, once it has ended well."""
        return [part for part in self._parts if part is not None]

    def deliver(self, part: int, result: ItemResult) -> None:
        """One part's result; the last one ends the request. A second result for a part is a defect of ours."""
        if self.ended.done():
            return
        assert self._parts[part] is None, f"part {part} was delivered twice"
        self._parts[part] = result
        self._missing -= 1
        if self._missing == 0:
            self.ended.set_result(None)

    def finish(self, failure: Failure) -> bool:
        """End the request without an answer; False when it had ended before."""
        if self.ended.done():
            return False
        self.ended.set_exception(failure)
        return True


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
        return not self.ticket.ended.done()
