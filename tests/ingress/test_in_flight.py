"""What the requests of all connections may hold together (FAULTS V10): a few huge ones leave room, and all is given back."""

import gzip
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
        for held in range(0, size, 3 * MIB):
            piece = min(3 * MIB, size - held)
            stack.enter_context(connect(served)).sendall(head(piece + 1) + bytes(piece))
        until(lambda: served.server.in_flight.held == size)
        yield served


def assert_full(reply: Reply) -> None:
    assert (reply.statuses, reply.closed) == ([503], True)
    assert "X-Error-Code: bytes_in_flight_full" in reply.head and "Retry-After: 1" in reply.head


def test_a_body_without_room_is_refused_before_it_is_sent() -> None:
    with filled(6 * MIB) as served:
        assert_full(raw(served, head(MIB + 1)))
        assert raw(served, head(MIB) + bytes(MIB)).statuses == [200]


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
            stack.enter_context(connect(served)).sendall(head(4 * MIB))
        assert raw(served, head(4 * MIB) + bytes(4 * MIB)).body == b"%d" % (4 * MIB)


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
            until(lambda: served.server.in_flight.held == 550)
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


def test_the_limit_is_of_the_sum_and_names_its_setting() -> None:
    in_flight = BytesInFlight(8 * MIB)
    in_flight.held = 7 * MIB - 100_000
    in_flight.check(100_000, 100_000)
    with pytest.raises(Failed, match=r"limits\.bytes_in_flight_max") as refused:
        in_flight.check(100_001, 100_001)
    assert (refused.value.code, refused.value.retry_after_s) == (Code.BYTES_IN_FLIGHT_FULL, 1.0)


def test_a_reset_in_a_body_gives_its_bytes_back() -> None:
    with serving(length, MANY) as served:
        with connect(served) as client:
            client.sendall(head(MIB) + bytes(MIB // 2))
            until(lambda: served.server.in_flight.held > 0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        until(lambda: served.server.in_flight.held == 0)
