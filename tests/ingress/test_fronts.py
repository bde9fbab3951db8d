"""Between a front and its owner: what is said arrives whole and in order, what nobody says breaks the wire, counts are one."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest

from forwardpass.core.errors import Code, Failed
from forwardpass.ingress.fronts.board import Board, Row
from forwardpass.ingress.fronts.bodies import body_at, read_body, write_body
from forwardpass.ingress.fronts.channel import Channel
from forwardpass.ingress.fronts.wire import (
    INLINE_BYTES_MAX,
    PACKET_BYTES_MAX,
    Answered,
    Asked,
    BrokenWire,
    Ended,
    Line,
    Piece,
    Said,
    Taken,
    encode,
    pair,
    receive,
    send,
)
from forwardpass.ingress.in_flight import BytesInFlight

MIB = 1024 * 1024
LINE = Line(b"POST", "/é", "a=b", {b"host": b"a", b"x": b"\xff"}, b"", False, "127.0.0.1", "CN=a")
SAID: list[Said] = [
    Asked(1, 0, 1.5, b"{}", LINE),
    Asked(2, 0, 1.5, b""),
    Piece(1, bytes(INLINE_BYTES_MAX)),
    Answered(2, 200, b"", b"text/plain", [(b"A", b"b")]),
    Taken(1, 5),
    Ended(1, whole=False),
]


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board(3)
    yield board
    os.close(board.descriptor)


def through(said: list[Said], work: Callable[[Channel, list[Said]], Awaitable[None]]) -> None:
    """What one end says, given the list of what the other end hears."""

    async def run() -> None:
        heard: list[Said] = []
        first, second = pair()
        ends = [
            Channel(first, lambda message, memory: None, print),
            Channel(second, lambda m, d: heard.append(m), print),
        ]
        for message in said:
            ends[0].say(message)
        await work(ends[0], heard)
        for end in ends:
            end.close()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


def test_what_is_said_is_heard_in_its_order() -> None:
    async def work(end: Channel, heard: list[Said]) -> None:
        await until(lambda: len(heard) == len(SAID))
        assert heard == SAID

    through(SAID, work)


def test_what_is_more_than_the_socket_takes_is_sent_once_there_is_room() -> None:
    many: list[Said] = [Piece(number, bytes(INLINE_BYTES_MAX)) for number in range(200)]

    async def work(end: Channel, heard: list[Said]) -> None:
        await until(lambda: len(heard) == len(many))
        assert [message.number for message in heard] == list(range(200))

    through(many, work)


def test_small_messages_of_one_turn_leave_in_one_packet() -> None:
    async def run() -> int:
        first, second = pair()
        channel = Channel(first, lambda message, memory: None, print)
        for number in range(100):
            channel.say(Taken(number, 1))
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        received = receive(second, bytearray(PACKET_BYTES_MAX))
        channel.close()
        second.close()
        return len(received.messages) if received else 0

    assert asyncio.run(run()) == 100


BROKEN = {
    "no list": b"\x01",
    "no message": b"\x91\x01",
    "a tag that nobody has": b"\x91\x92\x63\x01",
    "cut": b"\x92" + encode(Taken(1, 1)),
    "a memory file that is not there": b"\x91" + encode(Asked(1, -1, 0.0, b"", LINE, memory=True)),
    "a text for a number": b"\x91" + msgspec.msgpack.encode([7, 1, "5"]),
}


@pytest.mark.parametrize("packet", BROKEN.values(), ids=BROKEN.keys())
def test_what_nobody_says_breaks_the_wire(packet: bytes) -> None:
    first, second = pair()
    with first, second:
        first.send(packet)
        with pytest.raises(BrokenWire):
            receive(second, bytearray(PACKET_BYTES_MAX))


def test_descriptors_of_a_broken_packet_are_closed() -> None:
    first, second = pair()
    with first, second:
        before = len(os.listdir("/proc/self/fd"))
        memory = os.memfd_create("a")
        send(first, [encode(Taken(1, 1))], [memory])
        os.close(memory)
        with pytest.raises(BrokenWire):
            receive(second, bytearray(PACKET_BYTES_MAX))
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("size", [INLINE_BYTES_MAX + 1, 3 * MIB])
def test_a_large_body_is_whole_whichever_way_it_is_read(size: int) -> None:
    buffers = [bytes([number % 251]) * (size // 600) for number in range(600)]

    async def run() -> None:
        assert await read_body(await write_body(buffers, size)) == b"".join(buffers)
        assert body_at(await write_body(buffers, size)) == b"".join(buffers)

    asyncio.run(run())


def test_memory_that_could_still_change_is_not_read() -> None:
    memory = os.memfd_create("a", os.MFD_ALLOW_SEALING)
    os.write(memory, b"a")
    with pytest.raises(ValueError):
        body_at(memory)


def test_bytes_in_flight_are_limited_over_all_processes(board: Board) -> None:
    one, other = BytesInFlight(8 * MIB), BytesInFlight(8 * MIB)
    one.join(Row(board, 1, b"salt"))
    other.join(Row(board, 2, b"salt"))
    one.hold(3 * MIB, "192.0.2.1")
    other.check(MIB // 2, MIB // 2, "192.0.2.1")
    with pytest.raises(Failed) as refused:
        other.check(MIB, MIB, "192.0.2.1")  # it would have more than half of the room for large bodies
    assert refused.value.code is Code.BYTES_IN_FLIGHT_FULL
    other.check(3 * MIB, 3 * MIB, "192.0.2.2")
    one.hold(2 * MIB, "192.0.2.3")
    with pytest.raises(Failed):
        other.check(3 * MIB, 3 * MIB, "192.0.2.2")  # more than all of it


def test_what_a_process_held_is_held_no_more_once_it_died_and_what_it_counted_stays(board: Board) -> None:
    dead, other = Row(board, 1, b"salt"), Row(board, 2, b"salt")
    dead.tell_open(4, 4, "192.0.2.1")
    dead.tell_held(7, 7, "192.0.2.1")
    dead.tell_requests(9)
    dead.tell_running(2)
    dead.tell_refused(Code.BAD_REQUEST, 3)
    board.clear(1)
    assert (other.open_elsewhere(), other.open_elsewhere_of("192.0.2.1")) == (0, 0)
    assert (other.held_elsewhere(), other.held_elsewhere_of("192.0.2.1")) == (0, 0)
    told = board.statistics(1)
    assert (told.requests, told.running, told.cancelled, told.refused) == (9, 0, 2, {Code.BAD_REQUEST: 3})


def test_both_ends_see_the_end_of_the_other() -> None:
    async def run() -> list[Exception | None]:
        first, second = pair()
        ended: list[Exception | None] = []
        channel = Channel(first, lambda message, memory: None, ended.append)
        second.shutdown(socket.SHUT_RDWR)
        second.close()
        await until(lambda: bool(ended))
        channel.say(Taken(1, 1))  # to nobody
        return ended

    assert asyncio.run(run()) == [None]
