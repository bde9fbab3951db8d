"""The whole of ``batching`` under load in virtual time: one event loop whose clock jumps to the next timer.

No threads and no waiting: a minute of load takes as long as its events take to compute, and the same each time.
"""

import asyncio
import random
import selectors
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from forwardpass.batching.batcher import Batcher
from forwardpass.batching.deadlines import Deadlines
from forwardpass.batching.executor import Outcome
from forwardpass.batching.forecast import Forecast
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Item, Part, Ticket
from forwardpass.core.errors import Code, Failure
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits


class _Jumping(selectors.SelectSelector):
    """Does not wait: tells the loop for how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed_s += max(timeout or 0.0, 1e-7)  # a timer that is due by less than the clock can say is reached, too
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 1000.0 + self._jumping.passed_s


Result = TypeVar("Result")


def in_virtual_time(main: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@dataclass(slots=True)
class Machine:
    """A worker: a batch takes ``fixed_s`` and ``per_row_s``, by ``pace``; one may be sent ahead. Counts what is over."""

    index: int
    fixed_s: float
    per_row_s: float
    noise: float = 0.0  # a batch takes up to so much more or less, as a share
    preprocess_s: float = 0.0  # of each batch, in this time: then batches are sent ahead
    pace: float = 1.0
    executed_rows: int = 0
    overdue: int = 0
    _free_s: float = 0.0
    _chance: random.Random = field(default_factory=lambda: random.Random(7))
    _sent: list["asyncio.Future[Outcome]"] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        return not self._sent

    async def vacant(self, ahead_at: float | None) -> None:
        loop = asyncio.get_running_loop()
        while self._sent:
            left_s = None if ahead_at is None or len(self._sent) > 1 else ahead_at - loop.time()
            if left_s is not None and left_s <= 0.0:
                return
            await asyncio.wait(self._sent[:1], timeout=left_s)

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
        loop = asyncio.get_running_loop()
        starts_s = max(loop.time(), self._free_s)
        pace = self.pace * self._chance.uniform(1.0 - self.noise, 1.0 + self.noise)
        self._free_s = starts_s + pace * (self.fixed_s + self.per_row_s * sum(item.cost for item in items))
        future: asyncio.Future[Outcome] = loop.create_future()
        self._sent.append(future)
        loop.call_at(starts_s, self._begin, items)
        loop.call_at(self._free_s, self._answer, items, future)
        return future

    def _begin(self, items: Sequence[Item]) -> None:
        now = asyncio.get_running_loop().time()
        self.executed_rows += sum(item.rows for item in items)
        self.overdue += sum(item.ticket.deadline <= now or item.ticket.done for item in items)

    def _answer(self, items: Sequence[Item], future: "asyncio.Future[Outcome]") -> None:
        self._sent.remove(future)
        if not future.done():
            parts = [Part(item.rows, [], {}, ()) for item in items]
            future.set_result(Outcome(parts, self.preprocess_s, 0.0, 0.0))


@dataclass(slots=True)
class Client:
    """Asks ``per_s`` times a second from ``start_s`` to ``end_s``, whatever becomes of it, and again up to ``retries`` times."""

    per_s: float
    end_s: float
    start_s: float = 0.0
    tenant: str = ""
    priority: int = 5
    deadline_s: float = 0.2
    retries: int = 0
    seed: int = 1
    costs: tuple[float, ...] = (1.0,)  # of its requests, in turn
    keys: int = 1  # of so many, in turn
    outcomes: list[tuple[float, Code | None, float]] = field(default_factory=list)
    """When it was first asked, how it ended, how long that took; None is an answer in time."""

    def good(self, from_s: float = 0.0, until_s: float = 1e9) -> int:
        return sum(code is None and from_s <= at < until_s for at, code, _ in self.outcomes)

    def share_good(self) -> float:
        return self.good() / len(self.outcomes)

    def p99_s(self) -> float:
        took = sorted(seconds for _, code, seconds in self.outcomes if code is None)
        return took[int(len(took) * 0.99)]

    def arrivals(self) -> Iterator[float]:
        chance = random.Random(self.seed)
        at = self.start_s + chance.expovariate(self.per_s)
        while at < self.end_s:
            yield at
            at += chance.expovariate(self.per_s)


class Place:
    """One version with its queue and machines, and clients that ask it."""

    def __init__(self, machines: Sequence[Machine], batch: Batch, limits: Limits) -> None:
        self.clock = asyncio.get_running_loop().time
        self.machines = machines
        forecast = Forecast(batch, len(machines))
        self.queue = Queue(limits, forecast, self.clock)
        self.batcher = Batcher(self.queue, forecast, Quarantine(60.0, self.clock), self.clock)
        self.deadlines = Deadlines(self.clock)
        self.deepest_rows = 0
        self._asked = 0

    async def load(self, clients: Sequence[Client]) -> None:
        """Until everything that these ask has ended."""
        began_s = self.clock()
        running = asyncio.create_task(self.batcher.run(self.machines))
        arrivals = sorted(
            ((at, number, client) for number, client in enumerate(clients) for at in client.arrivals()),
            key=lambda arrival: arrival[:2],
        )
        async with asyncio.TaskGroup() as asked:
            for at, _, client in arrivals:
                await asyncio.sleep(began_s + at - self.clock())
                asked.create_task(self._ask(client, at))
        running.cancel()
        await asyncio.wait((running,))

    async def _ask(self, client: Client, at: float) -> None:
        came_s, chance = self.clock(), random.Random(at)
        for attempt in range(client.retries + 1):
            code = await self.answer(client)
            if code is None or attempt == client.retries:
                client.outcomes.append((at, code, self.clock() - came_s))
                return
            await asyncio.sleep(0.05 * 2**attempt * chance.uniform(0.8, 1.2))

    async def answer(self, client: Client) -> Code | None:
        now = self.clock()
        ticket = Ticket(1, now + client.deadline_s)
        self._asked += 1
        cost, key = client.costs[self._asked % len(client.costs)], self._asked % client.keys or None
        item = Item(ticket, 0, [b""], [()], 1, cost, 8, key, client.priority, now, tenant=client.tenant)
        try:
            self.queue.put([item])
            self.deepest_rows = max(self.deepest_rows, self.queue.rows)
            self.deadlines.watch(ticket)
            await ticket.ended
        except Failure as failure:
            return failure.code
        finally:
            self.deadlines.forget(ticket)
            self.queue.discard([item])
        return None


def loaded(
    clients: Sequence[Client],
    *,
    machines: int = 1,
    noise: float = 0.0,
    preprocess_s: float = 0.0,
    limits: Limits | None = None,
    batch: Batch | None = None,
    slow_from_s: float = 0.0,
    slow_until_s: float = 0.0,
    slow_pace: float = 1.0,
) -> Place:
    """The place after that load. A full batch of 8 takes 40 ms: 200 rows a second from each machine."""

    async def run() -> Place:
        loop = asyncio.get_running_loop()
        made = [Machine(index, 0.02, 0.0025, noise, preprocess_s) for index in range(machines)]
        for machine in made:
            loop.call_later(slow_from_s, setattr, machine, "pace", slow_pace)
            loop.call_later(slow_until_s, setattr, machine, "pace", 1.0)
        place = Place(made, batch or Batch(rows_max=8), limits or Limits())
        await place.load(clients)
        return place

    return in_virtual_time(run())
