"""One connection of HTTP/2 (RFC 9113): frames come in here and become calls; what calls answer leaves by ``Outgoing``.

A rule broken ends the connection with the reason; a flood of what costs a client nothing is told to calm down.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from forwardpass.core.clock import Clock
from forwardpass.ingress.connections import LINGER_S, OpenConnections, address_of
from forwardpass.ingress.grpc import frames
from forwardpass.ingress.grpc.frames import Broken, Reason
from forwardpass.ingress.grpc.hpack import BadBlock, Decoder, Fields
from forwardpass.ingress.grpc.outgoing import Outgoing
from forwardpass.ingress.message import HttpLimits

STREAMS_MAX = 100
"""Calls of one connection at the same time (FAULTS H30)."""

BLOCK_BYTES_MAX = 64 * 1024
"""Of one header block as sent, in HEADERS and CONTINUATION frames; past it nothing of the connection is read."""

STRIKES_MAX = 1000.0
STRIKES_FORGIVEN_PER_S = 200.0
RESET_STRIKES = 5.0
ANSWER_FORGIVES = 10.0
"""What a client may send that costs it nothing: one strike each, resets and refused calls more. Forgiven with time, and
with every message that it is sent: clients ping and widen windows as they read."""

HTTP_1 = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 55\r\n\r\n"
    b'{"error":"this port speaks gRPC: HTTP/2 from the start"}'
)


class Call(Protocol):
    """What the connection knows of a call."""

    def receive(self, data: bytes, ended: bool) -> None:
        """A part of what the client sends; ``ended``: it says no more."""

    def sweep(self, now_s: float) -> None:
        """Enforce the limits in time."""

    def cancel(self) -> None:
        """The client gave it up, or is gone."""

    def end(self) -> None:
        """Take no more requests; those that came are answered."""


class Calls(Protocol):
    """Who makes calls: one per listener."""

    limits: HttpLimits
    clock: Clock
    connections: OpenConnections
    draining: bool

    def open(self, connection: "Connection", stream: int, fields: Fields | None, ended: bool) -> Call | None:
        """A call with this head, None where it is answered already; no fields: they were too many."""


class Connection(asyncio.Protocol):
    """To its calls: ``out`` sends, ``credit`` lets the client go on, ``close_call`` forgets a call that is answered."""

    def __init__(self, calls: Calls) -> None:
        self._listener = calls
        self._limits = calls.limits
        self._clock = calls.clock
        self._table = Decoder()
        self._parts: list[bytes] = []  # of what is not read
        self._have, self._needed = 0, 1  # bytes of it, and how many there must be to read on
        self._begun = False  # the preface is here
        self._calls: dict[int, Call] = {}
        self._last = 0  # the newest stream
        self._block: tuple[int, int, bytearray] | None = None  # of headers that go on: stream, flags, what is here
        self._owed = 0  # bytes received of which the client does not know that they are taken
        self._strikes = 0.0
        self._forgiven_s = self._quiet_s = self._partial_s = self._stalled_s = calls.clock()
        self._deaf = False  # the last of ours is said: input is discarded
        self.held_bytes = 0  # of requests that are not answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # stream transports are of this kind
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_max)
        self.out = Outgoing(self._transport, self._clock)
        self.peer = address_of(transport.get_extra_info("peername"))
        self.loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self.loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._task = self.loop.create_task(self._wait())
        if self._listener.connections.enter(self, self._task, self.peer) is not None:
            self._end(Reason.ENHANCE_YOUR_CALM, "too many connections are open")

    def connection_lost(self, error: Exception | None) -> None:
        self._deaf = True
        self._cancel_calls()
        if not self._lost.done():
            self._lost.set_result(None)
        self._listener.connections.leave(self, self.peer)

    async def _wait(self) -> None:
        """The parent of the connection's tasks."""
        await self._lost
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task of the connection, which awaits it."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if not self._have:
            self._partial_s = self._clock()
        self._parts.append(data)
        self._have += len(data)
        if self._have < self._needed:
            return
        try:
            self._read(data if len(self._parts) == 1 else b"".join(self._parts))
        except Broken as broken:
            self._end(broken.reason, broken.text)
        except BadBlock as bad:
            self._end(Reason.COMPRESSION_ERROR, str(bad))

    def eof_received(self) -> bool:
        return False

    def _read(self, buffer: bytes) -> None:
        position, end = 0, len(buffer)
        if not self._begun:
            if not buffer.startswith(frames.PREFACE[:end]):
                self._close(HTTP_1)
                return
            if end < len(frames.PREFACE):
                return
            self._begun, position = True, len(frames.PREFACE)
            self._transport.write(frames.settings(STREAMS_MAX, self._limits.header_bytes_max))
        self._needed = frames.HEAD_BYTES
        while end - position >= frames.HEAD_BYTES:
            high, low, kind, flags, stream = frames.HEAD.unpack_from(buffer, position)
            length = high << 8 | low
            if length > frames.FRAME_BYTES_MAX:
                raise Broken(Reason.FRAME_SIZE_ERROR, "a frame that is too large")
            start = position + frames.HEAD_BYTES
            if start + length > end:
                self._needed = frames.HEAD_BYTES + length
                break
            position = start + length
            self._take(kind, flags, stream & frames.WINDOW_MAX, buffer[start:position])
            if self._deaf:
                return
        if position:
            self._partial_s = self._clock()
        self._parts = [buffer[position:]] if position < end else []
        self._have = end - position

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or stream != self._block[0]):
            raise Broken(Reason.PROTOCOL_ERROR, "headers that do not go on")
        match kind:
            case frames.DATA:
                self._data(flags, stream, payload)
            case frames.HEADERS:
                self._headers(flags, stream, payload)
            case frames.CONTINUATION:
                self._continuation(flags, payload)
            case frames.WINDOW:
                self._strike(1.0)
                self.out.widen(stream, frames.number(payload))
            case frames.RESET:
                self._strike(RESET_STRIKES)
                self._reset_by_client(stream, payload)
            case frames.SETTINGS:
                self._strike(1.0)
                self._settings(flags, stream, payload)
            case frames.PING:
                self._strike(1.0)
                self._ping(flags, stream, payload)
            case frames.PUSH:
                raise Broken(Reason.PROTOCOL_ERROR, "a client does not push")
            case _:
                self._strike(1.0)  # PRIORITY, GOAWAY and kinds to come mean nothing here

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == 0 or stream > self._last:
            raise Broken(Reason.PROTOCOL_ERROR, "data of no stream")
        self._owed += len(payload)
        if self._owed > frames.CONNECTION_WINDOW // 2:
            self.out.send(frames.window_update(0, self._owed))
            self._owed = 0
        if not payload and not flags & frames.END_STREAM:
            self._strike(1.0)
        call = self._calls.get(stream)
        if call is not None:
            data = frames.unpadded(payload, flags) if flags & frames.PADDED else payload
            call.receive(data, bool(flags & frames.END_STREAM))
            self._credit_padding(stream, len(payload) - len(data))

    def _credit_padding(self, stream: int, size: int) -> None:
        if size and stream in self._calls:
            self._strike(1.0)
            self.out.send(frames.window_update(stream, size))

    def _headers(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.WITH_PRIORITY):
            payload = frames.unpadded(payload, flags)
        if flags & frames.END_HEADERS:
            self._open(flags, stream, payload)
        else:
            self._block = (stream, flags, bytearray(payload))
            self._partial_s = self._clock()

    def _continuation(self, flags: int, payload: bytes) -> None:
        if self._block is None:
            raise Broken(Reason.PROTOCOL_ERROR, "headers that go on without a beginning")
        stream, first, block = self._block
        self._strike(0.0 if payload else RESET_STRIKES)
        block += payload
        if len(block) > BLOCK_BYTES_MAX:
            raise Broken(Reason.ENHANCE_YOUR_CALM, "headers without end")
        if flags & frames.END_HEADERS:
            self._block = None
            self._open(first, stream, bytes(block))

    def _open(self, flags: int, stream: int, block: bytes) -> None:
        if len(block) > BLOCK_BYTES_MAX:
            raise Broken(Reason.ENHANCE_YOUR_CALM, "headers without end")
        fields = self._table.decode(block, self._limits.header_bytes_max)
        ended = bool(flags & frames.END_STREAM)
        if stream <= self._last:
            if stream == 0:
                raise Broken(Reason.PROTOCOL_ERROR, "headers of no stream")
            call = self._calls.get(stream)
            if call is not None and ended:  # its trailers, which gRPC's clients do not have
                call.receive(b"", True)
            return
        if stream % 2 == 0:
            raise Broken(Reason.PROTOCOL_ERROR, "a stream that a client cannot open")
        self._last = stream
        if len(self._calls) >= STREAMS_MAX or self._listener.draining:
            self._strike(RESET_STRIKES)
            self.out.send(frames.reset(stream, Reason.REFUSED_STREAM))
            return
        self.out.opened(stream)
        call = self._listener.open(self, stream, fields, ended)
        if call is None:
            self.out.closed(stream)
            self._strike(1.0)
            return
        self._calls[stream] = call
        if ended:
            call.receive(b"", True)

    def _reset_by_client(self, stream: int, payload: bytes) -> None:
        frames.number(payload)
        if stream == 0 or stream > self._last:
            raise Broken(Reason.PROTOCOL_ERROR, "an end of no stream")
        call = self._calls.get(stream)
        if call is not None:
            self.close_call(stream)
            call.cancel()

    def _settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream or (flags & frames.ACK and payload):
            raise Broken(Reason.PROTOCOL_ERROR, "settings of a stream, or acknowledged with some")
        if not flags & frames.ACK:
            for name, value in frames.read_settings(payload):
                self.out.apply(name, value)
            self.out.send(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _ping(self, flags: int, stream: int, payload: bytes) -> None:
        if stream or len(payload) != 8:
            raise Broken(Reason.FRAME_SIZE_ERROR, "a ping of the wrong size, or of a stream")
        if not flags & frames.ACK:
            self.out.send(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _strike(self, weight: float) -> None:
        self._strikes += weight
        if self._strikes > STRIKES_MAX / 2:
            now_s = self._clock()
            self._strikes = max(0.0, self._strikes - (now_s - self._forgiven_s) * STRIKES_FORGIVEN_PER_S)
            self._forgiven_s = now_s
            if self._strikes > STRIKES_MAX:
                raise Broken(Reason.ENHANCE_YOUR_CALM, "too much that asks for nothing")

    def forgive(self) -> None:
        """The client is sent a message."""
        self._strikes = max(0.0, self._strikes - ANSWER_FORGIVES)

    def credit(self, stream: int, size: int) -> None:
        """So many bytes of the call are taken: the client may send as many more."""
        if stream in self._calls and not self._deaf:
            self.out.send(frames.window_update(stream, size))

    def close_call(self, stream: int) -> None:
        """The call has ended."""
        if self._calls.pop(stream, None) is not None:
            self.out.closed(stream)
            self._quiet_s = self._clock()
            if self._listener.draining and not self._calls and not self._deaf:
                self._close(b"")

    def _end(self, reason: Reason, text: str) -> None:
        self._close(frames.go_away(self._last, reason, text))

    def _close(self, last: bytes) -> None:
        """Say the last, then discard what still comes in for a moment: a reset might overtake it."""
        self._deaf = True
        self._parts.clear()
        self._quiet_s = self._clock()
        self._cancel_calls()
        self._transport.write(last)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _cancel_calls(self) -> None:
        calls = tuple(self._calls.values())
        self._calls.clear()
        for call in calls:
            call.cancel()

    def pause_writing(self) -> None:
        """The client does not take what it asked for: it is not heard until it does."""
        self.out.pause()
        self._stalled_s = self._clock()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.out.resume()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def sweep(self, now_s: float) -> None:
        limits = self._limits
        if self._deaf:
            if now_s - self._quiet_s > limits.write_time_s:
                self.cut()
            elif now_s - self._quiet_s > LINGER_S and not self._transport.get_write_buffer_size():
                self._transport.close()
            return
        stalled_s = min(self.out.stalled_s.values(), default=now_s)
        if (self.out.paused and now_s - self._stalled_s > limits.write_time_s) or (
            now_s - stalled_s > limits.write_time_s
        ):
            self.cut()
        elif (self._have or not self._begun or self._block) and (
            now_s - self._partial_s > limits.header_time_s + self._have / limits.body_rate_min
        ):
            self._end(Reason.PROTOCOL_ERROR, "a frame that did not come to its end in time")
        elif not self._calls and now_s - self._quiet_s > limits.idle_time_s:
            self._end(Reason.NO_ERROR, "idle")
        else:
            for call in tuple(self._calls.values()):
                call.sweep(now_s)

    def drain(self) -> None:
        """Take no new call; close once those that run are answered."""
        if not self._calls:
            self._end(Reason.NO_ERROR, "the server ends")
            return
        self.out.send(frames.go_away(self._last, Reason.NO_ERROR, "the server ends"))
        for call in tuple(self._calls.values()):
            call.end()

    def cut(self) -> None:
        self._deaf = True
        self._transport.abort()
