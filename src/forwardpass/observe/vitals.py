"""What keeps an eye on the process itself: whether its event loop turns, and how full its memory is."""

import asyncio
import ctypes
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from forwardpass.core.clock import Clock
from forwardpass.observe.pressure import LOOK_S, Level, Pressure
from forwardpass.observe.watchdog import Watchdog

_log = logging.getLogger("forwardpass.observe")


class Vitals:
    """``shrinking`` are parts that keep what they could do without; each drops some and says how many."""

    def __init__(self, memory_share_max: float, clock: Clock) -> None:
        self.shrinking: list[Callable[[], int]] = []
        self.watchdog = Watchdog(clock)
        self.pressure = Pressure(memory_share_max)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """They are watched while the block runs. A watch that fails is logged, and from then on says that all is well."""
        watching = [asyncio.create_task(self.watchdog.run()), asyncio.create_task(self._watch_memory())]
        watching[0].add_done_callback(partial(_ended, "the event loop", self.watchdog.let_go))
        watching[1].add_done_callback(partial(_ended, "memory", self.pressure.let_go))
        try:
            yield
        finally:
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)

    async def _watch_memory(self) -> None:
        while True:
            before, level = self.pressure.level, self.pressure.look()
            if level != before:
                share = self.pressure.memory.share if self.pressure.memory else 0.0
                event = {"pressure": level.name.lower(), "share": round(share, 3)}
                _log.warning("memory pressure", extra={"event": event})
            dropped = [shrink() for shrink in self.shrinking] if level >= Level.SHRINK else []
            if any(dropped):
                await asyncio.to_thread(_give_back)
            await asyncio.sleep(LOOK_S)


def _ended(what: str, let_go: Callable[[], None], watching: "asyncio.Task[None]") -> None:
    if not watching.cancelled() and (error := watching.exception()) is not None:
        _log.error("%s is watched no more", what, exc_info=error)
        let_go()


def _give_back() -> None:
    """What was freed stays with the C library until it is told; others have none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
