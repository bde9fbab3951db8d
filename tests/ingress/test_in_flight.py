"""What the requests of all connections may hold together (FAULTS V10): a few huge ones leave room, and all is given back."""

import asyncio
import gzip
import re
import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from random import Random

import pytest
from tests.ingress.http_wire import GET, LIMITS, Reply, Served, connect, raw, serving
from tests.ingress.small_plane import SmallPlane, counting
from tests.ingress.test_http_connection import until

from forwardpass.core.errors import Code, Failed
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest

MIB = 1024 * 1024
MANY = replace(LIMITS, body_bytes_max=4 * MIB, bytes_in_flight_max=8 * MIB)
PACKED = gzip.compress(Random(1).randbytes(MIB).hex().encode())  # 2 MiB, about half as large
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def head(size: int) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size


async def length(request: HttpRequest) -> HttpAnswer:
    return HttpAnswer(200, b"%d" % len(request.body))


@contextmanager
def filled(size: int) -> Iterator[Served]:
    """A server whose clients have sent so many bytes of bodies that are not whole."""
    with serving(length, MANY) as served, ExitStack() as stack:
        for number, held in enumerate(range(0, size, 3 * MIB)):
            piece = min(3 * MIB, size - held)
            client = stack.enter_context(connect(served, f"127.0.0.{number + 2}"))
            client.sendall(head(piece + 1) + bytes(piece))
        until(lambda: served.server.in_flight.held == size)
        yield served


def assert_full(reply: Reply) -> None:
    assert (reply.statuses, reply.closed) == ([503], True)
    assert "X-Error-Code: bytes_in_flight_full" in reply.head and re.search("\r\nRetry-After: [23]$", reply.head)


def test_a_body_without_room_is_refused_before_it_is_sent() -> None:
    with filled(6 * MIB) as served:
        assert_full(raw(served, head(MIB + 1)))
        assert raw(served, head(MIB) + bytes(MIB)).statuses == [200]


def test_the_largest_body_has_room_where_the_settings_leave_it_the_least() -> None:
    with serving(length, replace(MANY, bytes_in_flight_max=-(-16 * 4 * MIB // 7))) as served:
        assert raw(served, head(4 * MIB) + bytes(4 * MIB), wait_s=2).statuses == [200]


def test_a_chunked_body_is_refused_when_it_has_grown_too_large() -> None:
    with filled(6 * MIB) as served:
        assert_full(raw(served, CHUNKED + b"10000\r\n%b\r\n" % bytes(65536) * 20))


def test_huge_bodies_leave_room_for_small_ones() -> None:
    with filled(7 * MIB - 1) as served:
        assert_full(raw(served, head(65_537)))
        assert raw(served, head(65_536) + bytes(65_536)).statuses == [200]
        assert raw(served, GET).statuses == [200]


def test_who_only_says_that_much_will_come_takes_no_room() -> None:
    with serving(length, MANY) as served, ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(served)).sendall(head(3 * MIB))
        assert raw(served, head(3 * MIB) + bytes(3 * MIB)).body == b"%d" % (3 * MIB)


@pytest.mark.parametrize("end", ["answered", "hung up", "refused", "too slow"])
def test_however_a_request_ends_nothing_of_it_is_counted_on(end: str) -> None:
    limits = replace(MANY, body_grace_s=0.05 if end == "too slow" else 10.0, body_rate_min=10**9)
    with serving(length, limits) as served:
        with connect(served) as client:
            client.sendall(CHUNKED + b"100000\r\n" + bytes(MIB) + (b"\r\n0\r\n\r\n" if end == "answered" else b""))
            if end == "refused":
                client.sendall(b"\r\nx\r\n")
            if end != "hung up":
                client.settimeout(8)
                assert client.recv(4096)
        until(lambda: served.server.in_flight.held == 0)


def test_a_client_that_goes_while_its_requests_wait_frees_them() -> None:
    async def never(request: HttpRequest) -> HttpAnswer:
        await served.loop.create_future()
        raise AssertionError

    with serving(never, MANY) as served:
        with connect(served) as client:
            client.sendall((head(100) + bytes(100)) * 5 + head(100) + bytes(50))
            until(lambda: served.server.in_flight.held == 5 * len(head(100)) + 550)
        until(lambda: served.server.in_flight.held == 0)


def test_what_comes_out_of_a_coded_body_is_counted_while_it_is_answered() -> None:
    in_flight = BytesInFlight(4 * MIB)
    plane = SmallPlane(Edge(limits=HttpLimits(), in_flight=in_flight), counting)
    assert plane.ask(PACKED, {"Content-Encoding": "gzip"}).body == b"%d" % (2 * MIB)
    assert in_flight.held == 2 * MIB  # until whoever sends the answer has done so
    assert plane.ask(PACKED, {"Content-Encoding": "gzip"}).status == 503


def test_coded_bodies_are_given_back_when_they_are_answered() -> None:
    in_flight = BytesInFlight(8 * MIB)
    plane = SmallPlane(Edge(limits=MANY, in_flight=in_flight), counting)
    sent = (
        b"POST /infer/p HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED)
        + PACKED
    )
    with serving(plane.plane.respond, MANY, in_flight=in_flight) as served:
        assert [raw(served, sent, wait_s=0.02).statuses for _ in range(5)] == [[200]] * 5
        assert in_flight.held == 0


def test_the_limit_is_of_the_sum_and_strangers_are_told_no_figures() -> None:
    in_flight = BytesInFlight(8 * MIB)
    in_flight.hold(7 * MIB - 100_000)
    in_flight.check(100_000, 100_000)
    with pytest.raises(Failed) as refused:
        in_flight.check(100_001, 100_001)
    assert refused.value.code == Code.BYTES_IN_FLIGHT_FULL and not re.search(r"[0-9]", refused.value.text)
    assert "limits.bytes_in_flight_max" in refused.value.detail and str(7 * MIB) in refused.value.detail


def test_those_who_are_refused_do_not_all_come_back_at_once() -> None:
    waits = set()
    for _ in range(10):
        with pytest.raises(Failed) as refused:
            BytesInFlight(MIB).check(MIB, MIB)
        waits.add(refused.value.retry_after_s)
    assert len(waits) > 1 and min(map(float, filter(None, waits))) >= 1


def test_one_address_holds_half_of_the_large_bodies_at_most() -> None:
    """3.5 MiB of 7; small ones are not counted out."""
    with serving(length, MANY) as served, connect(served, "127.0.0.2") as client:
        client.sendall(head(3 * MIB + 1) + bytes(3 * MIB))
        until(lambda: served.server.in_flight.held == 3 * MIB)
        assert_full(raw(served, head(MIB), address="127.0.0.2"))
        assert raw(served, head(9) + bytes(9), address="127.0.0.2").statuses == [200]
        assert raw(served, head(3 * MIB) + bytes(3 * MIB), address="127.0.0.3").statuses == [200]


def test_while_memory_is_short_small_bodies_alone_come_in() -> None:
    def short() -> None:
        raise Failed(Code.MEMORY_FULL, "no")

    with serving(length, MANY, in_flight=BytesInFlight(8 * MIB, short)) as served:
        assert raw(served, head(65_537)).statuses == [503]
        assert raw(served, head(65_536) + bytes(65_536)).statuses == [200]


def test_a_body_that_came_in_one_piece_without_room_is_told_so_as_its_clients_read_it_and_the_connection_stays() -> (
    None
):
    in_flight = BytesInFlight(8 * MIB)
    in_flight.hold(8 * MIB)
    sent = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}" + GET
    with serving(length, MANY, in_flight=in_flight) as served:
        reply = raw(served, sent)
        assert (reply.statuses, reply.closed) == ([503, 200], False)
        assert b'"type":"server_error"' in reply.body and in_flight.held == 8 * MIB


def test_heads_that_wait_and_what_is_not_read_are_counted_and_bounded() -> None:
    async def never(request: HttpRequest) -> HttpAnswer:
        await served.loop.create_future()
        raise AssertionError

    large = b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % bytes(16_000).replace(b"\0", b"x")
    with serving(never, MANY) as served:
        with connect(served) as client:
            client.setblocking(False)
            with suppress(BlockingIOError):
                while client.send(large):
                    pass
            until(lambda: served.server.in_flight.held > 6 * len(large))  # one runs, four wait, some is unread
            assert served.server.in_flight.held < 600_000
        served.call(served.server.drain(0))
        assert served.server.in_flight.held == 0


@pytest.mark.parametrize("body", [b"", b"GET / HTTP/1.1\r\n", head(100) + bytes(50), head(3 * MIB) + bytes(9)])
def test_a_half_close_while_a_request_runs_ends_the_connection_and_frees_the_next(body: bytes) -> None:
    """Even where the client does not take what was answered before."""

    async def long(request: HttpRequest) -> HttpAnswer:
        if request.path == "/slow":
            await served.loop.create_future()
        return HttpAnswer(200, bytes(60_000))

    with serving(long, replace(MANY, write_time_s=0.5)) as served, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", served.server.listeners.port))
        client.sendall(GET * 4 + b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n" + body)
        until(lambda: len(served.requests) == 5)
        client.shutdown(socket.SHUT_WR)
        until(lambda: served.server.statistics().connections == 0)
        assert served.server.in_flight.held == 0


def test_many_honest_bodies_in_deflate_are_unpacked_side_by_side() -> None:
    """It does not say how much will come out: only what did is counted."""
    in_flight = BytesInFlight(256 * MIB)
    plane = SmallPlane(Edge(limits=HttpLimits(), in_flight=in_flight), counting)
    body = Random(2).randbytes(700_000).hex().encode()

    async def ask() -> list[int]:
        asked = [plane.asked(zlib.compress(body), {"Content-Encoding": "deflate"}, peer="10.0.0.1") for _ in range(12)]
        return [answer.status for answer in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == [200] * 12
    assert in_flight.held == 12 * len(body)


def test_a_small_body_that_unpacks_large_takes_no_room_of_the_small_ones() -> None:
    in_flight = BytesInFlight(8 * MIB)
    in_flight.hold(7 * MIB - 100_000)
    plane = SmallPlane(Edge(limits=HttpLimits(), in_flight=in_flight), counting)
    assert plane.ask(gzip.compress(bytes(200_000)), {"Content-Encoding": "gzip"}).status == 503
    assert plane.ask(gzip.compress(bytes(60_000)), {"Content-Encoding": "gzip"}).status == 200


def test_a_reset_in_a_body_gives_its_bytes_back() -> None:
    with serving(length, MANY) as served:
        with connect(served) as client:
            client.sendall(head(MIB) + bytes(MIB // 2))
            until(lambda: served.server.in_flight.held > 0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        until(lambda: served.server.in_flight.held == 0)


def memory_is_full() -> None:
    raise Failed(Code.MEMORY_FULL, "full", retry_after_s=1.0)


def test_while_no_work_is_taken_in_a_large_body_is_refused_by_its_head_and_none_of_it_is_held() -> None:
    in_flight = BytesInFlight(8 * MIB, memory_is_full)
    with serving(length, MANY, in_flight=in_flight) as served:
        told = raw(served, head(MIB)[:-2] + b"Expect: 100-continue\r\n\r\n")
        assert (told.statuses, told.closed, in_flight.held) == ([503], True, 0)
        assert "X-Error-Code: memory_full" in told.head
        assert raw(served, CHUNKED + b"100000\r\n" + bytes(MIB)).statuses == [503]
        assert raw(served, head(100) + bytes(100)).statuses == [200]  # small: whoever it is for says what becomes of it


def test_while_no_work_is_taken_in_a_small_body_does_not_grow_large_by_its_coding() -> None:
    in_flight = BytesInFlight(512 * MIB, memory_is_full)
    plane = SmallPlane(Edge(limits=HttpLimits(), in_flight=in_flight), counting)
    assert plane.ask(gzip.compress(bytes(MIB)), {"Content-Encoding": "gzip"}).status == 503
    assert in_flight.held == 0
