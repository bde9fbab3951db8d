"""A request's claim on an answer: it ends exactly once, whoever comes first."""

import asyncio
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from forwardpass.core.errors import Failure
from forwardpass.core.request import Note
from forwardpass.core.tensor import Buffer, Tensor
from forwardpass.core.timeline import BatchReport


class Part(msgspec.Struct):
    """What a worker made of one item: ``rows`` succeeded and are in ``outputs``, in the order of the signature.

    ``failures`` and ``notes`` count rows within the item; ``failure`` is why the item as a whole has no answer.
    """

    rows: int
    outputs: Sequence[Tensor]
    failures: Mapping[int, Failure]
    notes: Sequence[Note]
    failure: Failure | None = None
    batch: BatchReport | None = None  # set when it is delivered
    tokens: int = 0  # that tokenizers made of the rows that succeeded


class Sharing(Protocol):
    """What a request's items have to do with equal items of others (see ``rollout/item_cache.py``)."""

    def landed(self, part: int, result: Part) -> None:
        """A part was answered, whether or not the request still waits for it."""

    def left(self) -> "Sequence[Item]":
        """The request has ended without an answer; returns what runs for it in others' place."""


class Ticket:
    """Collects the parts of one request. ``finish`` is the only way to end it, and only its first call counts.

    ``then`` is called once, when all parts are in or a Failure has ended it (``failure`` says which): at once, wherever
    that is, so it puts nothing into a queue that sheds or is past its deadline. ``await ticket.ended`` is the same for
    who waits; a caller that stops waiting ends it too.
    """

    __slots__ = ("_ended", "_future", "_missing", "_parts", "deadline", "failure", "request", "sharing", "then")

    def __init__(
        self, parts: int, deadline: float, request: str = "", then: "Callable[[Ticket], None] | None" = None
    ) -> None:
        self.deadline = deadline
        self.request = request  # its id, for the log
        self.failure: Failure | None = None
        self.then = then
        self.sharing: Sharing | None = None
        self._ended = False
        self._future: asyncio.Future[None] | None = None
        self._parts: list[Part | None] = [None] * parts
        self._missing = parts

    @property
    def done(self) -> bool:
        return self._ended or (self._future is not None and self._future.done())

    @property
    def ended(self) -> "asyncio.Future[None]":
        """Of the loop that first asks for it."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
            if self._ended:
                self._tell(self._future)
        return self._future

    @property
    def several(self) -> bool:
        """Whether its request was cut."""
        return len(self._parts) > 1

    def parts(self) -> list[Part]:
        """In order, once it has ended well."""
        return [part for part in self._parts if part is not None]

    def deliver(self, part: int, result: Part) -> None:
        """One part's result; the last one ends the request. A second result for a part is a defect of ours."""
        if self.sharing is not None:
            self.sharing.landed(part, result)
        if self.done:
            return
        assert self._parts[part] is None, f"part {part} was delivered twice"
        self._parts[part] = result
        self._missing -= 1
        if self._missing == 0:
            self._end(None)

    def finish(self, failure: Failure) -> bool:
        """End the request without an answer; False when it had ended before."""
        if self.done:
            return False
        self._end(failure)
        return True

    def _end(self, failure: Failure | None) -> None:
        self._ended, self.failure = True, failure
        if self._future is not None:
            self._tell(self._future)
        if self.then is not None:
            then, self.then = self.then, None  # it holds whoever holds this
            then(self)

    def _tell(self, future: "asyncio.Future[None]") -> None:
        if self.failure is None:
            future.set_result(None)
        else:
            future.set_exception(self.failure)


class Held(NamedTuple):
    """The worker that holds the sequence an item continues, the sequence's number there, and the item's place in it."""

    worker: int
    number: int
    start: bool
    end: bool


class Item(msgspec.Struct, eq=False):
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
    until_s: float = 0.0  # it waits so long to run alone, also when its caller has left
    deaths: int = 0  # workers that died with it
    number: int = 0  # by which the queue knows it while it waits there
    rank: int = 0  # of its priority class
    charge: int = 0  # what it counts for among tenants
    tenant: str = ""
    requests: int = 1  # that came as one, a row each
    taken: bool = False  # out of the queue for a batch, once at least
    result: Part | None = None  # what a worker said of it, whether or not somebody still wants to know
    held: Held | None = None
    left_s: float = math.inf  # when its worker was told that nobody waits for it any more
    sent: tuple[int, int] = (0, 0)  # as what: the number of the batch, and its place there
    length: int = 0  # of a row, where rows of a batch are filled up to the longest; 0 where they are not
    passed: int = 0  # batches that went without it though it was its turn
    suspect: bool = False  # its like ran on for nobody: it runs by itself, for as long as a batch may

    @property
    def waiting(self) -> bool:
        """In the queue now."""
        return self.number > 0

    @property
    def worker(self) -> int | None:
        """The only one that may run it."""
        return None if self.held is None else self.held.worker

    def take(self) -> None:
        """Out of the queue for a batch; of what runs for nobody, the worker keeps nothing."""
        self.taken = True
        if self.ticket.done and self.held is not None:
            self.held = self.held._replace(start=True, end=True)

    @property
    def live(self) -> bool:
        """Somebody still wants it, or it must be found out whether it kills."""
        return self.alone or not self.ticket.done
