"""The open connections of one server: how many there may be, that each is looked at in time, and how all end."""

import asyncio
import logging
from collections import Counter
from ipaddress import IPv6Address, IPv6Network
from typing import Protocol

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.ingress.message import HttpLimits

SWEEP_S = 0.25  # how often the time limits are looked at
REFUSALS_MAX = 64  # connections over the limit that are told so at one time; the rest are only cut
LINGER_S = 1.0  # how long input is still discarded after the last output, lest a reset overtake it

log = logging.getLogger("forwardpass.ingress")


class Connection(Protocol):
    def sweep(self, now_s: float) -> None:
        """Enforce the limits in time."""

    def drain(self) -> None:
        """Close if nothing is going on; otherwise the answer to what is going on closes."""

    def cut(self) -> None:
        """End at once, whatever is going on."""


class Elsewhere(Protocol):
    """Connections that other processes of this server have open, and are told that this one has."""

    def open_elsewhere(self) -> int: ...

    def open_elsewhere_of(self, address: str) -> int: ...

    def tell_open(self, count: int, more: int, address: str) -> None: ...


def address_of(peer: object) -> str:
    """Who counts as one caller: an IPv4 address, or an IPv6 network of /64, which is what one customer gets.

    Empty for a Unix socket, whose callers cannot be told apart: they have no limits of their own.
    """
    if not isinstance(peer, tuple):
        return ""
    host = str(peer[0])
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or IPv6Network((int(address), 64), strict=False))


def ends_of(transport: asyncio.BaseTransport) -> tuple[str, bytes]:
    """Who a connection is from, and the address that it came to."""
    return address_of(transport.get_extra_info("peername")), host_of(transport.get_extra_info("sockname"))


def host_of(local: object) -> bytes:
    """An address of ours, as a Host header has it; empty for a Unix socket."""
    if not isinstance(local, tuple):
        return b""
    host = str(local[0]).partition("%")[0]
    if ":" not in host:
        return host.encode()
    address = IPv6Address(host)
    return str(address.ipv4_mapped or f"[{address}]").encode()


class OpenConnections:
    """Owns the connections and their tasks: ``drain`` returns when none is left.

    One that still shakes hands arrives: it counts, but there is nothing yet that could be told or drained.
    """

    def __init__(self, limits: HttpLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._open: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self._arriving: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None
        self._elsewhere: Elsewhere | None = None

    def __len__(self) -> int:
        return len(self._open)

    def join(self, elsewhere: Elsewhere) -> None:
        """From now on the limits hold over all processes together. There is no connection yet."""
        self._elsewhere = elsewhere

    def arrive(self, address: str) -> bool:
        """Count in what arrives; whether there is room for it, so that it will have to be counted out again."""
        limits = self._limits
        over = self._all() + self._arriving.total() + 1 - limits.connections_max
        here = self._all_of(address) + self._arriving[address] + 1 - limits.connections_per_address_max
        if over > REFUSALS_MAX or (address and here > REFUSALS_MAX):
            return False
        self._arriving[address] += 1
        return True

    def arrived(self, address: str) -> None:
        """It is a connection now, or has gone."""
        _count_out(self._arriving, address)

    def enter(self, connection: Connection, task: asyncio.Task[None], address: str) -> Failure | None:
        """Count a new connection in; a failure if it is one too many."""
        self._open.add(connection)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._addresses[address] += 1
        self._tell(1, address)
        over = self._all() - self._limits.connections_max
        if over > REFUSALS_MAX:
            connection.cut()
        if over > 0 or (address and self._all_of(address) > self._limits.connections_per_address_max):
            return Failed(Code.TOO_MANY_CONNECTIONS, "too many connections are open", retry_after_s=1.0)
        return None

    def leave(self, connection: Connection, address: str) -> None:
        self._open.discard(connection)
        _count_out(self._addresses, address)
        self._tell(-1, address)
        if not self._open:
            self._empty.set()

    def _all(self) -> int:
        return len(self._open) + (self._elsewhere.open_elsewhere() if self._elsewhere is not None else 0)

    def _all_of(self, address: str) -> int:
        here = self._addresses[address]
        return here + (self._elsewhere.open_elsewhere_of(address) if self._elsewhere is not None and address else 0)

    def _tell(self, more: int, address: str) -> None:
        if self._elsewhere is not None:
            self._elsewhere.tell_open(len(self._open), more, address)

    def watch(self) -> None:
        """Have the limits in time enforced from now on. One timer for all: one per request would cost more than it."""
        if self._sweeper is None:
            self._sweep()

    def _sweep(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
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


def _count_out(counts: Counter[str], address: str) -> None:
    counts[address] -= 1
    if not counts[address]:
        del counts[address]
