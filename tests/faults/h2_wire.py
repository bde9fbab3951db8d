"""HTTP/2 by hand, for what no client library would send: frames as RFC 9113 has them, headers without a table."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from tests.grpc_calls import SERVICE, infer_request
from tests.serving import Server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CALM = 11  # ENHANCE_YOUR_CALM


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def reason(self) -> int:
        """Of GOAWAY and RST_STREAM."""
        return int.from_bytes(self.payload[-4:] if self.kind == RESET else self.payload[4:8])


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    """A literal that no table remembers; names and values of less than 127 bytes."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def head(method: str = "ModelInfer", path: str = "", **more: str) -> bytes:
    fields = {":method": "POST", ":scheme": "http", ":path": path or f"/{SERVICE}/{method}", ":authority": "x",
              "content-type": "application/grpc", "te": "trailers"}  # fmt: skip
    given = {**fields, **{name.replace("_", "-"): value for name, value in more.items()}}
    return b"".join(field(name.encode(), value.encode()) for name, value in given.items())


def message(body: bytes, packed: int = 0) -> bytes:
    return struct.pack(">BI", packed, len(body)) + body


REQUEST = message(infer_request("identity", "x", "FP32", [1, 4], struct.pack("<4f", 1, 2, 3, 4)).SerializeToString())


def call(stream: int, block: bytes | None = None, body: bytes = REQUEST) -> bytes:
    """A whole unary call."""
    head_frame = frame(HEADERS, END_HEADERS, stream, head() if block is None else block)
    return head_frame + frame(DATA, END_STREAM, stream, body)


class Wire:
    """One connection: ``say`` frames, and look at the frames that come back."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""
        self._seen: list[Frame] = []

    def say(self, frames: bytes) -> None:
        """What the server has closed already takes no more: that is no fault of a test."""
        with suppress(OSError):
            self.sock.sendall(frames)

    def frames(self) -> Iterator[Frame]:
        """All there were, then more until the server closes or is silent for the socket's timeout."""
        yield from self._seen
        while True:
            while len(self._rest) >= 9 and len(self._rest) >= 9 + (length := int.from_bytes(self._rest[:3])):
                kind, flags, stream = struct.unpack(">BBI", self._rest[3:9])
                payload, self._rest = self._rest[9 : 9 + length], self._rest[9 + length :]
                self._seen.append(Frame(kind, flags, stream, payload))
                yield self._seen[-1]
            try:
                part = self.sock.recv(65536)
            except (ConnectionResetError, TimeoutError):
                return
            if not part:
                return
            self._rest += part

    def frames_so_far(self) -> list[Frame]:
        return self._seen

    def until(self, kind: int, stream: int = 0) -> Frame:
        return next(got for got in self.frames() if got.kind == kind and got.stream == stream)

    def trailers(self, stream: int) -> bytes:
        """The block that ends a call."""
        return next(got.payload for got in self.frames() if got.stream == stream and got.flags & END_STREAM)


@contextmanager
def wire(server: Server, timeout_s: float = 10.0, settings: bytes = b"") -> Iterator[Wire]:
    """A connection whose preface is said."""
    with socket.create_connection(("127.0.0.1", server.grpc_port), timeout_s) as sock:
        opened = Wire(sock)
        opened.say(PREFACE + frame(SETTINGS, 0, 0, settings))
        yield opened
