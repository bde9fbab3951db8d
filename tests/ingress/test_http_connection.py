"""What a connection does over time: order, disconnects, limits in time and number, streams, TLS, the drain."""

import asyncio
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from tests.ingress.http_wire import GET, LIMITS, Served, connect, echo, raw, read_reply, serving

from forwardpass.core.errors import Code
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest


def get(path: str, *headers: str, version: str = "1.1", method: str = "GET") -> bytes:
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"{method} {path} HTTP/{version}\r\nHost: a\r\n{lines}\r\n".encode()


def until(condition: object) -> None:
    """Wait for what another thread is about to make true."""
    assert callable(condition)
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


async def forever(request: HttpRequest) -> HttpAnswer:
    if request.path != "/wait":
        return await echo(request)
    await asyncio.Event().wait()
    raise AssertionError


async def faulty(request: HttpRequest) -> HttpAnswer:
    if request.path == "/error":
        raise RuntimeError("secret")
    if request.path == "/cancelled":
        raise asyncio.CancelledError
    return await echo(request)


@pytest.fixture(scope="module", params=[False, True], ids=["uvloop", "asyncio"])
def waiting(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(forever, plain_loop=request.param) as served:
        yield served


def test_a_thousand_pipelined_requests_are_answered_in_order(waiting: Served) -> None:
    before = len(waiting.requests)
    reply = raw(waiting, b"".join(get(f"/{n}") for n in range(1000)) + get("/last", "Connection: close"))
    assert reply.statuses == [200] * 1001 and reply.closed
    assert [r.path for r in waiting.requests[before:]] == [*(f"/{n}" for n in range(1000)), "/last"]


def test_what_came_before_a_bad_request_is_answered_first(waiting: Served) -> None:
    before = len(waiting.requests)
    reply = raw(waiting, get("/1") + get("/2") + b"GET / HTTP/9\r\n\r\n" + get("/3"))
    assert (reply.statuses, reply.closed) == ([200, 200, 400], True)
    assert [r.path for r in waiting.requests[before:]] == ["/1", "/2"]


def test_no_more_than_the_limit_is_read_ahead_of_the_running_request(waiting: Served) -> None:
    with connect(waiting) as client:
        client.sendall(get("/wait") * 40)
        until(lambda: waiting.server.running == 1)
    until(lambda: waiting.server.running == 0)
    assert waiting.requests[-1].path == "/wait"


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
def test_a_client_that_goes_away_cancels_its_request_and_drops_the_next(waiting: Served, how: str) -> None:
    before, cancelled = len(waiting.requests), waiting.server.statistics().cancelled
    with connect(waiting) as client:
        client.sendall(get("/wait") + get("/next"))
        until(lambda: waiting.server.running == 1)
        if how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how == "half-close":
            client.shutdown(socket.SHUT_WR)
            assert read_reply(client).closed
    until(lambda: waiting.server.running == 0)
    assert waiting.server.statistics().cancelled == cancelled + 1
    assert [r.path for r in waiting.requests[before:]] == ["/wait"]


@pytest.mark.parametrize("begun", [get("/x", "Content-Length: 9") + b"abc", b"GET / HTTP/1.1\r\nHo"])
def test_a_request_cut_short_is_refused_and_never_run(waiting: Served, begun: bytes) -> None:
    before = len(waiting.requests)
    reply = raw(waiting, begun, half_close=True)
    assert (reply.statuses, reply.closed, len(waiting.requests)) == ([400], True, before)


def test_a_head_that_never_ends_times_out(waiting: Served) -> None:
    started = time.monotonic()
    reply = raw(waiting, b"GET / HTTP/1.1\r\nHost: a\r\n")
    assert (reply.statuses, reply.closed) == ([408], True) and "header_timeout" in reply.head
    assert LIMITS.header_time_s < time.monotonic() - started < LIMITS.header_time_s + 1


def test_answers_say_whether_the_connection_stays(waiting: Served) -> None:
    rows = [
        (get("/"), None),
        (get("/", "Connection: Close"), "close"),
        (get("/", version="1.0"), "close"),
        (get("/", "Connection: keep-alive", version="1.0"), "keep-alive"),
    ]
    for data, said in rows:
        reply = raw(waiting, data, wait_s=0.05)
        assert (reply.statuses, reply.closed) == ([200], said == "close")
        assert re.findall("Connection: (.*?)\r", reply.head + "\r") == ([said] if said else [])


def test_nothing_after_the_last_request_is_read(waiting: Served) -> None:
    before = len(waiting.requests)
    assert raw(waiting, get("/a", "Connection: close") + get("/b")).statuses == [200]
    assert [r.path for r in waiting.requests[before:]] == ["/a"]


def test_a_head_request_is_answered_without_its_body(waiting: Served) -> None:
    reply = raw(waiting, get("/abc", method="HEAD"), wait_s=0.05)
    assert "Content-Length: 4" in reply.head and reply.body == b""


def test_the_go_ahead_is_given_once_the_head_is_accepted(waiting: Served) -> None:
    with connect(waiting) as client:
        client.sendall(get("/e", "Expect: 100-continue", "Content-Length: 3", method="POST"))
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert read_reply(client, 0.05).statuses == [200]
    too_large = get("/e", "Expect: 100-continue", "Content-Length: 99999999", method="POST")
    assert raw(waiting, too_large).statuses == [413]


def test_a_body_sent_byte_by_byte_arrives_whole(waiting: Served) -> None:
    with connect(waiting) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in get("/b", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            client.sendall(bytes([byte]))
        assert read_reply(client, 0.05).statuses == [200]
    assert waiting.requests[-1].body == b"abcde"


def test_an_error_of_ours_is_answered_and_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with serving(faulty) as served:
        reply = raw(served, get("/error") + get("/cancelled") + get("/fine"), wait_s=0.1)
        assert (reply.statuses, reply.closed) == ([500, 500, 200], False)
        assert b"secret" not in reply.body and "internal" in reply.head
    assert "secret" in caplog.text


def test_a_body_slower_than_the_pace_is_refused() -> None:
    with serving(limits=replace(LIMITS, body_grace_s=0.3)) as served, connect(served) as client:
        client.sendall(get("/", "Content-Length: 100000") + b"abc")
        reply = read_reply(client)
        assert (reply.statuses, reply.closed) == ([408], True) and "body_too_slow" in reply.head


def test_an_idle_connection_is_closed_without_a_word() -> None:
    with serving(limits=replace(LIMITS, idle_time_s=0.2)) as served:
        for sent, statuses in ((b"", []), (GET, [200])):
            reply = raw(served, sent, wait_s=2)
            assert (reply.statuses, reply.closed) == (statuses, True)


@pytest.mark.parametrize(
    "limits",
    [replace(LIMITS, connections_max=2), replace(LIMITS, connections_per_address_max=2)],
    ids=["all", "address"],
)
def test_a_connection_too_many_is_told_to_come_back(limits: HttpLimits) -> None:
    with serving(limits=limits) as served:
        with connect(served), connect(served):
            until(lambda: served.server.statistics().connections == 2)
            reply = raw(served, GET)
            assert (reply.statuses, reply.closed) == ([503], True) and "Retry-After: 1" in reply.head
        until(lambda: served.server.statistics().connections == 0)
        assert raw(served, GET, wait_s=0.05).statuses == [200]
        assert served.server.statistics().refused == {Code.TOO_MANY_CONNECTIONS: 1}


# Long and streamed answers

PIECE = bytes(range(256)) * 4096


async def long_answers(request: HttpRequest) -> HttpAnswer:
    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            yield b""
            if request.path == "/broken":
                raise RuntimeError("broke off")
            while request.path == "/endless":
                yield PIECE
            yield b"two"
        finally:
            closed.append(request.path)

    if request.path == "/buffers":
        return HttpAnswer(200, [b"ab", memoryview(PIECE), b"yz"])
    if request.path == "/large":
        return HttpAnswer(200, PIECE * 16)
    return HttpAnswer(200, chunks(), b"text/event-stream")


closed: list[str] = []


@pytest.fixture(scope="module", params=[False, True], ids=["uvloop", "asyncio"])
def long(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(long_answers, replace(LIMITS, write_time_s=0.5), plain_loop=request.param) as served:
        yield served


def test_buffers_are_sent_as_one_body(long: Served) -> None:
    reply = raw(long, get("/buffers"))
    assert f"Content-Length: {len(PIECE) + 4}" in reply.head
    assert reply.body == b"ab" + PIECE + b"yz"


def test_a_stream_is_chunked_and_the_connection_stays(long: Served) -> None:
    reply = raw(long, get("/stream"), wait_s=0.05)
    assert "Transfer-Encoding: chunked" in reply.head and not reply.closed
    assert reply.body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


def test_a_stream_to_http_1_0_ends_with_the_connection(long: Served) -> None:
    reply = raw(long, get("/stream", "Connection: keep-alive", version="1.0"))
    assert (reply.body, reply.closed) == (b"onetwo", True)


def test_a_stream_that_breaks_off_never_looks_whole(long: Served) -> None:
    reply = raw(long, get("/broken") + get("/stream"))
    assert (reply.statuses, reply.body, reply.closed) == ([200], b"3\r\none\r\n", True)


def test_a_streams_head_request_runs_nothing(long: Served) -> None:
    reply = raw(long, get("/stream", method="HEAD"), wait_s=0.05)
    assert "Transfer-Encoding: chunked" in reply.head and reply.body == b""


@pytest.mark.parametrize("path", ["/large", "/endless"])
def test_a_client_that_does_not_read_is_cut_and_its_answer_ended(long: Served, path: str) -> None:
    with connect(long) as client:
        closed.clear()
        cancelled = long.server.statistics().cancelled
        client.sendall(get(path))
        until(lambda: long.server.running == 1)
        until(lambda: long.server.running == 0)
        assert long.server.statistics().cancelled == cancelled + 1
        until(lambda: path == "/large" or closed == [path])  # where fronts listen the owner hears of it after them


def test_a_client_that_leaves_a_stream_ends_it(long: Served) -> None:
    closed.clear()
    with connect(long) as client:
        client.sendall(get("/endless"))
        client.recv(1000)
    until(lambda: closed == ["/endless"])


# TLS and the drain


@pytest.mark.parametrize("plain_loop", [False, True], ids=["uvloop", "asyncio"])
def test_tls_answers_refuses_and_closes_as_plain(plain_loop: bool) -> None:
    authority = trustme.CA()
    server_tls, client_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server_tls)
    authority.configure_trust(client_tls)
    with serving(tls=server_tls, plain_loop=plain_loop) as served:
        for data, statuses, ends in ((GET, [200], False), (get("/") + b"GET /\r\n\r\n", [200, 400], True)):
            with client_tls.wrap_socket(connect(served), server_hostname="localhost") as client:
                client.sendall(data)
                reply = read_reply(client)
                assert (reply.statuses, reply.closed) == (statuses, ends)


@pytest.mark.parametrize("plain_loop", [False, True], ids=["uvloop", "asyncio"])
def test_a_drain_lets_running_requests_end_and_closes_idle_connections(plain_loop: bool) -> None:
    async def slow(request: HttpRequest) -> HttpAnswer:
        await asyncio.sleep(0.2)
        return await echo(request)

    with serving(slow, plain_loop=plain_loop) as served, connect(served) as idle, connect(served) as busy:
        busy.sendall(get("/slow"))
        until(lambda: served.server.running == 1)
        served.call(served.server.drain(5))
        reply = read_reply(busy)
        assert (reply.statuses, reply.closed) == ([200], True) and "Connection: close" in reply.head
        assert read_reply(idle).closed
        with pytest.raises(OSError):
            connect(served)


def test_a_drain_cuts_what_outlasts_the_grace() -> None:
    with serving(forever) as served, connect(served) as busy:
        busy.sendall(get("/wait"))
        until(lambda: served.server.running == 1)
        served.call(served.server.drain(0.1))
        assert (served.ended, read_reply(busy).closed) == (["cancelled"], True)


def test_a_unix_socket_serves_too(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with serving(path=path), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(path)
        client.sendall(GET)
        assert read_reply(client, 0.05).statuses == [200]
