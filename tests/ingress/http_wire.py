"""A server on a loopback port in a thread of its own, and a client that sends raw bytes and reads what comes back."""

import asyncio
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import uvloop
from tests.serving import FRONTS

from forwardpass.core.clock import monotonic_s
from forwardpass.ingress.cors import Origins
from forwardpass.ingress.fronts.server import FrontedServer, Fronting
from forwardpass.ingress.http_server import HttpServer
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest, Respond, Screen
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Table
from forwardpass.ingress.serving import FamilyOf
from forwardpass.ingress.sockets import at_path, at_port

LIMITS = replace(HttpLimits(), header_time_s=0.6, body_bytes_max=1024 * 1024)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@dataclass
class Served:
    """What the server handed to ``respond``, and the server itself."""

    server: Any  # HttpServer, or several processes together
    loop: asyncio.AbstractEventLoop
    requests: list[HttpRequest] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)


class Together:
    """A server with fronts as one: what tests look at, over all its processes."""

    def __init__(self, server: FrontedServer) -> None:
        self._server = server
        self.in_flight = self

    @property
    def held(self) -> int:
        return self._server.held()

    def __getattr__(self, name: str) -> Any:
        told = self._server.statistics()
        return (
            getattr(told, name)
            if name in ("running", "requests", "cancelled", "refused")
            else getattr(self._server, name)
        )


async def echo(request: HttpRequest) -> HttpAnswer:
    return HttpAnswer(200, request.path.encode(), b"text/plain")


@contextmanager
def serving(
    respond: Respond = echo,
    limits: HttpLimits = LIMITS,
    tls: ssl.SSLContext | None = None,
    plain_loop: bool = False,
    path: str | None = None,
    family_of: FamilyOf | None = None,
    in_flight: BytesInFlight | None = None,
    screen: Screen | None = None,
    origins: Origins | None = None,
) -> Iterator[Served]:
    loop = asyncio.new_event_loop() if plain_loop else uvloop.new_event_loop()

    async def keep(request: HttpRequest) -> HttpAnswer:
        served.requests.append(request)
        try:
            answer = await respond(request)
        except asyncio.CancelledError:
            served.ended.append("cancelled")
            raise
        served.ended.append("answered")
        return answer

    family_of = family_of or Table(routes_of("data")).family
    server: Any = HttpServer(keep, family_of, limits, monotonic_s, tls, in_flight, screen, origins)
    if FRONTS > 1 and not (tls or path or plain_loop):
        fronting = Fronting(FRONTS, "", "", None, "json")
        server = Together(
            FrontedServer(keep, family_of, limits, monotonic_s, tls, in_flight, screen, origins, fronting)
        )
    served = Served(server, loop)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    with ExitStack() as stack:
        try:
            sock = stack.enter_context(at_path(path, 0o600)) if path else at_port("data", "127.0.0.1", 0)
            served.call(served.server.start(sock=sock))
            while any(front.state != "ready" for front in server.fronts()):
                time.sleep(0.02)
            yield served
        finally:
            served.call(served.server.drain(0.2))
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()


def connect(served: Served, address: str = "127.0.0.1") -> socket.socket:
    """``address`` is the client's: one of this machine's."""
    return socket.create_connection(("127.0.0.1", served.server.listeners.port), 8, (address, 0))


@dataclass(frozen=True)
class Reply:
    statuses: list[int]
    head: str
    body: bytes
    closed: bool


def raw(
    served: Served, data: bytes, half_close: bool = False, wait_s: float = 0.15, address: str = "127.0.0.1"
) -> Reply:
    """Send ``data``, read until the server closes or is silent for ``wait_s`` after it said something."""
    with connect(served, address) as client:
        try:
            client.sendall(data)
            if half_close:
                client.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # refused before all of it was sent
        return read_reply(client, wait_s)


def read_reply(client: socket.socket, wait_s: float = 0.15) -> Reply:
    received, closed = b"", False
    try:
        while piece := client.recv(1 << 20):
            received += piece
            client.settimeout(wait_s)
        closed = True
    except TimeoutError:
        pass
    except ConnectionError:
        closed = True
    statuses = [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
    head, _, body = received.partition(b"\r\n\r\n")
    return Reply(statuses, head.decode("latin-1"), body, closed)
