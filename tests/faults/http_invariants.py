"""What holds for HTTP whatever is sent: ``check`` is asked by the fuzzer, by the kept corpus and by hypothesis.

An input is one byte that says how many cuts there are, the length of each piece but the last, and what is sent.
"""

import asyncio
import re
from dataclasses import astuple, replace
from typing import Any
from urllib.parse import quote

from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.framing import Head
from forwardpass.ingress.http import HttpServer
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
    return (head.method, head.path, head.query, headers, *astuple(head)[4:])


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


def _check_connection(pieces: list[bytes], expected: Read) -> None:
    """What was read is handed over, each request once and in order, and answered; what was refused ends the connection."""
    asked: list[tuple[bytes, str, bytes]] = []

    async def respond(request: HttpRequest) -> HttpAnswer:
        asked.append((request.method, request.path, request.body))
        return HttpAnswer(200, b"ok", b"text/plain")

    async def run() -> tuple[Transport, HttpServer]:
        server = HttpServer(respond, lambda method, path: "problem", LIMITS, FakeClock())
        connection, transport = server.connection(), Transport()
        connection.connection_made(transport)
        for piece in pieces:
            connection.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(2 * len(expected) + 8):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        await asyncio.sleep(0)  # its task ends
        return transport, server

    transport, server = _LOOP.run_until_complete(run())
    requests = [found for found in expected if len(found) > 1]
    assert asked == [(found[0], found[1], found[-1]) for found in requests]
    refused = len(expected) > len(requests)
    statuses = re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", transport.written)
    assert len(statuses) == len(requests) + refused
    assert (statuses[-1:] != [b"200"]) == refused or not statuses
    assert transport.ended or not (refused or any(not found[6] for found in requests))
    assert server.in_flight.held == 0, "bytes are counted that are not here"
    assert not server.refused.get(Code.INTERNAL)


_LOOP = asyncio.new_event_loop()
