"""One version loaded into this process: an event loop in a thread of its own, to which calls are handed."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from forwardpass.core.clock import monotonic_s
from forwardpass.core.pipeline import Version
from forwardpass.core.request import Answer, Request
from forwardpass.execution.local import LocalWorker
from forwardpass.steps.protocol import StepKind
from forwardpass.trial import Trial, trial

DEADLINE_S = 300.0
"""The most a request may have: whoever waits here can interrupt it."""


class Session:
    """Loaded and verified once made. The path of a request is the server's; only the worker is a thread of this process.

    Calls may come from any thread. ``close`` it once.
    """

    def __init__(self, version: Version, *, threads: int, own: Mapping[str, StepKind]) -> None:
        """Raises Misconfigured when the version cannot be loaded or its golden examples do not hold."""
        definition = version.definition
        one = replace(definition, workers=replace(definition.workers, count=1))  # more would be threads of one process
        version = replace(version, definition=one)
        self._leave = asyncio.Event()
        started: Future[tuple[asyncio.AbstractEventLoop, Trial]] = Future()
        life = self._life(version, threads, own, started)
        self._thread = threading.Thread(target=asyncio.run, args=(life,), name=version.pipeline, daemon=True)
        self._thread.start()
        self._loop, self._running = started.result()
        self.variant = self._running.variant

    def answer(self, request: Request) -> Answer:
        """Raises the Failure that ended it."""
        answering = self._running.handle.answer(self.variant, request)
        return asyncio.run_coroutine_threadsafe(answering, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    async def _life(
        self,
        version: Version,
        threads: int,
        own: Mapping[str, StepKind],
        started: "Future[tuple[asyncio.AbstractEventLoop, Trial]]",
    ) -> None:
        try:
            make_worker = partial(LocalWorker, own=own)
            running = trial(version, threads=threads, deadline_s=DEADLINE_S, clock=monotonic_s, make_worker=make_worker)
            async with running as entered:
                started.set_result((asyncio.get_running_loop(), entered))
                await self._leave.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
