"""The open connections of one listener: how many there may be, that each is looked at in time, and how all end."""

import asyncio
import logging
from collections import Counter
from typing import Protocol

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.ingress.message import HttpLimits

SWEEP_S = 0.25  # how often the time limits are looked at
REFUSALS_MAX = 64  # connections over the limit that are told so at one time; the rest are only cut

log = logging.getLogger("forwardpass.ingress")


class Connection(Protocol):
    def sweep(self, now_s: float) -> None:
        """Enforce the limits in time."""

    def drain(self) -> None:
        """Close if nothing is going on; otherwise the answer to what is going on closes."""

    def cut(self) -> None:
        """End at once, whatever is going on."""


class OpenConnections:
    """Owns the connections and their tasks: ``drain`` returns when none is left."""

    def __init__(self, limits: HttpLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._open: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: Connection, task: asyncio.Task[None], address: str) -> Failure | None:
        """Count a new connection in; a failure if it is one too many."""
        self._open.add(connection)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._addresses[address] += 1
        over = len(self._open) - self._limits.connections_max
        if over > REFUSALS_MAX:
            connection.cut()
        if over > 0 or self._addresses[address] > self._limits.connections_per_address_max:
            return Failed(Code.TOO_MANY_CONNECTIONS, "too many connections are open", retry_after_s=1.0)
        return None

    def leave(self, connection: Connection, address: str) -> None:
        self._open.discard(connection)
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]
        if not self._open:
            self._empty.set()

    def sweep(self) -> None:
        """Now and from now on. One timer for all: a timer for each request would cost more than the request."""
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self.sweep)
        now_s = self._clock()
        for connection in tuple(self._open):
            connection.sweep(now_s)

    async def drain(self, grace_s: float) -> None:
        """Let what is going on end within the grace, then cut the rest."""
        for connection in tuple(self._open):
            connection.drain()
        if self._open:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), grace_s)
            except TimeoutError:
                log.warning("drain: %d connections cut after %g s", len(self._open), grace_s)
        for connection in tuple(self._open):
            connection.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._sweeper is not None:
            self._sweeper.cancel()
