"""Clients that do not take what they asked for: a call is given up, the connection only where nothing of it moves (H3)."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps

from tests.faults.h2_wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    WINDOW,
    Frame,
    frame,
    head,
)  # fmt: skip

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.ingress.connections import OpenConnections
from forwardpass.ingress.grpc.connection import Connection
from forwardpass.ingress.message import HttpLimits

CANCEL = 8
LIMITS = HttpLimits(write_time_s=0.5)
SLOW_BYTES = 24 * 1024 * 1024  # more than the buffers of a connection take


class Zeros:
    """A call that answers with as many bytes as its path says."""

    def __init__(self, connection: Connection, stream: int, size: int) -> None:
        self._connection, self._stream, self._size = connection, stream, size
        self._task: asyncio.Task[None] | None = None

    def receive(self, data: bytes, ended: bool) -> None:
        if ended:
            self._task = self._connection.run(self._answer())

    async def _answer(self) -> None:
        await self._connection.out.data(self._stream, bytes(self._size))
        self._connection.out.send(frame(DATA, END_STREAM, self._stream))
        self._connection.close_call(self._stream)

    def sweep(self, now_s: float) -> None:
        pass

    def excuse(self) -> None:
        pass

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        pass


class Listener:
    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.clock: Clock = monotonic_s
        self.connections = OpenConnections(limits, self.clock)
        self.draining = False

    def open(self, connection: Connection, stream: int, headers: dict[bytes, bytes] | None) -> Zeros:
        assert headers is not None
        return Zeros(connection, stream, int(headers[b":path"][1:]))


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def say(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))

    async def frames(self) -> AsyncIterator[Frame]:
        while True:
            try:
                start = await self._reader.readexactly(9)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            kind, flags, stream = struct.unpack(">BBI", start[3:])
            yield Frame(kind, flags, stream, await self._reader.readexactly(int.from_bytes(start[:3])))

    async def until(self, kind: int, stream: int) -> Frame:
        async for got in self.frames():
            if (got.kind, got.stream) == (kind, stream) and (kind != DATA or got.flags & END_STREAM):
                return got
        raise AssertionError("the connection is closed")


@asynccontextmanager
async def connected(limits: HttpLimits = LIMITS, window: int = 65535) -> AsyncIterator[Client]:
    """A client whose streams begin with such a window."""
    listener = Listener(limits)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(listener), "127.0.0.1", 0)
    listener.connections.watch()
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))
    try:
        async with asyncio.timeout(10):
            yield Client(reader, writer)
    finally:
        writer.close()
        server.close()
        await listener.connections.drain(0.0)


def ask(stream: int, size: int) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, head(path=f"/{size}"))


def wider(stream: int, size: int) -> bytes:
    return frame(WINDOW, 0, stream, struct.pack(">I", size))


def in_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@in_a_loop
async def test_a_call_whose_answer_is_not_taken_is_given_up_and_others_go_on() -> None:
    async with connected(window=0) as client:
        client.say(ask(1, 100), ask(3, 100), wider(3, 100))
        await client.until(DATA, 3)
        assert (await client.until(RESET, 1)).reason == CANCEL
        client.say(ask(5, 100), wider(5, 100))
        await client.until(DATA, 5)


@in_a_loop
async def test_a_call_whose_answer_is_taken_byte_by_byte_is_given_up() -> None:
    async with connected(replace(LIMITS, body_rate_min=10**6), window=1) as client:
        client.say(ask(1, 10**6))
        async for got in client.frames():
            if got.kind == DATA:
                await asyncio.sleep(0.01)
                client.say(wider(1, 1))
            if got.kind == RESET:
                break
        assert got.reason == CANCEL


@in_a_loop
async def test_a_connection_that_takes_nothing_at_all_is_cut() -> None:
    async with connected(window=10**6) as client:
        client.say(ask(1, 10**5), ask(3, 10))
        kinds = [got.kind async for got in client.frames()]
        assert DATA in kinds and RESET not in kinds  # the window of all is empty: no call is at fault


@in_a_loop
async def test_a_window_that_is_empty_harms_nobody_while_nothing_waits() -> None:
    async with connected(replace(LIMITS, write_time_s=0.05), window=10**6) as client:
        client.say(ask(1, 65535))
        await client.until(DATA, 1)
        await asyncio.sleep(0.6)
        client.say(frame(PING, 0, 0, bytes(8)))
        await client.until(PING, 0)


@in_a_loop
async def test_a_client_that_widens_its_windows_for_every_frame_gets_a_large_answer() -> None:
    size, got_bytes = 48 * 1024 * 1024, 0
    async with connected() as client:
        client.say(ask(1, size))
        async for got in client.frames():
            if got.kind == DATA and got.payload:
                got_bytes += len(got.payload)
                client.say(wider(0, len(got.payload)), wider(1, len(got.payload)))
            elif got.kind in (DATA, GOAWAY):
                break
    assert got_bytes == size


@in_a_loop
async def test_a_frame_that_could_not_come_while_an_answer_was_not_taken_is_no_fault() -> None:
    limits = replace(LIMITS, write_time_s=20.0, header_time_s=0.1, body_rate_min=10**6)
    async with connected(limits, window=2**31 - 1) as client:
        client.say(wider(0, 2**30), ask(1, SLOW_BYTES), frame(PING, 0, 0, bytes(8))[:12])
        await asyncio.sleep(1.0)  # takes nothing, so that the server does not listen
        client.say(bytes(5), ask(3, 100))
        due = {(DATA, 1), (PING, 0), (DATA, 3)}
        async for got in client.frames():
            if got.kind != DATA or got.flags & END_STREAM:
                due.discard((got.kind, got.stream))
            if not due:
                return
    raise AssertionError(f"the connection is closed before {due}")
