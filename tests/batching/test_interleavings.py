"""Requests of every kind against workers that die at any moment: each ends once, and nothing is left in the books."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from tests.batching.virtual import in_virtual_time

from forwardpass.batching.batcher import Batcher
from forwardpass.batching.deadlines import Deadlines
from forwardpass.batching.executor import Outcome, WorkerLost
from forwardpass.batching.forecast import Forecast
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Held, Item, Part, Ticket
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits


@dataclass(slots=True)
class Mortal:
    """Dies every tenth time or so, idle or with one batch or two, and is back after a while; its code may be at fault."""

    index: int
    chance: random.Random
    alive: bool = True
    sent: list["asyncio.Future[Outcome]"] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def idle(self) -> bool:
        return self.alive and not self.sent

    async def vacant(self, ahead_at: float | None) -> None:
        loop = asyncio.get_running_loop()
        while not self.idle:
            left_s = ahead_at - loop.time() if ahead_at is not None and self.alive and len(self.sent) == 1 else None
            if left_s is not None and left_s <= 0.0:
                return
            self.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), left_s)

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
        loop, roll = asyncio.get_running_loop(), self.chance.random()
        if roll < 0.02:
            raise RuntimeError("a defect")
        future: asyncio.Future[Outcome] = loop.create_future()
        if not self.alive:
            future.set_exception(WorkerLost(Code.WORKER_CRASHED, started=False))
            return future
        self.sent.append(future)
        takes_s = 0.001 * len(self.sent) * self.chance.uniform(0.5, 2.0) * (1 + sum(item.rows for item in items))
        loop.call_later(takes_s, self.die if roll < 0.12 else self.answer, future, items)
        return future

    def answer(self, future: "asyncio.Future[Outcome]", items: Sequence[Item]) -> None:
        if future in self.sent:
            self.sent.remove(future)
            future.set_result(Outcome([Part(item.rows, [], {}, ()) for item in items], 0.002, 0.001, 0.0))
            self.changed.set()

    def die(self, _: object = None, __: object = None) -> None:
        lost, self.sent, self.alive = self.sent, [], False
        for place, future in enumerate(lost):
            future.set_exception(WorkerLost(Code.WORKER_CRASHED, started=not place))
        asyncio.get_running_loop().call_later(self.chance.uniform(0.0, 0.01), self.rise)

    def rise(self) -> None:
        self.alive = True
        self.changed.set()


@dataclass(slots=True)
class Asked:
    """One request: it notes each time that it is told how it ended."""

    queue: Queue
    deadlines: Deadlines
    ticket: Ticket
    items: list[Item]
    told: int = 0

    def begin(self) -> None:
        self.ticket.then = self.tell
        try:
            self.queue.put(self.items)
            self.deadlines.watch(self.ticket)
        except Failure as failure:
            self.ticket.finish(failure)

    def tell(self, ticket: Ticket) -> None:
        self.told += 1
        self.deadlines.forget(ticket)
        self.queue.discard(self.items)

    def leave(self) -> None:
        self.ticket.finish(Failed(Code.CANCELLED, "gone"))


def items_of(chance: random.Random, ticket: Ticket, parts: int, now: float, workers: int) -> list[Item]:
    kind, held = chance.choice((None, None, "long")), None
    if chance.random() < 0.2 and parts == 1:
        held = Held(chance.randrange(workers), 1, True, True)
    key = kind if held is None else (held.worker, kind)
    rows, requests = chance.choice(((1, 1), (1, 1), (5, 1), (3, 3), (20, 1)))
    length, tenant, priority = (chance.randrange(1, 99) if kind else 0), chance.choice("ab"), chance.choice((1, 5, 9))
    return [
        Item(
            ticket, part, [chance.randbytes(8)], [()], rows, float(rows), 8, key, priority, now,
            tenant=tenant, requests=requests, held=held, length=length, suspect=chance.random() < 0.02,
        ) for part in range(parts)
    ]  # fmt: skip


async def run(seed: int, batch: Batch, workers: int, stop_after: int | None) -> tuple[list[Asked], Queue, Forecast]:
    chance, loop = random.Random(seed), asyncio.get_running_loop()
    forecast = Forecast(batch, workers)
    queue = Queue(Limits(rows_max=200), forecast, loop.time)
    batcher, deadlines = Batcher(queue, forecast, Quarantine(60.0, loop.time), loop.time), Deadlines(loop.time)
    mortals = [Mortal(index, chance) for index in range(workers)]
    running, asked = asyncio.create_task(batcher.run(mortals)), []
    for number in range(300):
        parts = chance.choice((1, 1, 1, 3))
        ticket = Ticket(parts, loop.time() + chance.choice((0.005, 0.05, 0.5, 5.0)))
        asked.append(Asked(queue, deadlines, ticket, items_of(chance, ticket, parts, loop.time(), workers)))
        asked[-1].begin()
        if chance.random() < 0.1:
            chance.choice(asked).leave()
        if chance.random() < 0.05:
            chance.choice(mortals).die()
        if number == stop_after:
            break
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.001, 0.004)))
    if stop_after is None:
        await asyncio.sleep(30.0)
        assert not running.done(), "the loop lives on"
    running.cancel()
    await asyncio.wait((running,))
    return asked, queue, forecast


BATCHES = (Batch(), Batch(rows_max=8), Batch(wait_ms=2.0), Batch(cost_max=6.0), Batch(enabled=False))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_each_request_ends_once_whatever_dies_and_nothing_is_left(batch: Batch, workers: int, seed: int) -> None:
    asked, queue, forecast = in_virtual_time(run(seed, batch, workers, None))
    assert [each.told for each in asked] == [1] * len(asked)
    assert (queue.items, queue.rows, queue.bytes, forecast.workers.idle) == (0, 0, 0, True)
    assert sum(each.ticket.failure is None for each in asked) > 20, "some are answered"


@pytest.mark.parametrize("stop_after", range(0, 60, 7))
def test_what_is_with_a_worker_when_the_version_stops_ends_at_once(stop_after: int) -> None:
    asked, queue, _ = in_virtual_time(run(stop_after, Batch(), 2, stop_after))
    waiting = {id(item) for item in queue.waiting()}
    for each in asked:
        assert each.told == 1 or any(id(item) in waiting for item in each.items), "ended, or its queue's to clear"
