"""An open-loop client in a process of its own: requests go out when they are due, whatever became of those before them.

What a request took counts from when it was due, so that a server that stalls is charged for those it kept from being
sent. ``python tests/open_loop.py`` reads a list of streams as JSON from standard input and writes what came of each
request; ``offer`` starts it and reads that.
"""

import asyncio
import json
import math
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path

RETRY_AFTER_S = 0.1
UNTIL = "UNTIL"
LEAVE_AFTER_S = 10.0  # beyond the last one that is due


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one kind, ``rate`` a second from ``begin_s`` to ``end_s``; each is sent up to ``attempts`` times.

    UNTIL in the body becomes the moment ``deadline_s`` after it was sent, on the machine's monotonic clock.
    """

    name: str
    body: str
    path: str
    rate: float
    begin_s: float
    end_s: float
    headers: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 1
    deadline_s: float = math.inf

    def request(self) -> bytes:
        body = self.body.replace(UNTIL, f"{time.perf_counter() + self.deadline_s:.6f}")
        fields = {"Host": "127.0.0.1", "Content-Type": "application/json", **self.headers, "Content-Length": len(body)}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"POST {self.path} HTTP/1.1\r\n{head}\r\n{body}".encode()


@dataclass(frozen=True, slots=True)
class Sent:
    """One attempt; times in seconds from the start. ``status`` 0: no answer."""

    stream: str
    due_s: float
    done_s: float
    status: int
    code: str
    attempt: int
    deadline_s: float

    @property
    def took_s(self) -> float:
        return self.done_s - self.due_s

    @property
    def good(self) -> bool:
        """Answered, and in time."""
        return self.status == 200 and self.took_s <= self.deadline_s


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of all attempts."""

    sent: Sequence[Sent]

    def of(self, stream: str) -> "Outcome":
        return Outcome([each for each in self.sent if each.stream == stream])

    def between(self, begin_s: float, end_s: float) -> "Outcome":
        """Of those that were due in between."""
        return Outcome([each for each in self.sent if begin_s <= each.due_s < end_s])

    @property
    def good(self) -> "Outcome":
        """Answered, and in time."""
        return Outcome([each for each in self.sent if each.good])

    @property
    def accepted(self) -> "Outcome":
        """Answered, in time or not."""
        return Outcome([each for each in self.sent if each.status == 200])

    @property
    def shed(self) -> "Outcome":
        """Taken in, and turned away later."""
        return Outcome([each for each in self.sent if each.code == "shed"])

    @property
    def refused(self) -> "Outcome":
        """All others: what was turned away at the door, and what got no answer at all."""
        return Outcome([each for each in self.sent if each.status != 200 and each.code != "shed"])

    @property
    def codes(self) -> Counter[str]:
        return Counter(each.code or str(each.status) for each in self.sent)

    @property
    def share(self) -> float:
        """Of all, those that went well."""
        return len(self.good.sent) / max(1, len(self.sent))

    def took_s(self, quantile: float = 0.99) -> float:
        """Infinite where there are none: a bar on it is missed then."""
        times = sorted(each.took_s for each in self.sent)
        return times[math.ceil(len(times) * quantile) - 1] if times else math.inf

    def rate(self, begin_s: float, end_s: float) -> float:
        """Good answers a second, by when they came."""
        return sum(begin_s <= each.done_s < end_s for each in self.good.sent) / (end_s - begin_s)


def offer(port: int, streams: Sequence[Stream]) -> Outcome:
    """Run them all, at the same time, against a server of this machine."""
    plan = json.dumps({"port": port, "streams": [asdict(stream) for stream in streams]})
    done = subprocess.run([sys.executable, str(Path(__file__))], input=plan, capture_output=True, text=True, check=True)
    return Outcome([Sent(*each) for each in json.loads(done.stdout)])


class _Connection(asyncio.Protocol):
    """One request at a time; idle ones go back to ``idle``."""

    def __init__(self, client: "_Client") -> None:
        self._client = client
        self._buffer = b""
        self.waiting: asyncio.Future[tuple[int, str]] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = int(fields.get("content-length", "0"))
        if len(rest) < length:
            return
        self._buffer = b""
        self._end(int(lines[0].split()[1]), fields.get("x-error-code", ""))
        if fields.get("connection", "").lower() != "close":
            self._client.idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._end(0, "connection_lost")

    def _end(self, status: int, code: str) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result((status, code))


class _Client:
    def __init__(self, port: int) -> None:
        self.idle: deque[_Connection] = deque()
        self.sent: list[Sent] = []
        self._port = port
        self._started = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._started

    async def run(self, streams: Sequence[Stream]) -> None:
        async with asyncio.TaskGroup() as running:
            for stream in streams:
                running.create_task(self._stream(stream, running))

    async def _stream(self, stream: Stream, running: asyncio.TaskGroup) -> None:
        """Due times are kept whatever happens: one that comes late sends all that are due by then."""
        due_s = stream.begin_s
        while due_s < stream.end_s:
            await asyncio.sleep(max(0.0, due_s - self.now()))
            while due_s <= self.now() and due_s < stream.end_s:
                running.create_task(self._request(stream, due_s))
                due_s += 1.0 / stream.rate

    async def _request(self, stream: Stream, due_s: float) -> None:
        for attempt in range(stream.attempts):
            status, code = await self._exchange(stream, stream.end_s + LEAVE_AFTER_S)
            self.sent.append(Sent(stream.name, due_s, self.now(), status, code, attempt, stream.deadline_s))
            if status == 200:
                return
            await asyncio.sleep(RETRY_AFTER_S)
            due_s = self.now()

    async def _exchange(self, stream: Stream, until_s: float) -> tuple[int, str]:
        while self.idle:
            connection = self.idle.popleft()
            if connection.transport is not None:
                break
        else:
            try:
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(lambda: _Connection(self), "127.0.0.1", self._port)
            except OSError:
                return 0, "not_connected"
        assert connection.transport is not None
        connection.waiting = asyncio.get_running_loop().create_future()
        connection.transport.write(stream.request())
        try:
            async with asyncio.timeout(max(0.1, until_s - self.now())):
                return await connection.waiting
        except TimeoutError:
            connection.transport.abort()
            return 0, "no_answer"


def main() -> None:
    plan = json.load(sys.stdin)
    client = _Client(plan["port"])
    asyncio.run(client.run([Stream(**each) for each in plan["streams"]]))
    json.dump([astuple(sent) for sent in client.sent], sys.stdout)


if __name__ == "__main__":
    main()
