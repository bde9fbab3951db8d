"""gRPC on one listener: which calls are opened, and how all of them end."""

import re
import socket
import ssl
from dataclasses import dataclass

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Refused, show
from forwardpass.ingress.connections import OpenConnections
from forwardpass.ingress.grpc import frames
from forwardpass.ingress.grpc.call import OpenCall, Reply
from forwardpass.ingress.grpc.connection import Connection
from forwardpass.ingress.grpc.frames import Reason
from forwardpass.ingress.grpc.hpack import Fields, literal
from forwardpass.ingress.grpc.plane import GrpcCall, GrpcPlane
from forwardpass.ingress.listeners import Listeners
from forwardpass.ingress.message import HttpLimits, HttpRequest

CODINGS = {b"": b"", b"identity": b"", b"gzip": b"gzip", b"deflate": b"deflate"}
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

    def __init__(self, plane: GrpcPlane, limits: HttpLimits, clock: Clock, tls: ssl.SSLContext | None = None) -> None:
        self.plane = plane
        self.limits = limits
        self.clock = clock
        self.draining = False
        self.running = self.requests = self.cancelled = 0
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

    def open(self, connection: Connection, stream: int, fields: Fields | None, ended: bool) -> OpenCall | None:
        """A call with this head; None where it is answered already, or is no call."""
        try:
            if fields is None or len(fields) > self.limits.header_count_max:
                raise Refused(
                    Code.HEADERS_TOO_LARGE, f"metadata of at most {self.limits.header_bytes_max} bytes is allowed"
                )
            headers = _headers(fields)
            if headers is None:
                connection.out.send(frames.reset(stream, Reason.PROTOCOL_ERROR))
                return None
            if headers[b":method"] != b"POST":
                connection.out.send(_plain(stream, b"405"))
                return None
            if not _CONTENT_TYPE.fullmatch(headers.get(b"content-type", b"")):
                connection.out.send(_plain(stream, b"415"))
                return None
            return self._opened(connection, stream, headers)
        except Refused as refusal:
            Reply(connection, stream, b"").end(self.plane.refused(refusal))
            if not ended:  # what it still sends is of no use
                connection.out.send(frames.reset(stream, Reason.NO_ERROR))
            return None

    def _opened(self, connection: Connection, stream: int, headers: dict[bytes, bytes]) -> OpenCall:
        method = headers[b":path"].decode("latin-1")
        if method not in self.plane.routes:
            raise Refused(Code.NOT_IMPLEMENTED, f"there is no method {show(method)}")
        host = headers.get(b":authority", b"").rpartition(b":")[0] or headers.get(b":authority", b"")
        if self.limits.hosts and host.decode("latin-1").lower() not in self.limits.hosts:
            raise Refused(Code.MISDIRECTED, "this server does not answer for that host")
        coding = CODINGS.get(headers.get(b"grpc-encoding", b""))
        if coding is None:
            raise Refused(Code.NOT_IMPLEMENTED, "grpc-encoding must be identity, gzip or deflate")
        clock, deadline = self.clock, self._deadline(headers)
        http = HttpRequest(b"POST", method, "", headers, b"", clock(), connection.peer)
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


def _headers(fields: Fields) -> dict[bytes, bytes] | None:
    """The fields by name, several of one name joined with ", "; None for what is no request."""
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in headers:
            if name.startswith(b":"):
                return None
            headers[name] += b", " + value
        else:
            headers[name] = value
    return headers if b":method" in headers and b":path" in headers else None


def _plain(stream: int, status: bytes) -> bytes:
    """The end of what is no call at all, in HTTP's terms."""
    return frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, literal(b":status", status))
