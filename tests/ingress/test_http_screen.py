"""Who asks is looked at when a head is here, before a body that is not small comes in, or is asked for."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.ingress.doors import Asked
from tests.ingress.http_wire import GET, LIMITS, Served, connect, raw, read_reply, serving
from tests.ingress.small_plane import SmallPlane, counting
from tests.ingress.test_http_connection import until

from forwardpass.core.caller import Caller
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.cors import Origins
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.message import HttpRequest

MIB = 1024**2
LARGE = replace(LIMITS, body_bytes_max=4 * MIB, bytes_in_flight_max=16 * MIB)
KEY = b"X-API-Key: good\r\n"


class Doorkeeper(Asked):
    """Knows one key; knows it only once the loop has turned."""

    async def caller(self, http: HttpRequest) -> Caller:
        await asyncio.sleep(0)
        given = http.headers.get(b"x-api-key", b"")
        if given not in (b"good", b"other"):
            raise Refused(Code.UNAUTHENTICATED, "who?")
        return Caller("t", "k", frozenset(["infer:p" if given == b"good" else "infer:q"]))

    def knows(self, caller: Caller) -> bool:
        return True


def head(size: int | None, *lines: bytes, path: bytes = b"/infer/p") -> bytes:
    framing = b"Transfer-Encoding: chunked" if size is None else b"Content-Length: %d" % size
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n%b\r\n" % (path, framing, b"".join(lines))


@pytest.fixture
def small() -> SmallPlane:
    return SmallPlane(Edge(Origins(frozenset([b"http://app.example"])), identity=Doorkeeper(), limits=LARGE), counting)


@pytest.fixture
def served(small: SmallPlane) -> Iterator[Served]:
    plane = small.plane
    with serving(plane.respond, LARGE, family_of=plane.family_of, screen=plane.screen) as running:
        yield running


def test_those_whom_nobody_knows_keep_no_key_out(served: Served) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(connect(served)) for _ in range(4)]
        for stranger in strangers:
            stranger.sendall(head(4 * MIB) + bytes(100_000))
        assert [read_reply(stranger).statuses for stranger in strangers] == [[401]] * 4
        until(lambda: served.server.in_flight.held == 0)
        assert raw(served, head(4 * MIB, KEY) + bytes(4 * MIB)).body == b"%d" % (4 * MIB)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (head(9, b"Expect: 100-continue\r\n"), 401), (head(65_537), 401), (head(None) + b"11000\r\n" + bytes(69_632), 401),
        (head(65_537, KEY, path=b"/infer/q"), 403), (head(65_537, path=b"/nowhere"), 401),
        (head(65_537, b"Origin: http://evil.example\r\n"), 403),
    ],
)  # fmt: skip
def test_who_may_not_ask_is_told_so_by_the_head_and_the_connection_ends(
    served: Served, small: SmallPlane, sent: bytes, status: int
) -> None:
    reply = raw(served, sent)
    assert (reply.statuses, reply.closed) == ([status], True)
    assert served.requests == [] and small.inference.outside.total() == 1


def test_a_small_body_of_a_stranger_is_read_and_the_connection_stays(served: Served) -> None:
    reply = raw(served, head(9) + bytes(9) + head(9, KEY) + bytes(9))
    assert (reply.statuses, reply.closed) == ([401, 200], False)


def test_who_may_ask_is_told_to_go_on_after_the_answers_to_what_came_before(served: Served) -> None:
    with connect(served) as client:
        client.sendall(head(3, KEY) + b"abc" + head(4, KEY, b"Expect: 100-continue\r\n"))
        said = b""
        while not said.endswith(b"HTTP/1.1 100 Continue\r\n\r\n"):
            said += client.recv(4096)
        assert said.startswith(b"HTTP/1.1 200 ")
        client.sendall(b"abcd")
        assert read_reply(client, 0.05).body == b"4"


def test_a_refusal_at_the_door_comes_after_the_answers_to_what_came_before(served: Served) -> None:
    assert raw(served, head(3, KEY) + b"abc" + head(65_537) + bytes(9) + GET).statuses == [200, 401]


def test_a_page_may_read_what_is_refused_at_the_door(served: Served) -> None:
    reply = raw(served, head(65_537, b"Origin: http://app.example\r\n"))
    assert "Access-Control-Allow-Origin: http://app.example" in reply.head and "WWW-Authenticate: Bearer" in reply.head


def test_a_client_that_goes_while_it_is_looked_at_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def screen(request: HttpRequest) -> None:
        await asyncio.Event().wait()

    with serving(limits=LARGE, screen=screen) as served:
        with connect(served) as client:
            client.sendall(head(65_537) + bytes(9))
            until(lambda: served.server.in_flight.held == 9)
        served.call(served.server.drain(0))
        assert served.server.in_flight.held == 0 and served.server.statistics().connections == 0


def test_a_defect_at_the_door_is_answered_and_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def screen(request: HttpRequest) -> None:
        raise RuntimeError("secret")

    with serving(limits=LARGE, screen=screen) as served:
        reply = raw(served, head(65_537))
    assert (reply.statuses, reply.closed) == ([500], True) and b"secret" not in reply.body and "secret" in caplog.text


def test_the_time_of_a_body_does_not_run_while_it_is_looked_at_who_sends_it() -> None:
    async def screen(request: HttpRequest) -> None:
        await asyncio.sleep(0.7)

    limits = replace(LARGE, body_grace_s=0.3, body_rate_min=1000)
    with serving(limits=limits, screen=screen) as served:
        assert raw(served, head(65_537) + bytes(65_537)).statuses == [200]
        assert raw(served, head(65_537) + bytes(9), wait_s=2).statuses == [408]
