"""Framing as two other servers see it: whatever we accept, waitress and aiohttp accept too, and read the same requests.

Where two servers in a row read different requests out of the same bytes, one can be smuggled past the other. So only
what we take matters here; that we refuse more than they do is what we want.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import waitress
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults.http_invariants import pieces_of
from tests.ingress.test_http_rules import REFUSED, TAKEN

from forwardpass.core.errors import Refused
from forwardpass.ingress.message import HttpLimits
from forwardpass.ingress.splitter import Splitter

CORPUS = Path(__file__).parents[1] / "faults" / "corpus" / "http"
SCRAPS = (
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b";", b",", b"0", b"1", b"\x0b", b"\x0c", b"\x00", b"\x85", b"\xff", b"%", b"/",
    b"Content-Length: 1\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: b\r\n", b"Connection: close\r\n", b"HTTP/1.0",
    b"Connection: keep-alive\r\n", b"Expect: 100-continue\r\n", b"0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
)  # fmt: skip
LAST = b"GET /last HTTP/1.1\r\nHost: last\r\nConnection: close\r\n\r\n"


class Seen(NamedTuple):
    """One request as a server read it; ``path`` percent-decoded once."""

    method: str
    path: str
    query: str
    host: str
    body: bytes


class Other(NamedTuple):
    """Another server, and what it read on each connection, by its client's port."""

    port: int
    seen: dict[int, list[Seen]]
    excused: bytes  # a header with which it may read otherwise

    def reads(self, wire: bytes) -> list[Seen]:
        with socket.create_connection(("127.0.0.1", self.port), 5) as client:
            mine = client.getsockname()[1]
            self.seen[mine] = []
            client.sendall(wire)
            try:
                while client.recv(65536):
                    pass
            except ConnectionError:
                pass
            return self.seen.pop(mine)


def accepted(wire: bytes) -> tuple[list[Seen], bytes]:
    """The requests that we read, up to the first refusal, and the bytes that they are; then one more, the last."""
    splitter, seen, end = Splitter(HttpLimits()), list[Seen](), 0
    last = LAST
    try:
        for position in range(len(wire)):
            splitter.feed(wire[position : position + 1])
            found = splitter.take(1.0)
            if found is not None:
                head, body = found
                host = head.headers.get(b"host", b"").decode("latin-1")
                seen.append(Seen(head.method.decode(), head.path, head.query, host, body))
                end = position + 1
                if not head.keep_alive:
                    last = b""
                    break
    except Refused:
        pass
    return seen + ([Seen("GET", "/last", "", "last", b"")] if last else []), wire[:end] + last


@contextmanager
def serving_waitress() -> Iterator[Other]:
    seen: dict[int, list[Seen]] = {}

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        path, query = (environ[name].encode("latin-1").decode("utf-8") for name in ("PATH_INFO", "QUERY_STRING"))
        body = environ["wsgi.input"].read()
        found = Seen(environ["REQUEST_METHOD"], path, query, environ.get("HTTP_HOST", ""), body)
        seen[int(environ["REMOTE_PORT"])].append(found)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    server = waitress.create_server(application, listen="127.0.0.1:0", threads=1)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        # RFC 9110, 10.1.1: it means nothing where no body comes; waitress reads the next head into this one then.
        yield Other(server.effective_port, seen, b"expect:")
    finally:
        server.trigger.pull_trigger(server.task_dispatcher.shutdown)
        server.trigger.pull_trigger(server.close)
        thread.join(5)


@contextmanager
def serving_aiohttp() -> Iterator[Other]:
    seen: dict[int, list[Seen]] = {}

    async def respond(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        port = request.transport.get_extra_info("peername")[1]
        body = await request.read()
        query = request.raw_path.partition("?")[2]
        seen[port].append(Seen(request.method, request.path, query, request.headers.get("Host", ""), body))
        return web.Response()

    async def listen() -> Any:
        limits: dict[str, Any] = {"max_line_size": 65536, "max_field_size": 65536, "auto_decompress": False}
        return await loop.create_server(web.Server(respond, **limits), "127.0.0.1", 0)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(5)
    try:
        # RFC 9110, 7.8: an offer may be left aside, as we and waitress do; aiohttp takes what follows as no HTTP.
        yield Other(server.sockets[0].getsockname()[1], seen, b"upgrade:")
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.fixture(scope="module")
def others() -> Iterator[dict[str, Other]]:
    with serving_waitress() as one, serving_aiohttp() as another:
        yield {"waitress": one, "aiohttp": another}


ROWS = {
    **{name: row[0] for name, row in (REFUSED | TAKEN).items() if len(row[0]) < 8000},
    **{f"corpus {file.name}": b"".join(pieces_of(file.read_bytes())) for file in sorted(CORPUS.iterdir())},
}
WHOLE = b"".join(TAKEN[name][0] for name in ("plain", "body", "chunked", "absolute-form", "percent decoded once"))


def plain(seen: list[Seen]) -> list[Seen]:
    """Without what is no matter of framing: waitress drops all leading slashes but one, and the slash of http://a?y."""
    return [one._replace(path="/" + one.path.lstrip("/")) for one in seen]


def assert_same(other: Other, wire: bytes) -> None:
    seen, taken = accepted(wire)
    if other.excused not in taken.lower():
        assert plain(other.reads(taken)) == plain(seen), taken


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("server", ["waitress", "aiohttp"])
def test_what_we_accept_is_the_same_requests_to_others(others: dict[str, Other], server: str, name: str) -> None:
    assert_same(others[server], ROWS[name])


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_what_we_accept_of_damaged_requests_is_the_same_to_others(
    others: dict[str, Other], data: st.DataObject
) -> None:
    wire = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(wire) - 1))
        replaced = data.draw(st.sampled_from((0, 1, 1, 1, 8)))
        wire[at : at + replaced] = data.draw(st.sampled_from(SCRAPS))
    for other in others.values():
        assert_same(other, bytes(wire))


def test_most_of_what_is_compared_holds_requests(others: dict[str, Other]) -> None:
    assert sum(len(accepted(wire)[0]) > 1 for wire in ROWS.values()) > 20
