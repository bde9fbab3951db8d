"""gRPC on one listener: which calls are opened, and how all of them end."""

import asyncio
import re
import socket
import ssl
from dataclasses import dataclass

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Refused, show
from forwardpass.ingress.connections import OpenConnections
from forwardpass.ingress.framing import check_host
from forwardpass.ingress.grpc import frames
from forwardpass.ingress.grpc.call import OpenCall
from forwardpass.ingress.grpc.connection import Connection
from forwardpass.ingress.grpc.hpack import literal
from forwardpass.ingress.grpc.plane import GrpcCall, GrpcPlane
from forwardpass.ingress.grpc.reply import Reply
from forwardpass.ingress.identity.subjects import subject_of
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.listeners import Listeners
from forwardpass.ingress.message import HttpLimits, HttpRequest

CODINGS = {b"": b"", b"identity": b"", b"gzip": b"gzip", b"deflate": b"deflate"}
UNPACKING_MAX = 4
"""Large compressed messages that are unpacked at the same time, of all connections: each may become the largest."""

_NO_CALL = b'{"error":"this port speaks gRPC: POST with content-type application/grpc"}'
_CONTENT_TYPE = re.compile(rb"application/grpc(\+proto)?(;.*)?")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


@dataclass(frozen=True, slots=True)
class GrpcStatistics:
    """Counts of one listener."""

    connections: int  # open now
    running: int  # calls being answered now
    requests: int  # calls since the start; a stream is one
    cancelled: int  # of these, given up because the client went away


class GrpcServer:
    """Serves the plane over HTTP/2 and owns its connections and their tasks."""

    def __init__(
        self,
        plane: GrpcPlane,
        limits: HttpLimits,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        in_flight: BytesInFlight | None = None,
    ) -> None:
        self.plane = plane
        self.limits = limits
        self.clock = clock
        self.draining = False
        self.running = self.requests = self.cancelled = 0
        self.in_flight = BytesInFlight(limits.bytes_in_flight_max) if in_flight is None else in_flight
        self.unpacking = asyncio.Semaphore(UNPACKING_MAX)
        self.connections = OpenConnections(limits, clock)
        self.listeners = Listeners(lambda: Connection(self), self.connections, limits, tls)

    async def start(self, *, sock: socket.socket) -> None:
        """Serve what connects to a listening socket, without TLS to a Unix one. May be called for several."""
        await self.listeners.add(sock)
        self.connections.watch()

    async def drain(self, grace_s: float) -> None:
        """Take no new call, let running requests end within the grace, then cut the rest."""
        self.draining = True
        await self.listeners.end()
        await self.connections.drain(grace_s)

    def statistics(self) -> GrpcStatistics:
        return GrpcStatistics(len(self.connections), self.running, self.requests, self.cancelled)

    def open(self, connection: Connection, stream: int, headers: dict[bytes, bytes] | None) -> OpenCall | None:
        """A call with this head, None where it is answered already; no headers: they were too large, or too many."""
        try:
            if headers is None:
                bytes_max, count_max = self.limits.header_bytes_max, self.limits.header_count_max
                text = f"metadata of at most {bytes_max} bytes in {count_max} entries is allowed"
                raise Refused(Code.HEADERS_TOO_LARGE, text)
            if headers[b":method"] != b"POST":
                _answer_plainly(connection, stream, b"405")
                return None
            if not _CONTENT_TYPE.fullmatch(headers.get(b"content-type", b"")):
                _answer_plainly(connection, stream, b"415")
                return None
            return self._opened(connection, stream, headers)
        except Refused as refusal:
            Reply(connection, stream, b"").end(self.plane.refused(refusal))
            return None

    def _opened(self, connection: Connection, stream: int, headers: dict[bytes, bytes]) -> OpenCall:
        method = headers[b":path"].decode("latin-1")
        if method not in self.plane.routes:
            raise Refused(Code.NOT_IMPLEMENTED, f"there is no method {show(method)}")
        if self.limits.hosts:  # else it means nothing; clients of a Unix socket say all kinds of things
            check_host(headers.get(b":authority") or headers.get(b"host", b""), self.limits, connection.host)
        coding = CODINGS.get(headers.get(b"grpc-encoding", b""))
        if coding is None:
            raise Refused(Code.NOT_IMPLEMENTED, "grpc-encoding must be identity, gzip or deflate")
        clock, deadline = self.clock, self._deadline(headers)
        subject = subject_of(connection.certificate)
        http = HttpRequest(b"POST", method, "", headers, b"", clock(), connection.peer, subject=subject)
        call = GrpcCall(http, lambda: None if deadline is None else deadline - clock())
        return OpenCall(self, call, connection, stream, coding)

    def _deadline(self, headers: dict[bytes, bytes]) -> float | None:
        given = headers.get(b"grpc-timeout")
        if given is None:
            return None
        found = _TIMEOUT.fullmatch(given)
        if found is None:
            raise Refused(
                Code.OUT_OF_RANGE, "grpc-timeout must be 1 to 8 digits and one of H M S m u n", field="grpc-timeout"
            )
        return self.clock() + int(found[1]) * _UNITS_S[found[2]]


def _answer_plainly(connection: Connection, stream: int, status: bytes) -> None:
    """To what is no call at all, in HTTP's terms; its length lets a client that still sends end at once."""
    out, size = connection.out, len(_NO_CALL)
    if not out.takes(stream, size):
        flags, block = frames.END_HEADERS | frames.END_STREAM, literal(b":status", status)
        out.send(frames.frame(frames.HEADERS, flags, stream, block))
        return
    fields = ((b":status", status), (b"content-type", b"application/json"), (b"content-length", b"%d" % size))
    block = b"".join(literal(name, value) for name, value in fields)
    out.spend(stream, size)
    out.send(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block))
    out.send(frames.frame(frames.DATA, frames.END_STREAM, stream, _NO_CALL))
