"""What the server says on one stream of HTTP/2: the messages of a call, then its status and trailing metadata."""

import asyncio
from urllib.parse import quote

from forwardpass.ingress.compression import pack
from forwardpass.ingress.grpc import frames
from forwardpass.ingress.grpc.connection import Connection
from forwardpass.ingress.grpc.encoding import GrpcAnswer, size_of
from forwardpass.ingress.grpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS
from forwardpass.ingress.grpc.hpack import literal
from forwardpass.ingress.grpc.large_fields import Buffers
from forwardpass.ingress.grpc.splitter import PREFIX_BYTES

PACKED_BYTES_MIN = 1024  # shorter answers are not worth compressing
INLINE_BYTES_MAX = 16 * 1024  # more is packed in a thread
JOINED_BYTES_MAX = 16 * 1024  # more is sent as the buffers it has, without a copy

_BEGINS = literal(b":status", b"200") + literal(b"content-type", b"application/grpc")
_ACCEPTS = literal(b"grpc-accept-encoding", b"identity,gzip,deflate")
_FINE = literal(b"grpc-status", b"0")


class Reply:
    """``coding`` is the one that the client uses."""

    def __init__(self, connection: Connection, stream: int, coding: bytes) -> None:
        self._connection = connection
        self._stream = stream
        self._coding = coding
        self._begun = False

    async def message(self, message: Buffers, *, packed: bool = False) -> None:
        """Send one message; returns when it has left. ``packed``: the client compresses, so it is worth trying."""
        self._begin()
        self._connection.forgive()
        first, *rest = await self._framed(message, packed)
        await self._connection.out.data(self._stream, first)
        for buffer in rest:
            await self._connection.out.data(self._stream, buffer)

    async def whole(self, answer: GrpcAnswer, *, packed: bool = False) -> None:
        """The one message of a call and its end, in one piece where the client takes it."""
        out, stream = self._connection.out, self._stream
        length = size_of(answer.message)
        size = PREFIX_BYTES + length
        if packed or not out.takes(stream, size):
            await self.message(answer.message, packed=packed)
            self.end(answer)
            return
        self._connection.forgive()
        out.spend(stream, size)
        begins, ends = self._begins(), _end(answer)
        out.send(
            b"".join(
                (
                    frames.head(HEADERS, END_HEADERS, stream, len(begins)),
                    begins,
                    frames.head(DATA, 0, stream, size),
                    _prefix(length, False),
                    *answer.message,
                    frames.head(HEADERS, END_HEADERS | END_STREAM, stream, len(ends)),
                    ends,
                )
            )
        )

    def end(self, answer: GrpcAnswer) -> None:
        """The status and the trailing metadata; a failure without any message says also what codings are known."""
        block = _end(answer)
        if not self._begun:
            block = _BEGINS + (_ACCEPTS if answer.status else b"") + block
        self._connection.out.send(frames.frame(HEADERS, END_HEADERS | END_STREAM, self._stream, block))

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._connection.out.send(frames.frame(HEADERS, END_HEADERS, self._stream, self._begins()))

    def _begins(self) -> bytes:
        return _BEGINS + literal(b"grpc-encoding", self._coding) if self._coding else _BEGINS

    async def _framed(self, message: Buffers, packed: bool) -> Buffers:
        size = size_of(message)
        if packed and self._coding and size >= PACKED_BYTES_MIN:
            if size > INLINE_BYTES_MAX:
                body = await asyncio.to_thread(pack, message, self._coding)
            else:
                body = pack(message, self._coding)
            return (_prefix(len(body), True), body)
        if size > JOINED_BYTES_MAX:
            return (_prefix(size, False) + message[0], *message[1:])
        return (b"".join((_prefix(size, False), *message)),)


def _prefix(length: int, packed: bool) -> bytes:
    return bytes((packed,)) + length.to_bytes(4)


def _end(answer: GrpcAnswer) -> bytes:
    """The block of the trailers."""
    parts = [_FINE if not answer.status else literal(b"grpc-status", b"%d" % answer.status)]
    if answer.text:
        parts.append(literal(b"grpc-message", quote(answer.text, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~").encode()))
    parts += [literal(name, value) for name, value in answer.metadata]
    return b"".join(parts)
