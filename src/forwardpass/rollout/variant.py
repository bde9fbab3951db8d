"""One version as the target of traffic: its queue, its batcher, its workers, from load to unload."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from forwardpass.batching.batcher import Batcher
from forwardpass.batching.executed import Executed
from forwardpass.batching.forecast import Forecast
from forwardpass.batching.grouping import Grouping
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.sequences import SequenceTable
from forwardpass.batching.ticket import Item, Ticket
from forwardpass.cache.shelf import Shelves
from forwardpass.core.clock import Clock, wall_s
from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Signature, Version
from forwardpass.execution.first_load import FirstLoad
from forwardpass.execution.process import State, WorkerProcess
from forwardpass.execution.wire import Loaded
from forwardpass.observe.statistics import Answered
from forwardpass.rollout.item_cache import ItemCache, item_cache, why_not_kept
from forwardpass.rollout.lifecycle import Stage, move

if TYPE_CHECKING:
    from forwardpass.execution.local import LocalWorker  # with all that a worker imports

QUARANTINE_S = 600.0
USABLE = (State.READY, State.STALLED, State.RESTARTING)
"""What of a worker lets requests queue for it."""

Worker: TypeAlias = "WorkerProcess | LocalWorker"
MakeWorker = Callable[..., Worker]
"""(version, index, *, threads, clock) -> a worker that has not begun to live."""


class Variant:
    """``run`` is its whole life. Nothing is taken in before ``stage`` is ready."""

    def __init__(
        self,
        version: Version,
        *,
        threads: int,
        clock: Clock,
        make_worker: MakeWorker = WorkerProcess,
        shelves: Shelves | None = None,
    ) -> None:
        definition = version.definition
        self.version = version
        self.stage = Stage.LOADING
        self._shelves = Shelves() if shelves is None else shelves
        # Whether a request waits for nothing but its batch: for no turn of its own and for no judge.
        self.direct = (
            definition.sequence is None
            and (definition.cache is None or self._shelves.tier is None)
            and not any(guard.judge for guard in definition.guards)
        )
        self.repeated: dict[object, Any] = {}  # what fronts have learnt of its requests
        self.failure: Misconfigured | None = None
        self.signature = Signature((), ())
        self.loaded: Loaded | None = None
        self.loaded_at_s = 0.0  # seconds since 1970, for people
        self.running = 0  # requests between being routed and being answered
        self.batch = definition.batch
        self.batching_reason = "on"
        self.cache: ItemCache | None = None
        self.cache_reason = "off"
        self.answered = Answered()
        self.forecast = Forecast(definition.batch, definition.workers.count)
        self.queue = Queue(definition.queue, self.forecast, clock)
        self.quarantine = Quarantine(QUARANTINE_S, clock)
        self.batcher = Batcher(self.queue, self.forecast, self.quarantine, clock)
        self.grouping = Grouping((), definition.batch, batched=True)
        self.workers: list[Worker] = [
            make_worker(version, i, threads=threads, clock=clock) for i in range(definition.workers.count)
        ]
        first = FirstLoad(version, threads)
        for worker in self.workers:
            if isinstance(worker, WorkerProcess):
                worker.first = first
        self.sequences = SequenceTable(definition.sequence, self.workers, clock)
        self._clock = clock
        self._settled = asyncio.Event()
        self._leaving = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, verify: Callable[["Variant"], Awaitable[None]]) -> None:
        """Load, verify, serve until told to leave, drain. A failure to load ends in ``failed`` with ``failure`` set."""
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(worker.run()) for worker in self.workers]
                try:
                    await self._load()
                    running.append(tasks.create_task(self.batcher.run(self.workers)))
                    self._enter(Stage.VERIFYING)
                    await verify(self)
                    # Golden examples are our own requests: what is counted is counted from here on.
                    self.answered, self.batcher.executed = Answered(), Executed()
                    if self.cache_reason == "on":
                        self.cache = item_cache(self, self._shelves, self._clock)
                    self._enter(Stage.READY)
                    await self._leaving.wait()
                    await self._idle.wait()
                except Misconfigured as failure:
                    self.failure = failure
                    self._enter(Stage.FAILED)
                finally:
                    for task in running:
                        task.cancel()
        finally:
            for item in self.queue.clear():
                item.ticket.finish(Failed(Code.SHUTTING_DOWN, "the version is being unloaded", retry_after_s=1.0))
            if self.stage is not Stage.FAILED:
                self.stage = Stage.UNLOADED
            if self.cache is not None:
                self._shelves.remove(self.cache.shelf)
            self._settled.set()

    async def settled(self) -> Stage:
        """Until it is ready, failed or gone."""
        await self._settled.wait()
        return self.stage

    def begin_leaving(self) -> None:
        """From now on it takes no requests; those inside go on. Only a ready variant leaves."""
        self._enter(Stage.DRAINING)
        self._leaving.set()

    async def drain(self, limit_s: float) -> None:
        """After ``begin_leaving``: let those inside finish for at most ``limit_s``, then end them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        self._idle.set()

    @property
    def available(self) -> bool:
        """At least one worker can run a batch now, or is about to be able to."""
        return any(worker.state in USABLE for worker in self.workers)

    @property
    def ended(self) -> bool:
        """Nothing takes from its queue any more."""
        return self.stage in (Stage.UNLOADED, Stage.FAILED)

    @property
    def ready(self) -> bool:
        """Loaded, verified, and at least one worker answers, or does in a moment: what it ran for nobody was ended."""
        return self.stage is Stage.READY and any(worker.ready or worker.returning for worker in self.workers)

    def enter(self, requests: int = 1) -> None:
        """Requests come in; Failed not_ready when the version ended since they were routed here."""
        if self.stage in (Stage.UNLOADED, Stage.FAILED):
            raise Failed(Code.NOT_READY, "the version was unloaded", retry_after_s=1.0)
        if not self.running:
            self._idle.clear()
        self.running += requests

    def together(self, rows: int) -> int:
        """How many of so many requests of a row may come in as one; none where one of them is watched."""
        alike = self.signature.batched and self.batch.enabled and self.cache is None
        return self.queue.together(rows) if alike and self.quarantine.empty else 0

    def forget(self, items: Sequence[Item], ticket: Ticket) -> None:
        """The request of these has ended without an answer: what has not begun of them is not run, but for others."""
        if ticket.sharing is not None:
            items = [*items, *ticket.sharing.left()]
        self.queue.discard(items)
        if any(item.taken for item in items):
            for worker in self.workers:
                worker.forget(items)

    def exit(self, requests: int = 1) -> None:
        """Requests have ended."""
        self.running -= requests
        if self.running == 0:
            self._idle.set()

    async def _load(self) -> None:
        loads = [await worker.first_load() for worker in self.workers]
        # Rows are independent only if every worker found them so.
        self.loaded = next((loaded for loaded in loads if not loaded.independent), loads[0])
        self.signature = self.loaded.signature
        self.loaded_at_s = wall_s()
        if not self.loaded.independent and self.batch.enabled:
            self.batch = replace(self.batch, enabled=False)
            self.forecast.batch = self.batch
            self.batching_reason = f"off: {self.loaded.reason}"
        elif not self.batch.enabled:
            self.batching_reason = "off: batch.enabled is false"
        signature = self.signature
        self.cache_reason = why_not_kept(self.version.definition, self.loaded, self._shelves)
        self.grouping = Grouping(
            signature.columns,
            self.batch,
            batched=signature.batched,
            fixed_rows=signature.fixed_rows,
            apart=self.cache_reason == "on",
        )

    def _enter(self, stage: Stage) -> None:
        self.stage = move(self.stage, stage)
        if stage in (Stage.READY, Stage.FAILED):
            self._settled.set()
