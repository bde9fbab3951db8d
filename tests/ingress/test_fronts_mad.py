"""A front reads what strangers send: whatever one that was taken over says, the owner lives, and holds no more than limits let in."""

import asyncio
import fcntl
import gc
import os
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.ingress.http_wire import LIMITS, echo

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code
from forwardpass.ingress.fronts.board import Board, Row
from forwardpass.ingress.fronts.bodies import read_body, write_body
from forwardpass.ingress.fronts.channel import Channel
from forwardpass.ingress.fronts.desk import STREAM_BYTES_MAX, Desk
from forwardpass.ingress.fronts.link import Link
from forwardpass.ingress.fronts.wire import (  # fmt: skip
    PACKET_BYTES_MAX,
    SLOTS_MAX,
    Answered,
    Asked,
    Line,
    Piece,
    Said,
    Taken,
    encode,
    pair,
    receive,
    send,
)
from forwardpass.ingress.message import HttpAnswer, HttpRequest, Respond
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Table
from forwardpass.ingress.serving import Serving

LINE = Line(b"POST", "/", "", {b"host": b"a"}, b"", False, "192.0.2.1", "")
SMALL = replace(LIMITS, connections_max=1, bytes_in_flight_max=2 * 1024 * 1024)  # bodies of up to 1 MiB


async def never(request: HttpRequest) -> HttpAnswer:
    await asyncio.Event().wait()
    raise AssertionError


async def endless(request: HttpRequest) -> HttpAnswer:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1024)

    return HttpAnswer(200, pieces(), b"text/plain")


async def large(request: HttpRequest) -> HttpAnswer:
    return HttpAnswer(200, bytes(50_000), b"text/plain")


def asked(number: int, slot: int = -1, received_s: float = 0.0, line: Line | None = LINE) -> Asked:
    return Asked(number, slot, received_s, b"", line)


def of_owner(respond: Respond, work: Callable[[socket.socket, list[object]], Awaitable[None]]) -> None:
    """``work`` has a front's end of the wire, and why the owner would not go on, once it would not."""

    async def run() -> None:
        end, fronts = pair()
        lost: list[object] = []
        desk: list[Desk] = []

        def take(said: Any, memory: int) -> None:
            desk[0].take(said, memory)

        channel = Channel(end, take, lost.append, asked=True)
        desk.append(Desk(channel, Serving(respond, Table(routes_of("data")).family, SMALL, monotonic_s)))
        with fronts:
            await work(fronts, lost)
        channel.close()
        await desk[0].close()

    gc.collect()  # what others left
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(run())
    assert len(os.listdir("/proc/self/fd")) <= before  # fewer, where something of others was let go meanwhile


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


MAD: dict[str, list[Said]] = {
    "the same number twice": [asked(1), asked(1)],
    "more requests than connections": [asked(number) for number in range(2000)],
    "a slot that there is not": [asked(1, slot=SLOTS_MAX)],
    "a slot below all": [asked(1, slot=-2)],
    "a head that was not told": [asked(1, slot=3, line=None)],
    "from the future": [asked(1, received_s=1e300)],
    "at no time": [asked(1, received_s=float("nan"))],
}


@pytest.mark.parametrize("said", MAD.values(), ids=MAD.keys())
def test_what_no_front_asks_breaks_the_wire(said: list[Said]) -> None:
    async def work(end: socket.socket, lost: list[object]) -> None:
        for message in said:
            with suppress(BrokenPipeError, ConnectionResetError):
                send(end, [encode(message)], [])
            await asyncio.sleep(0)
        await until(lambda: lost)

    of_owner(never, work)


@pytest.mark.parametrize("sizes", [[1024 * 1024 + 1], [900_000] * 5], ids=["one", "together"])
def test_bodies_larger_than_the_limits_let_in_break_the_wire_and_are_let_go(sizes: list[int]) -> None:
    async def work(end: socket.socket, lost: list[object]) -> None:
        for number, size in enumerate(sizes):
            memory = await write_body((bytes(size),), size)
            message = Asked(number, -1, 0.0, b"", LINE, memory=True)
            send(end, [encode(message)], [memory])
            os.close(memory)
        await until(lambda: lost)

    of_owner(never, work)


@pytest.mark.parametrize("size", [-1, 2**40, STREAM_BYTES_MAX + 1])
def test_more_of_a_stream_than_was_sent_cannot_be_taken(size: int) -> None:
    async def work(end: socket.socket, lost: list[object]) -> None:
        send(end, [encode(asked(1))], [])
        await asyncio.sleep(0.01)
        send(end, [encode(Taken(1, size))], [])
        await until(lambda: lost)

    of_owner(endless, work)


def test_who_asks_and_does_not_listen_is_heard_no_more_until_it_does() -> None:
    async def work(end: socket.socket, lost: list[object]) -> None:
        count = 0
        with suppress(BlockingIOError):
            while count < 20_000:
                send(end, [encode(asked(count))], [])
                count += 1
                for _ in range(5):
                    await asyncio.sleep(0)
        assert count < 20_000 and not lost
        heard = 0
        buffer = bytearray(PACKET_BYTES_MAX)
        while heard < count:
            with suppress(BlockingIOError):
                received = receive(end, buffer)
                assert received is not None
                heard += sum(isinstance(message, Answered) for message in received.messages)
            await asyncio.sleep(0)

    of_owner(large, work)


def test_memory_that_gets_shorter_is_not_read_for_ever() -> None:
    memory = os.memfd_create("a", os.MFD_ALLOW_SEALING)
    os.truncate(memory, 100_000)
    with pytest.raises(ValueError):
        asyncio.run(read_body(memory))


def test_no_process_can_cut_short_what_all_count_in() -> None:
    board = Board(2)
    with pytest.raises(PermissionError):
        os.ftruncate(board.descriptor, 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(board.descriptor, fcntl.F_ADD_SEALS, 0)
    os.close(board.descriptor)


def test_what_a_mad_front_counted_can_be_cleared_and_told() -> None:
    board = Board(2)
    row = Row(board, 1, b"salt")
    row.tell_cancelled(2**63 - 1)
    row.tell_running(2**63 - 1)
    row.tell_refused(Code.BAD_REQUEST, -5)
    board.clear(1)
    assert board.statistics(1).cancelled >= 0
    os.close(board.descriptor)


@contextmanager
def no_descriptor_free() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), limits[1]))
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_without_a_free_descriptor_only_the_large_body_has_no_answer() -> None:
    """And nobody else's connection is lost with the wire."""

    async def work(end: socket.socket, lost: list[object]) -> None:
        memory = await write_body((bytes(100_000),), 100_000)
        send(end, [encode(Asked(1, -1, 0.0, b"", LINE, memory=True)), encode(asked(2))], [memory])
        os.close(memory)
        told: list[Said] = []
        with no_descriptor_free():
            while len(told) < 2:
                await asyncio.sleep(0)
                with suppress(BlockingIOError):
                    received = receive(end, bytearray(PACKET_BYTES_MAX))
                    told += received.messages if received else []
        assert sorted((type(message).__name__, message.number) for message in told) == [("Answered", 2), ("Ended", 1)]
        assert not lost

    of_owner(echo, work)


def test_a_large_answer_that_could_not_be_received_is_no_answer() -> None:
    async def run() -> None:
        owner, end = pair()
        link = Link(end, print, print)
        asking = asyncio.ensure_future(link.respond(HttpRequest(b"GET", "/", "", {}, b"", 0.0, "", b"", "")))
        await asyncio.sleep(0.01)
        memory = os.memfd_create("a")  # not sealed
        send(owner, [encode(Answered(1, 200, b"", b"text/plain", [], memory=True))], [memory])
        os.close(memory)
        with pytest.raises(Exception, match="no answer"):
            await asyncio.wait_for(asking, 5)
        owner.close()

    asyncio.run(run())


def test_a_stream_of_which_nothing_is_taken_stops() -> None:
    async def work(end: socket.socket, lost: list[object]) -> None:
        send(end, [encode(asked(1))], [])
        came = 0
        for _ in range(500):
            await asyncio.sleep(0)
            with suppress(BlockingIOError):
                received = receive(end, bytearray(PACKET_BYTES_MAX))
                came += sum(len(each.data) for each in received.messages if isinstance(each, Piece)) if received else 0
        assert came == STREAM_BYTES_MAX and not lost

    of_owner(endless, work)
