"""The data plane's HTTP/1.1: a request's bytes come in here, its answer's bytes leave here.

    data_received -> Splitter -> waiting line -> respond(HttpRequest) -> HttpAnswer -> transport
                                 a large body -> screen(its head) -> the rest of it

Each connection has one task that answers its requests in order. While one runs we keep reading, so that a client who
hangs up is noticed: the task is cancelled, and with it whatever ``respond`` was doing. A request that waits for nothing
but its batch does without the task: it is begun when it has come, and its answer is told to the connection. What breaks
the rules of the protocol is refused, after the answers to what came before it, and nothing more is read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Mapping
from typing import NamedTuple

from forwardpass.core.errors import Failed, Failure
from forwardpass.ingress.connections import LINGER_S, ends_of
from forwardpass.ingress.ending import Ending
from forwardpass.ingress.framing import Head
from forwardpass.ingress.identity.subjects import subject_of
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX
from forwardpass.ingress.serving import Serving
from forwardpass.ingress.short import Begun, Short
from forwardpass.ingress.splitter import Splitter
from forwardpass.ingress.writer import AnswerWriter

HELD_BYTES_MAX = 64 * 1024
"""In the line, which is full then; unread behind a full line, when we stop receiving (and noticing a hang-up)."""

log = logging.getLogger("forwardpass.ingress")


class _Whole(NamedTuple):
    """A request in the line; with a ``refusal`` there was no room for its body, and it is only told so."""

    head: Head
    body: bytes
    received_s: float
    size: int
    refusal: Failure | None


class HttpConnection(asyncio.Protocol):
    """Reads into a waiting line; one task answers what is in it. To its ``OpenConnections`` it is a Connection."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self._limits = server.limits
        self._line: deque[_Whole | Begun | Head | Failure] = deque()
        """A failure is its last entry; so is a head, of a body that is to be let in, until it was."""
        self._line_bytes = 0
        self._counted_bytes = 0  # in flight, of what came and is not being answered
        self._deaf = False  # input is discarded: after a refusal, or after what the client said is its last request
        self._full = False  # the line is
        self._waits = False  # nothing is read: a body is to be let in, or others have their turn
        self._has_room = self._let_in = False  # the body that is coming in
        self._asked: tuple[bytes, str, Mapping[bytes, bytes]] = (b"", "", {})  # by what was refused
        self._running = False
        self._client_ended = False
        self._wake: asyncio.Future[None] | None = None  # the task waits for the line to fill
        self._quiet_s = server.clock()  # since when nothing is asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # stream transports are of this kind
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_max)
        self._writer = AnswerWriter(self._transport, self._server.clock)
        self._peer, here = ends_of(transport)
        self._ending = Ending(self._transport, self._server.clock)
        self._short = Short(self._server, self._writer, self)
        self._splitter = Splitter(self._limits, here)
        self._subject = subject_of(transport.get_extra_info("peercert"))
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._serve())
        refusal = self._server.connections.enter(self, self._task, self._peer)
        if refusal is not None:
            self._refuse(refusal)

    def connection_lost(self, error: Exception | None) -> None:
        self._task.cancel()
        self._short.leave()
        self._forget()
        self._server.connections.leave(self, self._peer)

    def eof_received(self) -> bool:
        """The client ended its side. If it waits for an answer it is taken to be gone; a refusal still goes out."""
        if self._busy or (self._line and isinstance(self._line[0], _Whole)):
            self._task.cancel()
            self._short.leave()
            self._forget()
            self._ending.begin(self._limits.write_time_s)
            return False
        if self._splitter.begun and not self._deaf:
            self._refuse(self._splitter.cut_short())
        self._client_ended = bool(self._line) and self._transport.can_write_eof()
        return self._client_ended  # True keeps our side open

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if not (self._line or self._full or self._waits or self._busy):
            repeated = self._splitter.repeated(data)
            if repeated is not None and self._begin(*repeated, len(data)):
                return
        self._splitter.feed(data)
        if not (self._full or self._waits):
            self._read()
        else:
            self._count()
            if self._splitter.unread_bytes > HELD_BYTES_MAX:
                self._transport.pause_reading()

    def _read(self) -> None:
        """Put what is whole into the waiting line, while there is room in it."""
        now_s = self._server.clock()
        try:
            while not (self._deaf or self._full or self._waits):
                request = self._splitter.take(now_s)
                if request is None:
                    self._look_at_what_comes()
                    break
                self._put_whole(*request, now_s)
        except Failure as refusal:
            self._refuse(refusal)
        self._count()

    def _read_on(self) -> None:
        """After the line was full, or what came had to wait."""
        self._read()
        if not self._waits and (not self._full or self._splitter.unread_bytes <= HELD_BYTES_MAX):
            self._transport.resume_reading()  # else each line of short requests would let in a long read

    def _put_whole(self, head: Head, body: bytes, now_s: float) -> None:
        self._deaf = not head.keep_alive
        size = self._splitter.head_bytes + len(body)
        alone = not (self._line or self._busy or self._splitter.unread_bytes)  # else others have their turn in between
        if alone and self._begin(head, body, size):
            self._has_room = self._let_in = False
            return
        self._line_bytes += size
        self._count()
        refusal = None
        if body and not self._has_room:
            try:
                self._server.in_flight.check(0, len(body), self._peer)
            except Failed as failed:
                self._line_bytes -= len(body)
                body, size, refusal = b"", size - len(body), failed
        self._put(_Whole(head, body, now_s, size, refusal))
        self._has_room = self._let_in = False  # the next one
        self._full = len(self._line) >= self._limits.pipelined_max or self._line_bytes >= HELD_BYTES_MAX

    def _look_at_what_comes(self) -> None:
        """Of a body that is not whole: whether there is room for it, and whether it may come in. Raises Failed."""
        splitter = self._splitter
        if (head := splitter.coming) is None:
            return
        self._count()
        size = splitter.body_bytes + splitter.announced_bytes
        if size:
            self._server.in_flight.check(splitter.announced_bytes, size, self._peer)
            self._has_room = True
        if not self._let_in and (splitter.awaits_go_ahead or size > SMALL_BODY_BYTES_MAX):
            self._let_in = True
            self._put(head)
        elif splitter.tired:
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)
        else:
            return
        self._waits = True

    def _go_on(self) -> None:
        """Others had their turn, or the body was let in."""
        self._waits = False
        if not self._deaf:
            self._splitter.excuse(self._server.clock())
            self._read_on()

    def _count(self) -> None:
        """Have counted in flight what came and is not being answered: requests in the line, and what is not whole."""
        held = self._line_bytes + self._splitter.body_bytes + self._splitter.unread_bytes
        if held != self._counted_bytes:
            self._server.in_flight.hold(held - self._counted_bytes, self._peer)
            self._counted_bytes = held

    def _forget(self) -> None:
        """Whatever came is not answered any more."""
        self._deaf = True
        for entry in self._line:
            if isinstance(entry, Begun) and isinstance(entry.answering, Coroutine):
                entry.answering.close()
        self._line.clear()
        self._line_bytes = 0
        self._splitter.drop()
        self._count()

    def _refuse(self, refusal: Failure) -> None:
        self._deaf = True
        self._asked = self._splitter.asked
        self._splitter.drop()
        self._count()
        self._put(refusal)

    def _put(self, entry: _Whole | Head | Failure) -> None:
        self._line.append(entry)
        if self._short.begun is None:
            self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _begin(self, head: Head, body: bytes, size: int) -> bool:
        """Have it answered by the short way, if the task has nothing to do and it can be."""
        if self._wake is None or self._wake.done() or not self._short.begin(head, body, size):
            return False
        if not head.keep_alive:
            self._deaf = True
        return True

    def told(self, close: bool) -> None:
        if close:
            self._end()
        elif self._line:
            self._wake_up()
        else:
            self._quiet_s = self._server.clock()

    def later(self, begun: Begun) -> None:
        self._line.appendleft(begun)
        self._wake_up()

    def _over(self, size: int, peer: str = "") -> None:
        self._running = False
        self._server.running -= 1
        self._server.in_flight.hold(-size, peer)

    async def _serve(self) -> None:
        try:
            while True:
                if not self._line:
                    self._wake = self._loop.create_future()
                    await self._wake
                entry = self._line.popleft()
                if isinstance(entry, Failure):
                    self._writer.refuse(self._server.refusal(entry, *self._asked), self._asked[0])
                    break
                if isinstance(entry, Head):
                    last = await self._screen(entry)
                elif isinstance(entry, Begun):
                    last = await self._finish(entry)
                else:
                    last = await self._answer_next(entry)
                if last or self._transport.is_closing():
                    break
                del entry  # an idle connection holds no request
                self._quiet_s = self._server.clock()
                if self._line:
                    await asyncio.sleep(0)  # others have their turn before what this client sent at once
            self._end()
        except Exception:
            log.exception("a connection was given up")
            self.cut()

    async def _screen(self, head: Head) -> bool:
        """Let a body in, or answer at once; whether that was the connection's last."""
        self._transport.pause_reading()
        if self._server.screen is not None:
            try:
                answer = await self._server.screen(self.request(head, b"", self._server.clock()))
            except Exception as error:
                answer = self._server.failed(error, head)
            if answer is not None:
                return await self._writer.write(answer, head, True)
        if self._splitter.awaits_go_ahead and not self._deaf:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._splitter.awaits_go_ahead = False
        self._go_on()
        return False

    async def _answer_next(self, entry: _Whole) -> bool:
        self._line_bytes -= entry.size
        self._counted_bytes -= entry.size  # the line's no more, counted until it is answered
        if self._full and not self._line:
            self._full = False
            self._read_on()
        return await self._answer(*entry)

    def request(self, head: Head, body: bytes, received_s: float) -> HttpRequest:
        encoding, peer, subject = head.encoding, self._peer, self._subject
        return HttpRequest(head.method, head.path, head.query, head.headers, body, received_s, peer, encoding, subject)

    async def _answer(self, head: Head, body: bytes, received_s: float, size: int, refusal: Failure | None) -> bool:
        """Have one request answered and write that; whether it was the connection's last."""
        server = self._server
        request = self.request(head, body, received_s)
        self._running = True
        server.running += 1
        server.requests += 1
        try:
            return await self._write(head, server.respond(request) if refusal is None else refusal)
        finally:
            self._over(size + request.unpacked_bytes, self._peer)

    async def _finish(self, begun: Begun) -> bool:
        """The same for one that was begun without the task."""
        self._short.begun = None
        assert begun.answering is not None, "it was told"
        self._running = True
        try:
            return await self._write(begun.head, begun.answering)
        finally:
            self._over(begun.size)

    async def _write(self, head: Head, answering: HttpAnswer | Awaitable[HttpAnswer] | Failure) -> bool:
        server = self._server
        try:
            try:
                if isinstance(answering, Failure):
                    raise answering
                answer = answering if isinstance(answering, HttpAnswer) else await answering
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and self._task.cancelling():
                    raise  # the client is gone; otherwise something inside gave up, which is no answer
                answer = self._server.failed(error, head)
            close = answer.close or not head.keep_alive or server.draining
            return await self._writer.write(answer, head, close)
        except asyncio.CancelledError:
            server.cancelled += 1
            raise

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    def _end(self) -> None:
        """After the last answer."""
        self._forget()
        self._ending.begin(self._limits.write_time_s)
        self._ending.send(client_ended=self._client_ended)

    def sweep(self, now_s: float) -> None:
        limits = self._limits
        if self._ending.begun:
            if self._ending.overdue(now_s):
                self.cut()
        elif self._writer.stalled_s:
            if now_s - self._writer.stalled_s > limits.write_time_s:
                self.cut()
        elif not (self._deaf or self._waits):
            overdue = self._splitter.overdue(now_s)
            if overdue is not None:
                self._refuse(overdue)
            elif self._idle() and now_s - self._quiet_s > limits.idle_time_s:
                self.drain()

    @property
    def _busy(self) -> bool:
        """Whether a request is being answered."""
        return self._running or self._short.begun is not None

    def _idle(self) -> bool:
        return not (self._busy or self._line or self._splitter.begun or self._deaf)

    def drain(self) -> None:
        if self._idle():
            self._deaf = True
            self._task.cancel()
            # Over TLS a client may never say that it ends too; nobody waits for one that has its answers.
            self._ending.begin(self._limits.write_time_s if self._transport.get_write_buffer_size() else LINGER_S)
            self._transport.close()

    def cut(self) -> None:
        self._task.cancel()
        self._transport.abort()
