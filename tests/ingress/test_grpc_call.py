"""A stream of many requests to what is slow: all that arrived are answered, however long it takes and whoever ends."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.faults.h2_wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    REQUEST,
    SETTINGS,
    field,
    frame,
    head,
    message,
)  # fmt: skip
from tests.grpc_calls import channel, infer_request
from tests.ingress.doors import Asked
from tests.ingress.small_plane import SmallPlane, counting
from tests.ingress.test_grpc_connection import Client, in_a_loop

from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.grpc.plane import GrpcPlane
from forwardpass.ingress.grpc.server import GrpcServer
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpLimits, HttpRequest
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.sockets import at_port

OPEN = frame(HEADERS, END_HEADERS, 1, head("ModelStreamInfer", grpc_encoding="gzip"))
LARGE = infer_request("p", "x", "FP32", [1, 5000], os.urandom(20_000))
PACKED = message(gzip.compress(LARGE.SerializeToString()), 1)  # enough to be unpacked in a thread
HALF = REQUEST[:20]
NOBODY_ASKED = Edge()


class Slowly(Inference):
    """Answers one request after the other with nothing, each after ``each_s``, once it is ``open``."""

    def __init__(self, each_s: float) -> None:
        super().__init__(SmallPlane(Edge(), counting).inference.handle, monotonic_s)
        self.open = asyncio.Event()
        self._each_s = each_s
        self._turn = asyncio.Lock()

    async def run(self, target: Any, work: Any, decode: Any, encode: Any, *more: Any) -> Any:
        await self.open.wait()
        async with self._turn:
            await asyncio.sleep(self._each_s)
        return [b""], []


@asynccontextmanager
async def served(
    inference: Slowly, limits: HttpLimits, edge: Edge = NOBODY_ASKED
) -> AsyncIterator[tuple[GrpcServer, int]]:
    """A server and its port."""
    routes = routes_of("data", "grpc")
    plane = GrpcPlane(inference, routes, {route.endpoint: counting for route in routes}, edge, monotonic_s)
    server, sock = GrpcServer(plane, limits, monotonic_s), at_port("data", "127.0.0.1", 0)
    await server.start(sock=sock)
    try:
        async with asyncio.timeout(20):
            yield server, sock.getsockname()[1]
    finally:
        await server.drain(0.0)


@in_a_loop
async def test_a_client_that_has_to_wait_in_the_middle_of_a_message_is_not_called_slow() -> None:
    inference = Slowly(each_s=0.2)
    inference.open.set()
    asked = infer_request("p", "x", "FP32", [1, 50_000], bytes(200_000))  # five fill the window
    limits = HttpLimits(body_grace_s=0.1, body_rate_min=10**9, body_bytes_max=2**20)
    async with served(inference, limits) as (_, port):
        with channel(port) as client:
            answers = await asyncio.to_thread(lambda: list(client.stream([asked] * 16)))
    assert [answer.error_message for answer in answers] == [""] * 16


@in_a_loop
async def test_a_client_that_stops_in_the_middle_of_a_message_by_itself_is() -> None:
    inference = Slowly(each_s=0.0)
    inference.open.set()
    async with served(inference, HttpLimits(body_grace_s=0.1)) as (_, port), raw(port) as client:
        client.say(OPEN, frame(DATA, 0, 1, REQUEST * 3 + HALF))
        assert b"body_too_slow" in (await said(client))[1]


class Whoever(Asked):
    """Everybody is known for so many looks."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    async def caller(self, http: HttpRequest) -> Caller:
        self._looks -= 1
        if self._looks < 0:
            raise Refused(Code.UNAUTHENTICATED, "nobody knows you")
        return ANONYMOUS

    def knows(self, caller: Caller) -> bool:
        return True


@pytest.mark.parametrize(("looks", "answered"), [(0, 0), (1, 0), (3, 1)])
def test_a_silent_stream_of_one_who_is_known_no_more_ends(looks: int, answered: int) -> None:
    """Whoever was never known is refused before any message is read."""
    asyncio.run(silent(looks, answered))


async def silent(looks: int, answered: int) -> None:
    inference = Slowly(each_s=0.0)
    inference.open.set()
    async with served(inference, HttpLimits(), Edge(identity=Whoever(looks))) as (_, port), raw(port) as client:
        client.say(OPEN, *[frame(DATA, 0, 1, REQUEST)] * answered)
        count, trailers = await said(client)
    assert (count, field(b"grpc-status", b"16") in trailers) == (answered, True), trailers


AFTER = {
    "nothing": (b"", b"14"),
    "that it was its last": (frame(DATA, END_STREAM, 1), b"0"),
    "one more": (frame(DATA, END_STREAM, 1, REQUEST), b"14"),
    "one more, and its last": (frame(DATA, 0, 1, REQUEST) + frame(DATA, END_STREAM, 1), b"14"),
}


@pytest.mark.parametrize("said_after", AFTER)
def test_all_that_arrived_before_the_server_ends_are_answered_and_no_more(said_after: str) -> None:
    asyncio.run(ending(*AFTER[said_after]))


async def ending(after: bytes, status: bytes, before: bytes = b"") -> None:
    inference = Slowly(each_s=0.0)
    async with served(inference, HttpLimits()) as (server, port), raw(port) as client:
        requests = [frame(DATA, 0, 1, each) for each in [REQUEST] * 100 + [PACKED] * 30]
        client.say(OPEN, *requests, frame(DATA, 0, 1, before), frame(PING, 0, 0, bytes(8)))
        await client.until(PING, 0)
        drained = asyncio.create_task(server.drain(10.0))
        await client.until(GOAWAY, 0)
        client.say(after, frame(PING, 0, 0, bytes(8)))
        await client.until(PING, 0)
        inference.open.set()
        count, trailers = await said(client)
        assert (count, field(b"grpc-status", status) in trailers) == (130, True), trailers
        assert (b"shutting_down" in trailers) == (status != b"0")
        await drained


def test_a_message_that_is_half_here_when_the_server_ends_does_not_take_the_answers_of_others() -> None:
    asyncio.run(ending(b"", b"14", before=HALF))


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PREFACE + frame(SETTINGS, 0, 0))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def said(client: Client) -> tuple[int, bytes]:
    """How many messages a stream got, and its trailers."""
    count = 0
    async for got in client.frames():
        if got.kind == DATA:
            count += 1
        if got.flags & END_STREAM and got.stream == 1:
            return count, got.payload
    raise AssertionError("the connection is closed")
