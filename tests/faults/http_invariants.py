"""What holds for HTTP whatever is sent: ``check`` is asked by the fuzzer, by the kept corpus and by hypothesis.

An input is one byte that says how many cuts there are, the length of each piece but the last, and what is sent.
"""

import asyncio
import re
from collections import deque
from dataclasses import astuple, replace
from typing import Any
from urllib.parse import quote

from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.framing import Head
from forwardpass.ingress.http_server import HttpServer
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest
from forwardpass.ingress.splitter import Splitter

LIMITS = replace(
    HttpLimits(), header_bytes_max=512, header_count_max=8, url_bytes_max=128, body_bytes_max=256, chunks_max=8,
    pipelined_max=4, bytes_in_flight_max=1024,
)  # fmt: skip
LINE_BYTES_MAX = 256  # of a chunk's size
Read = list[tuple[Any, ...]]


def check(data: bytes) -> None:
    """Raises AssertionError for what must not be; any exception that escapes is a finding too."""
    pieces = pieces_of(data)
    wire = b"".join(pieces)
    whole = read([wire])
    assert read(pieces) == whole, "where it is cut changes what is read"
    assert read([wire[i : i + 1] for i in range(len(wire))]) == whole, "byte by byte something else is read"
    for head in filter(lambda found: isinstance(found[0], bytes), whole):
        again = read([rewritten(head)])
        assert again == [head], "it is read otherwise once it is written again"
    _check_connection(pieces, whole)


def pieces_of(data: bytes) -> list[bytes]:
    count = data[0] % 8 if data else 0
    lengths, wire = data[1 : 1 + count], data[1 + count :]
    pieces: list[bytes] = []
    for length in lengths:
        pieces.append(wire[:length])
        wire = wire[length:]
    return [piece for piece in (*pieces, wire) if piece]


def read(pieces: list[bytes]) -> Read:
    """What a splitter reads: a tuple for each request, then whether the next was refused."""
    splitter, out = Splitter(LIMITS), Read()
    try:
        for piece in pieces:
            splitter.feed(piece)
            while (request := splitter.take(1.0)) is not None:
                head, body = request
                out.append((*_told(head), body))
                assert len(body) <= LIMITS.body_bytes_max
                if not head.keep_alive:
                    return out
            assert splitter.body_bytes <= LIMITS.body_bytes_max
            held = max(LIMITS.header_bytes_max, LINE_BYTES_MAX)
            assert splitter.unread_bytes <= held, "more is held than the limits allow"
    except Refused:
        out.append(("refused",))  # for which of two reasons may depend on the cut
    return out


def _told(head: Head) -> tuple[Any, ...]:
    headers = tuple(sorted(head.headers.items()))
    return (head.method, head.path, head.query, headers, *astuple(head)[4:-1])  # without what others found out of it


def rewritten(request: tuple[Any, ...]) -> bytes:
    """A request of ``read`` as its own bytes, in the plainest form."""
    method, path, query, headers, length, _, _, http_1_0, _, body = request
    assert isinstance(body, bytes)
    target = path if path == "*" and method == b"OPTIONS" else quote(path, safe="/:@!$&'()*+,;=-._~")
    line = b"%b %b HTTP/1.%d" % (method, f"{target}{'?' if query else ''}{query}".encode(), not http_1_0)
    wire: bytes = b"\r\n".join((line, *(b"%b: %b" % header for header in headers), b"", b""))
    if length is None:
        return wire + (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    return wire + body


class Transport(asyncio.Transport):
    """Keeps what is written, and takes it all at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()
        self.ended = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "something is written after the end"
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    abort = close


class _Client:
    """One connection of a server, fed while it reads; ``silent``: no request is ever answered."""

    def __init__(self, *, silent: bool = False) -> None:
        self.asked: list[tuple[bytes, str, bytes]] = []
        self.clock = FakeClock()
        self.server = HttpServer(self._respond, lambda method, path: "problem", LIMITS, self.clock)
        self.connection, self.transport = self.server.connection(), Transport()
        self._silent = silent
        self.connection.connection_made(self.transport)

    async def _respond(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append((request.method, request.path, request.body))
        if self._silent:
            await asyncio.Event().wait()
        return HttpAnswer(200, b"ok", b"text/plain")

    async def send(self, pieces: list[bytes], turns: int) -> None:
        waiting = deque(pieces)
        for _ in range(turns + 2 * len(pieces)):
            if waiting and self.transport.reading:
                self.connection.data_received(waiting.popleft())
            await asyncio.sleep(0)

    async def sweep(self) -> None:
        """A long time passes, in which it is looked at as often as there are things to end one after the other."""
        for _ in range(4):
            self.clock.advance(100.0)
            self.connection.sweep(self.clock())  # type: ignore[attr-defined]  # what OpenConnections calls
            for _ in range(4):
                await asyncio.sleep(0)

    async def lose(self) -> None:
        self.connection.connection_lost(None)
        await asyncio.sleep(0)  # its task ends
        assert self.server.in_flight.held == 0, "bytes are counted that are not here"
        assert not self.server.refused.get(Code.INTERNAL)


def _check_connection(pieces: list[bytes], expected: Read) -> None:
    """What was read is handed over, each request once and in order, and answered; what was refused ends the connection."""
    turns = 4 * len(expected) + 8
    client = _LOOP.run_until_complete(_answered(pieces, turns))
    requests = [found for found in expected if len(found) > 1]
    assert client.asked == [(found[0], found[1], found[-1]) for found in requests]
    refused = len(expected) > len(requests)
    statuses = re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", client.transport.written)
    assert len(statuses) == len(requests) + refused
    assert (statuses[-1:] != [b"200"]) == refused or not statuses
    assert client.transport.ended or not (refused or any(not found[6] for found in requests))
    for half in (pieces[: len(pieces) // 2], pieces):
        for silent in (False, True):
            _LOOP.run_until_complete(_ended(half, turns, silent=silent))
            _LOOP.run_until_complete(_lost(half, turns, silent=silent))
    _LOOP.run_until_complete(_left(pieces, turns))


async def _answered(pieces: list[bytes], turns: int) -> _Client:
    client = _Client()
    await client.send(pieces, turns)
    await client.lose()
    return client


async def _ended(pieces: list[bytes], turns: int, *, silent: bool) -> None:
    """The client ends its side, and does no more: so does ours, in time, and holds nothing then."""
    client = _Client(silent=silent)
    await client.send(pieces, turns if silent else 1)
    if not client.connection.eof_received():
        client.transport.close()
    await client.sweep()
    assert client.transport.ended and client.server.in_flight.held == 0, "a half-closed connection is kept"
    await client.lose()


async def _lost(pieces: list[bytes], turns: int, *, silent: bool) -> None:
    client = _Client(silent=silent)
    await client.send(pieces, turns if silent else 1)
    await client.lose()


async def _left(pieces: list[bytes], turns: int) -> None:
    """The client does no more, and everything is answered: what is not whole is refused, and it ends."""
    client = _Client()
    await client.send(pieces, turns)
    await client.sweep()
    assert client.transport.ended and client.server.in_flight.held == 0, "an idle connection is kept"
    await client.lose()


_LOOP = asyncio.new_event_loop()
