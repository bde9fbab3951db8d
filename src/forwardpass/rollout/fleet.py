"""Acts: loads versions, makes them routable once they are verified, unloads them. One operation per pipeline at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from forwardpass.cache.shelf import Shelves
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.core.pipeline import Version
from forwardpass.execution.process import WorkerProcess
from forwardpass.rollout.layout import laid_out
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import MakeWorker, Variant

_log = logging.getLogger("forwardpass.rollout")
Verify = Callable[[Variant], Awaitable[None]]


class Fleet:
    """Use as an async context manager: leaving it ends every variant at once (drain first with ``close``).

    Whoever stops waiting in ``load`` or ``unload`` leaves it half done; ``Acts`` are for those who may.
    """

    def __init__(
        self,
        routes: Routes,
        verify: Verify,
        *,
        threads: int,
        clock: Clock,
        make_worker: MakeWorker = WorkerProcess,
        shelves: Shelves | None = None,
    ) -> None:
        self._routes = routes
        self._verify = verify
        self._threads = threads
        self._clock = clock
        self._make_worker = make_worker
        self.shelves = Shelves() if shelves is None else shelves
        self._tasks: dict[Variant, asyncio.Task[None]] = {}
        self._layouts: set[asyncio.Task[Version]] = set()  # that are being found out
        self._group = asyncio.TaskGroup()
        self._stack = AsyncExitStack()
        self._locks: dict[str, asyncio.Lock] = {}
        self._closing = False

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.shelves.opened())
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        for task in (*self._tasks.values(), *self._layouts):
            task.cancel()
        async with self._stack:
            await self._group.__aexit__(None, None, None)  # an error of the block stays what it is, not a group of one

    async def load(self, version: Version) -> Variant:
        """Until it is ready. Raises Misconfigured when it cannot be; other versions are not touched by that.

        Raises Refused conflict when it is there; Failed shutting_down from ``close`` on.
        """
        async with self._lock(version.pipeline):
            if self._closing:
                raise _shutting_down()
            if version.number in self._routes.numbers(version.pipeline):
                raise Refused(Code.CONFLICT, f"{version.pipeline} version {version.number} is loaded already")
            if not version.definition.workers.count:
                version = await self._laid_out(version)
                if self._closing:
                    raise _shutting_down()
            threads = max(1, self._threads // version.definition.workers.count)
            variant = Variant(
                version, threads=threads, clock=self._clock, make_worker=self._make_worker, shelves=self.shelves
            )
            self._routes.add(variant)
            self._tasks[variant] = self._group.create_task(self._run(variant))
            stage = await variant.settled()
            self._routes.refresh(version.pipeline)
            if stage is not Stage.READY:
                await self._forget(variant)
                if self._closing:
                    raise _shutting_down()
                raise variant.failure or Misconfigured(Code.LOAD_FAILED, "the load was ended")
            return variant

    async def unload(
        self, pipeline: str, number: int, limit_s: float, leaving: Callable[[], None] = lambda: None
    ) -> None:
        """Drain it, then end its workers; ``leaving`` is called before. Raises Refused when it is not there."""
        async with self._lock(pipeline):
            variant = self._routes.find(pipeline, number)
            leaving()
            await self._leave(variant, limit_s)

    async def close(self, limit_s: float) -> None:
        """Drain and end everything; nothing is loaded from now on."""
        self._closing = True
        for finding in self._layouts:
            finding.cancel()
        async with asyncio.TaskGroup() as leaving:
            for variant in list(self._tasks):
                leaving.create_task(self._leave(variant, limit_s))

    async def _laid_out(self, version: Version) -> Version:
        """With its number of workers; ``close`` cuts the finding out short."""
        finding = asyncio.create_task(
            laid_out(version, threads=self._threads, clock=self._clock, make_worker=self._make_worker)
        )
        self._layouts.add(finding)
        try:
            await asyncio.wait((finding,))
        finally:
            self._layouts.discard(finding)
            finding.cancel()
            await asyncio.wait((finding,))
        return version if finding.cancelled() else finding.result()

    async def _leave(self, variant: Variant, limit_s: float) -> None:
        if variant.stage is Stage.READY:
            variant.begin_leaving()
            self._routes.refresh(variant.version.pipeline)  # before anything waits: nobody new comes in
        if variant.stage is Stage.DRAINING:
            await variant.drain(limit_s)
        elif variant in self._tasks:
            self._tasks[variant].cancel()
        await self._forget(variant)

    async def _forget(self, variant: Variant) -> None:
        task = self._tasks.pop(variant, None)
        if task is not None:
            await asyncio.wait((task,))
        self._routes.remove(variant)

    async def _run(self, variant: Variant) -> None:
        try:
            await variant.run(self._verify)
        except Exception:  # a defect of ours in one variant must not end the others
            event = {"pipeline": variant.version.pipeline, "version": variant.version.number}
            _log.exception("variant ended by a defect", extra={"event": event})
        finally:
            self._tasks.pop(variant, None)
            self._routes.remove(variant)

    def _lock(self, pipeline: str) -> asyncio.Lock:
        return self._locks.setdefault(pipeline, asyncio.Lock())


def _shutting_down() -> Failed:
    return Failed(Code.SHUTTING_DOWN, "the server is shutting down", retry_after_s=1.0)
