"""The cache of a version over a scripted executor, and requests that come to it: no processes, no real time."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tests.batching.making import FAR, ScriptedExecutor

from forwardpass.batching.batcher import Batcher
from forwardpass.batching.executor import Outcome
from forwardpass.batching.forecast import Forecast
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Item, Part, Ticket
from forwardpass.cache.kept import Kept
from forwardpass.cache.key import Keys
from forwardpass.cache.shelf import Shelves
from forwardpass.core.caller import Caller
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.pipeline import Batch, Field, Input, Pipeline, Signature, Version
from forwardpass.core.pipeline import Queue as Limits
from forwardpass.core.request import CacheUse, Request
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline
from forwardpass.rollout.item_cache import ItemCache

SIGNATURE = Signature((Input("x", "bytes"),), (Field("x", "BYTES"),))
VERSION = Version("p", 1, "d" * 64, "/", Pipeline(()))


@dataclass(slots=True)
class Failing(ScriptedExecutor):
    """By input, what its next runs fail with: its row, or the item as a ``whole``."""

    failures: dict[bytes, list[Failure]] = field(default_factory=dict)
    whole: dict[bytes, list[Failure]] = field(default_factory=dict)

    def _answer(self, items: Sequence[Item], future: "asyncio.Future[Outcome]") -> None:
        future.set_result(Outcome([self._part(item) for item in items], 0.0, 0.001, 0.0))

    def _part(self, item: Item) -> Part:
        data = bytearray(item.columns[0])
        if self.failures.get(bytes(data)):
            return Part(0, [Tensor("BYTES", (0,), b"")], {0: self.failures[bytes(data)].pop(0)}, [])
        if self.whole.get(bytes(data)):
            return Part(0, [Tensor("BYTES", (0,), b"")], {}, [], self.whole[bytes(data)].pop(0))
        return Part(item.rows, [Tensor("BYTES", (item.rows,), memoryview(data))], {}, [])


@dataclass(slots=True)
class Asked:
    """One request that has come in; its rows run, or wait, or have their answers."""

    ticket: Ticket
    running: Sequence[Item]
    use: CacheUse

    @property
    def found(self) -> tuple[int, int, int]:
        return self.use.hit, self.use.joined, self.use.miss

    def leave(self) -> None:
        """It will have no answer, and what runs for it in others' place is not to be."""
        assert self.ticket.sharing is not None
        self.running = [*self.running, *self.ticket.sharing.left()]

    async def answer(self) -> list[bytes] | Code:
        """Its rows' bytes, or the code that it, or its first row that failed, failed with."""
        with suppress(Failure):
            await self.ticket.ended
        if self.ticket.failure is not None:
            return self.ticket.failure.code
        parts = self.ticket.parts()
        failures = [failure.code for part in parts for failure in part.failures.values()]
        return failures[0] if failures else [bytes(part.outputs[0].data) for part in parts]


class CacheBench:
    """``ask`` is what a handle does with a request; ``leave`` is its caller going away."""

    def __init__(self, *, hold: bool, together: bool, ttl_s: float, tier: Any, limits: Limits) -> None:
        self.clock = FakeClock()
        forecast = Forecast(Batch(), 1)
        self.queue = Queue(limits, forecast, self.clock)
        self.quarantine = Quarantine(60.0, self.clock)
        self.batcher = Batcher(self.queue, forecast, self.quarantine, self.clock)
        self.executor = Failing(self.clock, hold=hold)
        self.shelves = Shelves(10**9, tier)
        self.shelf = self.shelves.add("p", 1, 10**9, ttl_s)
        self.ended = False
        keys = Keys(VERSION, SIGNATURE, (), together=together)
        self.cache = ItemCache(
            keys, SIGNATURE.outputs, self.shelf, tier, self.queue, self.quarantine, self.clock, lambda: self.ended
        )

    async def ask(
        self,
        *rows: bytes,
        tenant: str = "a",
        deadline: float = FAR,
        priority: int = 5,
        age_s_max: float = inf,
        stores: bool = True,
    ) -> Asked:
        ticket, now = Ticket(len(rows), deadline), self.clock()
        items = [
            Item(ticket, part, [row], [()], 1, 1.0, len(row), None, priority, now, tenant=tenant)
            for part, row in enumerate(rows)
        ]
        request = Request("id", [], len(rows), Timeline(), caller=Caller(tenant), age_s_max=age_s_max, stores=stores)
        running, use = await self.cache.enter(request, ticket, items)
        if running:
            self.queue.put(running)
        await turns()
        return Asked(ticket, running, use)

    async def leave(self, asked: Asked, failure: Failure | None = None) -> None:
        asked.ticket.finish(failure or Failed(Code.CANCELLED, "the caller went away"))
        asked.leave()
        self.queue.discard(asked.running)
        await turns()

    async def release(self) -> None:
        """The batch that runs ends."""
        self.executor.release()
        await turns()

    @property
    def ran(self) -> list[bytes]:
        return [row for batch in self.executor.batches for row in batch]


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def cache_bench(
    *, hold: bool = False, together: bool = False, ttl_s: float = 60.0, tier: Any = None, limits: Limits | None = None
) -> AsyncIterator[CacheBench]:
    made = CacheBench(hold=hold, together=together, ttl_s=ttl_s, tier=tier, limits=limits or Limits())
    running = asyncio.create_task(made.batcher.run([made.executor]))
    yield made
    running.cancel()
    await asyncio.wait((running,))


class Together:
    """A store that servers share, in this process."""

    def __init__(self) -> None:
        self.away = False
        self.kept: dict[bytes, Kept] = {}
        self.asked: list[bytes] = []

    async def find(self, pipeline: str, keys: Sequence[bytes], now: float) -> Mapping[bytes, Kept]:
        self.asked += keys
        found = {key: self.kept[key] for key in keys if key in self.kept}
        await asyncio.sleep(0)
        return found

    def keep(self, pipeline: str, key: bytes, kept: Kept, now: float, ttl_s: float) -> None:
        self.kept[key] = kept
