"""One connection of HTTP/2 (RFC 9113): frames come in here and become calls; what calls answer leaves by ``Outgoing``.

A rule broken ends the connection with the reason; a flood of what costs a client nothing is told to calm down.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from forwardpass.core.clock import Clock
from forwardpass.ingress.connections import LINGER_S, OpenConnections, ends_of
from forwardpass.ingress.grpc import budget, frames
from forwardpass.ingress.grpc.budget import Budget
from forwardpass.ingress.grpc.frames import Broken, Reason
from forwardpass.ingress.grpc.heads import is_trailer, read_head
from forwardpass.ingress.grpc.hpack import BadBlock, Decoder
from forwardpass.ingress.grpc.outgoing import Outgoing
from forwardpass.ingress.grpc.streams import Call, Running, Streams
from forwardpass.ingress.message import HttpLimits

STREAMS_MAX = 100
"""Calls of one connection at the same time (FAULTS H30)."""

RAPID_S = 0.001
"""A call that is given up sooner was hardly asked; one that ran longer took a place, and there are not so many."""


class Calls(Protocol):
    """Who makes calls: one per listener."""

    limits: HttpLimits
    clock: Clock
    connections: OpenConnections
    draining: bool

    def open(self, connection: "Connection", stream: int, headers: dict[bytes, bytes] | None) -> Call | None:
        """A call with this head, None where it is answered already; no headers: they were too large, or too many."""


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
        self._streams = Streams()
        self._running = self._streams.running
        self._block: tuple[int, int, bytearray] | None = None  # of headers that go on: stream, flags, what is here
        self._owed = 0  # bytes received of which the client does not know that they are taken
        self._budget = Budget(calls.clock)
        self._quiet_s = self._partial_s = self._swept_s = calls.clock()
        self._deaf = False  # the last of ours is said: input is discarded
        self._idle_end = False  # it ends with nothing left to answer
        self.held_bytes = 0  # of requests that are not answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # stream transports are of this kind
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_max)
        self.out = Outgoing(self._transport, self._budget, self._limits.body_rate_min)
        self.peer, self.host = ends_of(transport)
        self.certificate = transport.get_extra_info("peercert")  # of the client, verified
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
        if not self._have and self._block is None:
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

    def _read(self, buffer: bytes) -> None:
        position, end = 0, len(buffer)
        if not self._begun:
            if not buffer.startswith(frames.PREFACE[:end]):
                self._close(frames.HTTP_1)
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
        if position and self._block is None:
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
                self._budget.strike(budget.FRAME)
                if stream > self._streams.last:
                    raise Broken(Reason.PROTOCOL_ERROR, "a window of no stream")
                self.out.widen(stream, frames.number(payload))
            case frames.RESET:
                self._reset_by_client(stream, payload)
            case frames.SETTINGS:
                self._budget.strike(budget.FRAME)
                self._settings(flags, stream, payload)
            case frames.PING:
                self._budget.strike(budget.FRAME)
                frames.check_ping(payload, stream)
                if not flags & frames.ACK:
                    self.out.send(frames.frame(frames.PING, frames.ACK, 0, payload))
            case frames.PUSH:
                raise Broken(Reason.PROTOCOL_ERROR, "a client does not push")
            case frames.PRIORITY:
                self._budget.strike(budget.FRAME)
                frames.check_priority(payload, stream)
            case _:
                self._budget.strike(budget.FRAME)  # GOAWAY and kinds to come mean nothing here

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        self._streams.may_speak(stream)
        self._owed += len(payload)
        if self._owed > frames.CONNECTION_WINDOW // 2:
            self.out.send(frames.window_update(0, self._owed))
            self._owed = 0
        ended = bool(flags & frames.END_STREAM)
        if not ended and len(payload) < budget.SCRAP_BYTES:
            self._budget.strike(budget.SCRAP if payload else budget.FRAME)
        data = frames.unpadded(payload, flags) if flags & frames.PADDED else payload
        self._receive(stream, data, ended)
        self._credit_padding(stream, len(payload) - len(data))

    def _receive(self, stream: int, data: bytes, ended: bool) -> None:
        """To the call, if it still runs and has as much as it said."""
        as_announced = self._streams.said(stream, len(data), ended)
        running = self._running.get(stream)
        if running is None:
            self._budget.strike(0.0 if ended else budget.SCRAP)
        elif as_announced:
            running.call.receive(data, ended)
        else:
            self._give_up(stream, Reason.PROTOCOL_ERROR)
            self._budget.strike(budget.RESET)

    def _credit_padding(self, stream: int, size: int) -> None:
        if size and stream in self._running:
            self._budget.strike(budget.FRAME)
            self.out.send(frames.window_update(stream, size))

    def _headers(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.WITH_PRIORITY):
            payload = frames.block(payload, flags, stream)
        if flags & frames.END_HEADERS:
            self._whole_block(flags, stream, payload)
        else:
            self._block = (stream, flags, bytearray(payload))
            self._partial_s = self._clock()

    def _continuation(self, flags: int, payload: bytes) -> None:
        if self._block is None:
            raise Broken(Reason.PROTOCOL_ERROR, "headers that go on without a beginning")
        stream, first, block = self._block
        self._budget.strike(budget.FRAME if payload else budget.RESET)
        block += payload
        self._check_size(len(block))
        if flags & frames.END_HEADERS:
            self._block = None
            self._whole_block(first, stream, bytes(block))

    def _check_size(self, block_bytes: int) -> None:
        """Of a header block as sent: past twice what it may hold it is not worth reading."""
        if block_bytes > 2 * self._limits.header_bytes_max:
            raise Broken(Reason.ENHANCE_YOUR_CALM, "headers without end")

    def _whole_block(self, flags: int, stream: int, block: bytes) -> None:
        self._check_size(len(block))
        self._budget.strike(len(block) / budget.BLOCK_BYTES)
        ended = bool(flags & frames.END_STREAM)
        if stream > self._streams.last:
            self._open(stream, block, ended)
            return
        self._streams.may_speak(stream)
        fields = self._table.decode(block, self._limits.header_bytes_max)
        if not ended or not is_trailer(fields or []):
            raise Broken(Reason.PROTOCOL_ERROR, "headers after those of the call that are no trailers")
        self._receive(stream, b"", True)  # gRPC's clients have nothing to say in them

    def _open(self, stream: int, block: bytes, ended: bool) -> None:
        self._streams.open(stream, ended)
        fields = self._table.decode(block, self._limits.header_bytes_max)
        if len(self._running) >= STREAMS_MAX or self._listener.draining:
            self._refuse(stream, Reason.REFUSED_STREAM)
            return
        if fields is not None and len(fields) > self._limits.header_count_max:
            fields = None
        headers = None if fields is None else read_head(fields)
        length = 0 if headers is None else int(headers.get(b"content-length", 0))
        if (headers is None and fields is not None) or (ended and length):
            self._refuse(stream, Reason.PROTOCOL_ERROR)
            return
        self.out.opened(stream)
        call = self._listener.open(self, stream, headers)
        if call is None:
            self.out.closed(stream)
            self._streams.answered(stream)
            return
        self._running[stream] = Running(call, self._clock())
        if ended:
            call.receive(b"", True)
        elif length:
            self._streams.announce(stream, length)

    def _refuse(self, stream: int, reason: Reason) -> None:
        self._budget.strike(budget.RESET)
        self.out.send(frames.reset(stream, reason))

    def _give_up(self, stream: int, reason: Reason) -> None:
        """End a call for what its client does."""
        self.out.send(frames.reset(stream, reason))
        self._cancel(stream)

    def _cancel(self, stream: int) -> None:
        call = self._running[stream].call
        self._forget(stream)
        call.cancel()

    def _reset_by_client(self, stream: int, payload: bytes) -> None:
        frames.number(payload)
        self._streams.given_up(stream)
        running = self._running.get(stream)
        if running is None:  # it crosses our answer, which forgave more
            self._budget.strike(budget.FRAME)
            return
        self._cancel(stream)
        if self._clock() - running.began_s < RAPID_S:
            self._budget.strike(budget.RESET)
        else:
            self._budget.forgive(budget.CALL_FORGIVES)

    def _settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream or (flags & frames.ACK and payload):
            raise Broken(Reason.PROTOCOL_ERROR, "settings of a stream, or acknowledged with some")
        if not flags & frames.ACK:
            self.out.apply(frames.read_settings(payload))
            self.out.send(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def forgive(self) -> None:
        """The client is sent a message."""
        self._budget.forgive(budget.MESSAGE_FORGIVES)

    def credit(self, stream: int, size: int) -> None:
        """So many bytes of the call are taken: the client may send as many more."""
        if stream in self._running and not self._deaf:
            self.out.send(frames.window_update(stream, size))

    def close_call(self, stream: int) -> None:
        """The call is answered."""
        self._budget.forgive(budget.CALL_FORGIVES)
        self._forget(stream)

    def _forget(self, stream: int) -> None:
        if self._running.pop(stream, None) is not None:
            self.out.closed(stream)
            self._quiet_s = self._clock()
            if self._listener.draining and not self._running and not self._deaf:
                self._close(b"")

    def _end(self, reason: Reason, text: str) -> None:
        self._close(frames.go_away(self._streams.last, reason, text))

    def _close(self, last: bytes) -> None:
        """Say the last, then discard what still comes in for a moment: a reset might overtake it."""
        self._deaf = True
        self._parts.clear()
        self._quiet_s = self._clock()
        self._cancel_calls()
        self._transport.write(last)
        if self._transport.can_write_eof():
            with suppress(OSError):  # the client is gone
                self._transport.write_eof()
        else:
            self._transport.close()

    def _cancel_calls(self) -> None:
        calls = tuple(self._running.values())
        self._running.clear()
        for running in calls:
            running.call.cancel()

    def pause_writing(self) -> None:
        """The client does not take what it asked for: it is not heard until it does."""
        self.out.pause()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.out.resume()
        self._partial_s = self._clock()
        for running in self._running.values():
            running.call.excuse()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def sweep(self, now_s: float) -> None:
        limits = self._limits
        passed_s, self._swept_s = now_s - self._swept_s, now_s
        if self._deaf:
            if now_s - self._quiet_s > (LINGER_S if self._idle_end else limits.write_time_s):
                self.cut()
            elif now_s - self._quiet_s > LINGER_S and not self._transport.get_write_buffer_size():
                self._transport.close()
            return
        self.out.sweep(passed_s)
        if self.out.stalled_s > limits.write_time_s:
            self.cut()
        elif self.out.paused:  # it is not heard, so nothing that it says is late
            self._sweep_streams()
        elif (self._have or not self._begun or self._block) and (
            now_s - self._partial_s > limits.header_time_s + self._have / limits.body_rate_min
        ):
            self._end(Reason.PROTOCOL_ERROR, "a frame that did not come to its end in time")
        elif not self._running and now_s - self._quiet_s > limits.idle_time_s:
            self._end(Reason.NO_ERROR, "idle")
        else:
            self._sweep_streams()
            for running in tuple(self._running.values()):
                running.call.sweep(now_s)

    def _sweep_streams(self) -> None:
        stalled = [n for n, stalled_s in self.out.stalled_calls_s.items() if stalled_s > self._limits.write_time_s]
        for stream in stalled:
            self._give_up(stream, Reason.CANCEL)
        for stream in self._streams.to_reset():
            self.out.send(frames.reset(stream, Reason.NO_ERROR))

    def drain(self) -> None:
        """Take no new call; close once those that run are answered."""
        if not self._running:
            self._end(Reason.NO_ERROR, "the server ends")
            # Over TLS a client may never say that it ends too; nobody waits for one that has its answers.
            self._idle_end = not self._transport.get_write_buffer_size()
            return
        self.out.send(frames.go_away(self._streams.last, Reason.NO_ERROR, "the server ends"))
        for running in tuple(self._running.values()):
            running.call.end()

    def cut(self) -> None:
        self._deaf = True
        self._transport.abort()
