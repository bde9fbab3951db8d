"""The data plane's HTTP/1.1: a request's bytes come in here, its answer's bytes leave here.

    data_received -> Splitter -> waiting line -> respond(HttpRequest) -> HttpAnswer -> transport

Each connection has one task that answers its requests in order. While one runs we keep reading, so that a client who
hangs up is noticed: the task is cancelled, and with it whatever ``respond`` was doing. What breaks the rules of the
protocol is refused, after the answers to what came before it, and nothing more of that connection is read.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.ingress.connections import LINGER_S, OpenConnections, address_of
from forwardpass.ingress.framing import Head, answer_head, refusal_of
from forwardpass.ingress.identity.subjects import subject_of
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.listeners import Listeners
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest, HttpStatistics
from forwardpass.ingress.routes import Family
from forwardpass.ingress.splitter import Splitter
from forwardpass.ingress.writer import AnswerWriter

HELD_BYTES_MAX = 64 * 1024  # unread bytes behind a full line at which we stop receiving (and noticing a hang-up)

log = logging.getLogger("forwardpass.ingress")

Respond = Callable[[HttpRequest], Awaitable[HttpAnswer]]
FamilyOf = Callable[[bytes, str], Family]


class HttpServer:
    """Serves ``respond`` and owns its connections and their tasks.

    ``family_of`` a method and a path, empty where they cannot be read, decides what its own refusals look like.
    ``in_flight`` counts the bytes of requests, of this server or of several.
    """

    def __init__(
        self,
        respond: Respond,
        family_of: FamilyOf,
        limits: HttpLimits,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        in_flight: BytesInFlight | None = None,
    ) -> None:
        self.respond = respond
        self.family_of = family_of
        self.limits = limits
        self.clock = clock
        self.draining = False
        self.running = self.requests = self.cancelled = 0
        self.refused: Counter[Code] = Counter()
        self.in_flight = BytesInFlight(limits.bytes_in_flight_max) if in_flight is None else in_flight
        self.connections = OpenConnections(limits, clock)
        self.listeners = Listeners(self.connection, self.connections, limits, tls)

    def connection(self) -> asyncio.Protocol:
        """What reads one connection and answers it."""
        return _Connection(self)

    async def start(self, *, sock: socket.socket) -> None:
        """Serve what connects to a listening socket, without TLS to a Unix one. May be called for several."""
        await self.listeners.add(sock)
        self.connections.watch()

    async def drain(self, grace_s: float) -> None:
        """Let running requests end within the grace, each connection closing after its answer; then cut the rest."""
        self.draining = True
        await self.listeners.end()
        await self.connections.drain(grace_s)

    def statistics(self) -> HttpStatistics:
        refused = dict(self.refused)
        return HttpStatistics(len(self.connections), self.running, self.requests, self.cancelled, refused)


class _Connection(asyncio.Protocol):
    """Reads into a waiting line; one task answers what is in it. To its ``OpenConnections`` it is a Connection."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._splitter = Splitter(server.limits)
        self._line: deque[tuple[Head, bytes, float] | Failure] = deque()  # a failure in it is its last entry
        self._line_bytes = 0
        self._partial_bytes = 0  # of a body that is not whole; counted in flight, as the line is
        self._deaf = False  # input is discarded: after a refusal, or after what the client said is its last request
        self._held = False  # the line is full
        self._running = False
        self._client_ended = False
        self._wake: asyncio.Future[None] | None = None  # the task waits for the line to fill
        self._quiet_s = server.clock()  # since when nothing is asked
        self._ending_s = 0.0  # since when the last answer is written; 0.0 = it is not
        self._cut_s = 0.0  # when, after that, what has not ended by itself is cut

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # stream transports are of this kind
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_max)
        self._writer = AnswerWriter(self._transport, self._server.clock)
        self._peer = address_of(transport.get_extra_info("peername"))
        self._subject = subject_of(transport.get_extra_info("peercert"))
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._serve())
        refusal = self._server.connections.enter(self, self._task, self._peer)
        if refusal is not None:
            self._refuse(refusal)

    def connection_lost(self, error: Exception | None) -> None:
        self._deaf = True
        self._task.cancel()
        self._line.clear()
        self._count_out()
        self._server.connections.leave(self, self._peer)

    def eof_received(self) -> bool:
        """The client ended its side. If it waits for an answer it is taken to be gone; a refusal still goes out."""
        if self._running or (self._line and not isinstance(self._line[0], Failure)):
            self._task.cancel()
            return False
        if self._splitter.begun and not self._deaf:
            self._refuse(self._splitter.cut_short())
        self._client_ended = bool(self._line) and self._transport.can_write_eof()
        return self._client_ended  # True keeps our side open

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._splitter.feed(data)
        if not self._held:
            self._read()
        elif self._splitter.unread_bytes > HELD_BYTES_MAX:
            self._transport.pause_reading()

    def _read(self) -> None:
        """Put what is whole into the waiting line, while there is room in it."""
        now_s = self._server.clock()
        try:
            while not self._deaf and not self._held:
                request = self._splitter.take(now_s)
                if request is None:
                    self._count_in(self._splitter.body_bytes, self._splitter.announced_bytes)
                    break
                head, body = request
                self._count_in(len(body), 0)
                self._partial_bytes = 0  # it is the line's now
                self._deaf = not head.keep_alive
                self._line_bytes += len(body)
                self._put((head, body, now_s))
                if len(self._line) >= self._limits.pipelined_max or self._line_bytes >= self._limits.body_bytes_max:
                    self._held = True
        except Failure as refusal:
            self._refuse(refusal)
        if self._splitter.awaits_go_ahead and not self._running and not self._line:
            self._splitter.awaits_go_ahead = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _count_in(self, here: int, coming: int) -> None:
        """So much of a body is here now. Raises Failed where that, and what is still to come of it, has no room."""
        more = here - self._partial_bytes
        if more or coming:
            in_flight = self._server.in_flight
            in_flight.check(more + coming, here + coming)
            in_flight.held += more
            self._partial_bytes = here

    def _count_out(self) -> None:
        """Nothing that came is held any more, but what is being answered."""
        self._server.in_flight.held -= self._partial_bytes + self._line_bytes
        self._partial_bytes = self._line_bytes = 0

    def _refuse(self, refusal: Failure) -> None:
        self._deaf = True
        self._splitter.drop_body()
        self._server.in_flight.held -= self._partial_bytes
        self._partial_bytes = 0
        self._put(refusal)

    def _put(self, entry: tuple[Head, bytes, float] | Failure) -> None:
        self._line.append(entry)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _serve(self) -> None:
        try:
            while True:
                if not self._line:
                    self._wake = self._loop.create_future()
                    await self._wake
                entry = self._line.popleft()
                if isinstance(entry, Failure):
                    refusal = self._refusal(entry, *self._splitter.asked)
                    assert isinstance(refusal.body, bytes)
                    self._transport.write(answer_head(refusal, len(refusal.body), False, True) + refusal.body)
                    break
                head, body, received_s = entry
                self._line_bytes -= len(body)
                if self._held and not self._line:
                    self._held = False
                    self._read()
                    if not self._held or self._splitter.unread_bytes <= HELD_BYTES_MAX:
                        self._transport.resume_reading()  # else each line of short requests would let in a long read
                if await self._answer(head, body, received_s) or self._transport.is_closing():
                    break
                del entry, head, body  # an idle connection holds no request
                self._quiet_s = self._server.clock()
                if self._line:
                    await asyncio.sleep(0)  # others have their turn before what this client sent at once
            self._end()
        except Exception:
            log.exception("a connection was given up")
            self.cut()

    async def _answer(self, head: Head, body: bytes, received_s: float) -> bool:
        """Have one request answered and write that; whether it was the connection's last."""
        server = self._server
        request = HttpRequest(
            head.method, head.path, head.query, head.headers, body, received_s, self._peer, head.encoding, self._subject
        )
        self._running = True
        size = len(body)  # the line's no more, counted until it is answered
        server.running += 1
        server.requests += 1
        try:
            try:
                answer = await server.respond(request)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and self._task.cancelling():
                    raise  # the client is gone; otherwise something inside gave up, which is no answer
                answer = self._failed(error, head)
            close = answer.close or not head.keep_alive or server.draining
            return await self._writer.write(answer, head, close)
        except asyncio.CancelledError:
            server.cancelled += 1
            raise
        finally:
            self._running = False
            server.running -= 1
            server.in_flight.held -= size + request.unpacked_bytes

    def _failed(self, error: BaseException, head: Head) -> HttpAnswer:
        if not isinstance(error, Failure):
            log.error("no answer was made", exc_info=error)
            error = Failed(Code.INTERNAL, "the request failed inside the server")
        return self._refusal(error, head.method, head.path)

    def _refusal(self, failure: Failure, method: bytes, path: str) -> HttpAnswer:
        self._server.refused[failure.code] += 1
        return refusal_of(failure, self._server.family_of(method, path))

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    def _end(self) -> None:
        """After the last answer: send our end, then discard what still comes in until the client closes too."""
        self._deaf = True
        self._ending_s = self._server.clock()
        self._cut_s = self._ending_s + self._limits.write_time_s
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        if self._client_ended or not self._transport.can_write_eof():
            self._transport.close()
        else:
            with suppress(OSError):  # the client is gone
                self._transport.write_eof()

    def sweep(self, now_s: float) -> None:
        limits = self._limits
        if self._ending_s:
            if now_s > self._cut_s:
                self.cut()
            elif now_s - self._ending_s > LINGER_S and not self._transport.get_write_buffer_size():
                self._transport.close()
        elif self._writer.stalled_s:
            if now_s - self._writer.stalled_s > limits.write_time_s:
                self.cut()
        elif not self._deaf:
            overdue = self._splitter.overdue(now_s)
            if overdue is not None:
                self._refuse(overdue)
            elif self._idle() and now_s - self._quiet_s > limits.idle_time_s:
                self.drain()

    def _idle(self) -> bool:
        return not (self._running or self._line or self._splitter.begun or self._deaf)

    def drain(self) -> None:
        if self._idle():
            self._deaf = True
            self._task.cancel()
            self._ending_s = self._server.clock()
            # Over TLS a client may never say that it ends too; nobody waits for one that has its answers.
            patience_s = self._limits.write_time_s if self._transport.get_write_buffer_size() else LINGER_S
            self._cut_s = self._ending_s + patience_s
            self._transport.close()

    def cut(self) -> None:
        self._task.cancel()
        self._transport.abort()
