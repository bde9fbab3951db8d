"""One version loaded into this process: an event loop in a thread of its own, to which calls are handed."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Version
from forwardpass.core.request import Answer, Request
from forwardpass.execution.local import LocalWorker
from forwardpass.steps.protocol import StepKind
from forwardpass.trial import Trial, trial

T = TypeVar("T")

DEADLINE_S = 300.0
"""The most a request may have: whoever waits here can interrupt it."""


class Session:
    """Loaded and verified once made. The path of a request is the server's; only the worker is a thread of this process.

    Calls may come from any thread, each between ``enter`` and ``exit``. ``close`` it once, after which nobody enters:
    it ends when nobody is inside.
    """

    def __init__(self, version: Version, *, threads: int, own: Mapping[str, StepKind]) -> None:
        """Raises Misconfigured when the version cannot be loaded or its golden examples do not hold."""
        definition = version.definition
        one = replace(definition, workers=replace(definition.workers, count=1))  # more would be threads of one process
        version = replace(version, definition=one)
        self._counting = threading.Lock()
        self._inside = 0
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._leave = asyncio.Event()
        started: Future[Trial] = Future()
        life = self._life(version, threads, own, started)
        self._thread = threading.Thread(target=self._live, args=(life,), name=version.pipeline, daemon=True)
        self._thread.start()
        try:
            self._running = started.result()
        except BaseException:  # whoever waits may be interrupted: what is loaded then is to be unloaded
            self._tell_to_leave()
            raise
        self.variant = self._running.variant

    def enter(self) -> None:
        """A call begins."""
        with self._counting:
            self._inside += 1

    def exit(self) -> None:
        """A call has ended. The last one ends the session, if it was closed meanwhile."""
        with self._counting:
            self._inside -= 1
            over = self._closed and not self._inside
        if over:
            self._end()

    def close(self) -> None:
        with self._counting:
            self._closed = True
            over = not self._inside
        if over:
            self._end()

    def answer(self, request: Request) -> Answer:
        """Raises the Failure that ended it."""
        answering = self._running.handle.answer(self.variant, request)
        asked = asyncio.run_coroutine_threadsafe(answering, self._loop)
        try:
            return asked.result()
        except BaseException:  # whoever waits may be interrupted: what has not run yet need not run
            asked.cancel()
            raise

    def told(self, request: Request, say: Callable[[Answer, Request], T]) -> T:
        """What ``say`` makes of the answer. Raises the Failure that ended the request, also when it is ``say``'s."""
        answer = self.answer(request)
        try:
            return say(answer, request)
        except Failure:
            if not answer.failures:
                self._loop.call_soon_threadsafe(self.variant.sequences.untold, request)
            raise

    def _tell_to_leave(self) -> None:
        with suppress(RuntimeError):  # its loop is closed: it has left
            self._loop.call_soon_threadsafe(self._leave.set)

    def _end(self) -> None:
        self._tell_to_leave()
        if threading.current_thread() is not self._thread:  # where a collection of garbage may find it forgotten
            self._thread.join()

    def _live(self, life: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(life)

    async def _life(
        self,
        version: Version,
        threads: int,
        own: Mapping[str, StepKind],
        started: "Future[Trial]",
    ) -> None:
        try:
            make_worker = partial(LocalWorker, own=own)
            running = trial(version, threads=threads, deadline_s=DEADLINE_S, clock=monotonic_s, make_worker=make_worker)
            async with running as entered:
                started.set_result(entered)
                await self._leave.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
