"""Requests at a fixed rate, each sent when it is due whatever became of those before it: no coordinated omission.

What a request took counts from when it was due, so a server that stalls is charged for those it kept from being sent.
``python bench/load/open_loop.py`` reads a plan as JSON from standard input and writes what was found; ``offer`` starts
it and reads that. It says how late it was itself: where that is not little, the run tells of the client and not
of the server.
"""

import contextlib
import ctypes
import gc
import json
import math
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent.parent)]
from bench.load.answers import complete  # noqa: E402
from bench.load.histogram import Histogram  # noqa: E402

LATE_LIMIT_S = 0.001
LATE_SHARE = 0.05  # of the p99 that was measured
BUSY_LIMIT = 0.9
CLIENT_PATIENCE_S = 30.0
LEAVE_AFTER_S = 5.0  # beyond the last one that is due
RECEIVE_BYTES = 1 << 18
PRIORITY = -10  # as if the client had a machine of its own; without the right to it, it runs as everybody else does
SET_TIMER_SLACK = 29  # prctl: how late the system may wake us
TIMER_SLACK_NS = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """``count`` requests, ``rate_per_s`` a second; the first ``unrecorded`` of them warm up. An endless rate: closed loop.

    At most ``connections`` are under way at once: further ones wait here, and their time runs from when they were due.
    """

    port: int
    requests_file: str  # one behind the other; they are sent in turn
    lengths: tuple[int, ...]
    rate_per_s: float
    count: int
    unrecorded: int = 0
    connections: int = 64
    leave_s: float = LEAVE_AFTER_S


@dataclass(frozen=True, slots=True)
class Offered:
    """What came of them, of those that are recorded. ``late_p99_s``: how long after it could have, the client sent."""

    rate_per_s: float
    answered: int
    refused: int  # another status than 2xx
    lost: int  # no answer, until the end or because the connection ended
    took_s: float
    late_p99_s: float
    client_cpu_s: float
    busy_share: float  # of the run: the client ran, or waited for a core to run on
    latencies: dict[str, int] = field(default_factory=dict)

    @property
    def histogram(self) -> Histogram:
        return Histogram.read(self.latencies)

    @property
    def valid(self) -> bool:
        """The client kept to its schedule and had time to spare, so that what was measured is the server."""
        return self.busy_share <= BUSY_LIMIT and self.late_p99_s <= max(
            LATE_LIMIT_S, LATE_SHARE * self.histogram.quantile_s(0.99)
        )

    @property
    def failed(self) -> int:
        return self.refused + self.lost


def offer(
    port: int,
    requests: Sequence[bytes],
    rate_per_s: float,
    seconds: float,
    warm_s: float = 0.0,
    connections: int = 64,
    leave_s: float = LEAVE_AFTER_S,
) -> Offered:
    """A run of ``seconds`` at the rate after ``warm_s`` of the same, in a process of its own."""
    unrecorded = round(rate_per_s * warm_s)
    count = unrecorded + max(1, round(rate_per_s * seconds))
    return _apart(requests, Plan(port, "", (), rate_per_s, count, unrecorded, connections, leave_s))


def saturate(port: int, requests: Sequence[bytes], count: int, connections: int = 64) -> Offered:
    """A closed loop of ``count`` requests by the same client: what it gets from the server when it never waits."""
    return _apart(requests, Plan(port, "", (), math.inf, count, 0, connections))


def _apart(requests: Sequence[bytes], plan: Plan) -> Offered:
    """Raises subprocess.SubprocessError where the client fails, or does not end when its schedule is over."""
    limit_s = plan.count / plan.rate_per_s + plan.leave_s + CLIENT_PATIENCE_S
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(requests))
        file.flush()
        asked = asdict(replace(plan, requests_file=file.name, lengths=tuple(map(len, requests))))
        command = [sys.executable, str(Path(__file__))]
        text = json.dumps(asked)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=limit_s)
    return Offered(**json.loads(done.stdout))


class _Connection:
    """One request at a time."""

    __slots__ = ("due_s", "number", "received", "socket", "unsent")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.received = b""
        self.unsent = memoryview(b"")
        self.due_s = 0.0
        self.number = 0

    def send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.unsent = self.unsent[self.socket.send(self.unsent) :]


class _Client:
    """Sends and receives in one thread, woken when a request is due or an answer is there."""

    def __init__(self, plan: Plan, requests: Sequence[bytes]) -> None:
        self._plan = plan
        self._requests = [memoryview(each) for each in requests]
        self._ready = select.epoll()
        self._busy: dict[int, _Connection] = {}
        self._idle = [_Connection(plan.port) for _ in range(plan.connections)]
        for connection in self._idle:
            self._ready.register(connection.socket.fileno(), select.EPOLLIN)
        self._next = 0
        self._free_s = 0.0  # since when there has been a connection to send on
        self._interval_s = 1.0 / plan.rate_per_s
        self.refused = self.lost = 0
        self.latencies_s: list[float] = []
        self.late_s: list[float] = []

    def run(self) -> None:
        clock, total = time.perf_counter, self._plan.count
        start = clock() + 0.01
        leave_s = start + (total - 1) * self._interval_s + self._plan.leave_s
        while self._next < total or self._busy:
            if self._busy and clock() > leave_s:
                break
            due_s = self._send_due(start)
            wait_s = max(0.0, min(due_s, leave_s) - clock())
            # epoll itself rounds up to a millisecond; select does not, but knows few descriptors: it watches the epoll.
            if select.select([self._ready], [], [], wait_s)[0]:
                for descriptor, events in self._ready.poll(0):
                    self._turn(descriptor, events)
                    self._send_due(start)  # many answers at once must not keep one waiting
        now = clock()
        for connection in self._busy.values():
            self._lose(connection.number, connection.due_s, now)
        for number in range(self._next, total):  # due, and never sent: all connections were taken
            self._lose(number, start + number * self._interval_s, now)

    def _send_due(self, start: float) -> float:
        """When the next one is due that a connection is there for; endless where there is none."""
        while self._idle and self._next < self._plan.count:
            due_s, now = start + self._next * self._interval_s, time.perf_counter()
            if due_s > now:
                return due_s
            self._send(self._idle.pop(), due_s, now)
        return math.inf

    def _send(self, connection: _Connection, due_s: float, now: float) -> None:
        connection.due_s = due_s
        connection.number = self._next
        self._next += 1
        connection.unsent = self._requests[connection.number % len(self._requests)]
        try:
            connection.send()
        except OSError:
            self._reopen(connection)
            connection.send()
        descriptor = connection.socket.fileno()
        self._busy[descriptor] = connection
        if connection.unsent:
            self._ready.modify(descriptor, select.EPOLLIN | select.EPOLLOUT)
        if connection.number >= self._plan.unrecorded:
            self.late_s.append(now - max(due_s, self._free_s))

    def _turn(self, descriptor: int, events: int) -> None:
        connection = self._busy.get(descriptor)
        if connection is None:  # the server closed one that waits: it is opened again
            idle = next((each for each in self._idle if each.socket.fileno() == descriptor), None)
            if idle is not None:
                self._reopen(idle)
            return
        try:
            if events & select.EPOLLOUT:
                connection.send()
                if not connection.unsent:
                    self._ready.modify(descriptor, select.EPOLLIN)
            if events & ~select.EPOLLOUT:
                self._receive(connection, descriptor)
        except OSError:
            self._end_lost(connection, descriptor)

    def _receive(self, connection: _Connection, descriptor: int) -> None:
        data = connection.socket.recv(RECEIVE_BYTES)
        if not data:
            self._end_lost(connection, descriptor)
            return
        if connection.received:
            data = connection.received + data
        answer = complete(data)
        if answer is None:
            connection.received = data
            return
        now = time.perf_counter()
        connection.received = b""
        if connection.number >= self._plan.unrecorded:
            self.latencies_s.append(now - connection.due_s)
            self.refused += not 200 <= answer.status < 300
        del self._busy[descriptor]
        if not answer.keeps:
            self._reopen(connection)
        self._free(connection, now)

    def _end_lost(self, connection: _Connection, descriptor: int) -> None:
        del self._busy[descriptor]
        now = time.perf_counter()
        self._lose(connection.number, connection.due_s, now)
        self._reopen(connection)
        self._free(connection, now)

    def _free(self, connection: _Connection, now: float) -> None:
        if not self._idle:
            self._free_s = now
        self._idle.append(connection)

    def _lose(self, number: int, due_s: float, now: float) -> None:
        """It counts with the time it has waited so far: leaving it out would make the server look better."""
        if number >= self._plan.unrecorded:
            self.lost += 1
            self.latencies_s.append(now - due_s)

    def _reopen(self, connection: _Connection) -> None:
        connection.socket.close()
        fresh = _Connection(self._plan.port)
        connection.socket, connection.received = fresh.socket, b""
        self._ready.register(connection.socket.fileno(), select.EPOLLIN)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    ctypes.CDLL(None).prctl(SET_TIMER_SLACK, TIMER_SLACK_NS)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _wanted_s() -> float:
    """How long this thread has run so far, or waited for a core while it could have."""
    ran_ns, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return (int(ran_ns) + int(waited_ns)) / 1e9


def run(plan: Plan) -> Offered:
    """In this process; ``offer`` is for everybody else."""
    whole, ends = Path(plan.requests_file).read_bytes(), list(accumulate(plan.lengths, initial=0))
    client = _Client(plan, [whole[begin:end] for begin, end in pairwise(ends)])
    with _undisturbed():
        started_s, cpu_s, wanted_s = time.perf_counter(), time.process_time(), _wanted_s()
        client.run()
        took_s, cpu_s, wanted_s = time.perf_counter() - started_s, time.process_time() - cpu_s, _wanted_s() - wanted_s
    return Offered(
        rate_per_s=plan.rate_per_s,
        answered=len(client.latencies_s) - client.lost,
        refused=client.refused,
        lost=client.lost,
        took_s=took_s,
        late_p99_s=Histogram.of(max(0.0, late) for late in client.late_s).quantile_s(0.99),
        client_cpu_s=cpu_s,
        busy_share=wanted_s / took_s,
        latencies=Histogram.of(client.latencies_s).stored(),
    )


if __name__ == "__main__":
    json.dump(asdict(run(Plan(**json.load(sys.stdin)))), sys.stdout)
