"""One gRPC call on its stream of HTTP/2: data to messages, the plane's answer to data and trailers."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.ingress.grpc import frames
from forwardpass.ingress.grpc.connection import Connection
from forwardpass.ingress.grpc.encoding import GrpcAnswer, size_of
from forwardpass.ingress.grpc.frames import STREAM_WINDOW, Broken, Reason
from forwardpass.ingress.grpc.large_fields import Buffers
from forwardpass.ingress.grpc.plane import STREAM, Body, GrpcCall, GrpcPlane
from forwardpass.ingress.grpc.reply import Reply
from forwardpass.ingress.grpc.splitter import Message, Splitter
from forwardpass.ingress.grpc.stream import StreamAnswers
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.message import HttpLimits
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX
from forwardpass.ingress.unpacking import decode_content

INLINE_BYTES_MAX = 16 * 1024  # more is unpacked in a thread
HELD_MESSAGE_BYTES = 256  # what the shortest message costs us
HELD_BODIES_MAX = 4
"""What the calls of one connection may hold, in times of the largest message: requests, unpacked, until they are
answered, and answers until they have left. Past a quarter of it a stream takes a request only when it has no other."""

log = logging.getLogger("forwardpass.ingress")


class Listener(Protocol):
    """What a call knows of who listens."""

    plane: GrpcPlane
    limits: HttpLimits
    clock: Clock
    running: int
    requests: int
    cancelled: int
    in_flight: BytesInFlight
    unpacking: asyncio.Semaphore  # large messages that are unpacked at the same time


class OpenCall:
    """A call from its head to its end. ``listener`` counts it; what it asks is the plane's to answer."""

    def __init__(self, listener: Listener, call: GrpcCall, connection: Connection, stream: int, coding: bytes) -> None:
        self._listener = listener
        self._call = call
        self._connection = connection
        self._stream = stream
        self._coding = coding
        self._limits = listener.limits
        self._body_bytes = max(self._limits.body_bytes_max, STREAM_WINDOW)
        self._splitter = Splitter(self._limits.body_bytes_max)
        self._messages: deque[Message] = deque()  # whole, not taken
        self._reply = Reply(connection, stream, coding)
        self._packs = False  # the client compresses
        self._ended = self._closed = False  # the client says no more; the answer is complete
        self._draining = self._late = False  # a stream is not read on, as the server ends; something came since
        self._received = self._queued = self._credited = self._held = 0  # bytes
        self._screened = self._doubted = False  # whether it may have so much is looked at, or is being looked at
        self._began_s = listener.clock()  # what is awaited, or when its pace was last looked at
        self._began_bytes = 0  # of all received, at that moment
        self.sent_bytes = 0  # of the message of many that was read last, as it came
        self._more: asyncio.Future[None] | None = None
        self._answers: StreamAnswers | None = None
        self._task: asyncio.Task[None] | None = None
        if call.name == STREAM:
            self._answers = StreamAnswers(listener.plane, call, self)
            self._start(self._answer_many(self._answers))

    def receive(self, data: bytes, ended: bool) -> None:
        """A part of what the client sends; ``ended``: it says no more."""
        if self._draining and (data or self._splitter.partial_bytes):
            self._late = True
        if self._closed or self._ended or self._late:
            return
        self._ended = ended
        self._received += len(data)
        if self._received - self._credited > STREAM_WINDOW:
            raise Broken(Reason.FLOW_CONTROL_ERROR, "more data than the window of the stream has")
        try:
            if data:
                self._queue(data)
            if ended and self._splitter.partial_bytes:
                raise Refused(Code.INCOMPLETE_BODY, "the call ends inside a message")
            self._check_held(0)
            self._check_room()
            if self._answers is None:
                self._take_one()
        except Failure as failure:
            self._fail(failure)
            return
        self._wake()
        self._credit()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _queue(self, data: bytes) -> None:
        """Put what is whole now in line."""
        in_one, kept = self._splitter.partial_bytes, self._splitter.kept_bytes
        messages = self._splitter.feed(data)
        self.hold(self._splitter.kept_bytes - kept + sum([message.size for message in messages]))
        if messages or not in_one:
            self.excuse()
        self._messages += messages
        self._queued += sum([message.size for message in messages])
        self.hold(HELD_MESSAGE_BYTES * len(messages))

    def _check_room(self) -> None:
        """Raises Failure where there is no room for a message that comes; of many only that one is refused."""
        coming = self._splitter.announced_bytes
        try:
            self._listener.in_flight.check(coming, self._held + coming, self._call.http.peer)
        except Failure as refusal:
            if self._answers is None:
                raise
            if coming:
                self.hold(-self._splitter.refuse(refusal))
            elif self._messages and self._messages[-1].refusal is None:
                last = self._messages.pop()
                self._messages.append(Message(b"", False, refusal))
                self._queued -= len(last.body)
                self.hold(-len(last.body))

    def _take_one(self) -> None:
        """Start on the only message once the client has said all; before more than a small one is here, ask who it is."""
        count = len(self._messages)
        if count > 1 or (self._ended and not count):
            raise Refused(Code.BAD_REQUEST, f"the method takes one message, got {count}")
        if self._ended:
            self._packs = self._messages[0].packed
            self._start(self._answer_one())
        elif not self._screened and self._held + self._splitter.announced_bytes > SMALL_BODY_BYTES_MAX:
            self._screened = self._doubted = True
            self._connection.run(self._screen())

    async def _screen(self) -> None:
        failure = await self._listener.plane.screen(self._call)
        if failure is not None:
            self._fail(failure)
            return
        self._doubted = False
        self._credit()

    def _credit(self) -> None:
        """Let the client go on: of many messages only those that were taken make room."""
        waiting = 0 if self._answers is None else self._queued
        owed = self._received - waiting - self._credited
        if owed >= STREAM_WINDOW // 2 and not (self._ended or self._draining or self._doubted):
            self._credited += owed
            self._connection.credit(self._stream, owed)

    def hold(self, size: int) -> None:
        """So many bytes more are held, or fewer; a call that is closed holds nothing."""
        if not self._closed:
            self._held += size
            self._connection.held_bytes += size
            self._listener.in_flight.hold(size, self._call.http.peer)

    def full(self) -> bool:
        """Whether a request should wait until another one of its stream is answered."""
        return self._connection.held_bytes >= self._body_bytes

    def _check_held(self, more: int) -> None:
        if self._connection.held_bytes + more > HELD_BODIES_MAX * self._body_bytes:
            text = "the calls of this connection that are not answered hold too many bytes"
            raise Failed(Code.QUEUE_BYTES_FULL, text, retry_after_s=1.0)
        if more:
            self._listener.in_flight.check(more, self._held + more, self._call.http.peer)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """The task that answers, counted once, however it ends."""
        self._listener.running += 1
        self._listener.requests += 1
        self._task = self._connection.run(work)
        self._task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._listener.running -= 1
        if task.cancelled():
            self._listener.cancelled += 1
        elif (error := task.exception()) is not None:  # a defect costs one connection
            log.error("a connection was given up", exc_info=error)
            self._connection.cut()

    async def _answer_one(self) -> None:
        self._call.http.sent_bytes = len(self._messages[0].body)
        answer = await self._listener.plane.respond(self._call, self._only)
        self.hold(size_of(answer.message) - self._held)
        if answer.status:
            self._reply.end(answer)
        else:
            await self._reply.whole(answer, packed=self._packs)
        self._close()

    async def _only(self) -> Body:
        """The one request, unpacked; what came is held no more."""
        body = await self._unpacked(self._messages.popleft())
        self.hold(len(body) - self._held)
        return body

    async def _answer_many(self, answers: StreamAnswers) -> None:
        remaining_s = self._call.remaining_s()
        try:
            async with asyncio.timeout(remaining_s):
                unknown = await answers.run()
        except TimeoutError:
            self._fail(Failed(Code.DEADLINE_EXCEEDED, "the deadline of the stream passed"))
        else:
            if unknown is not None:
                self._fail(unknown)
                return
            if not self._ended:
                self._fail(Failed(Code.SHUTTING_DOWN, "the server is shutting down", retry_after_s=1.0))
                return
            self._reply.end(GrpcAnswer((), ()))
            self._close()

    async def read(self) -> Body | Failure | None:
        """The next message of many, held from here on, or why it cannot be unpacked; None after the last.

        The last is what was whole when the server began to end.
        """
        while not self._messages:
            if self._ended or self._draining:
                return None
            self._more = self._connection.loop.create_future()
            await self._more
        message = self._messages.popleft()
        self._queued -= message.size
        self.sent_bytes = len(message.body)
        self.excuse()
        self._credit()
        self._packs = message.packed
        try:
            if message.refusal is not None:
                raise message.refusal
            body = await self._unpacked(message)
        except Failure as failure:
            self.hold(-message.size - HELD_MESSAGE_BYTES)
            return failure
        self.hold(len(body) - message.size - HELD_MESSAGE_BYTES)
        return body

    async def write(self, answer: Buffers) -> None:
        """Returns when the answer has left."""
        await self._reply.message(answer, packed=self._packs)

    async def _unpacked(self, message: Message) -> Body:
        """Raises Refused for what is no compressed data, or too much of it; Failed where too much is held already."""
        if not message.packed:
            return message.body
        if not self._coding:
            raise Refused(Code.BAD_ENCODING, "a message is marked as compressed and no grpc-encoding says how")
        if len(message.body) <= INLINE_BYTES_MAX:
            body = decode_content(message.body, self._coding, self._limits)
        else:
            async with self._listener.unpacking:
                body = await asyncio.to_thread(decode_content, message.body, self._coding, self._limits)
        self._check_held(len(body))
        return body

    def excuse(self) -> None:
        """The client may not have been able to send until now: its time begins anew."""
        self._began_s, self._began_bytes = self._listener.clock(), self._received

    def sweep(self, now_s: float) -> None:
        """Refuse what comes too slowly: a message that is begun, or the only one."""
        if self._draining or (self._answers is not None and self._messages):  # these fill the window: no more can come
            self.excuse()
        partial_bytes = self._splitter.partial_bytes
        awaited = partial_bytes or (self._answers is None and not self._ended)
        elapsed_s = now_s - self._began_s
        if not awaited or elapsed_s <= self._limits.body_grace_s:
            return
        if self._doubted or self._received - self._began_bytes >= self._limits.body_rate_min * elapsed_s:
            self.excuse()  # what came fast at first buys no time
        else:
            self._fail(Refused(Code.BODY_TOO_SLOW, "the message came too slowly"))

    def cancel(self) -> None:
        """The client gave it up, or is gone."""
        self._release()
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Take no more requests; those that came are answered."""
        if self._answers is not None:
            self._draining = True
            self._wake()

    def _fail(self, failure: Failure) -> None:
        """End it with a failure that the plane knows nothing of."""
        if not self._closed:
            self._reply.end(self._listener.plane.refused(failure))
            self._close()
            if self._task is not None and self._task is not asyncio.current_task():
                self._task.cancel()

    def _release(self) -> None:
        self.hold(-self._held)
        self._closed = True
        self._messages.clear()

    def _close(self) -> None:
        self._release()
        if not self._ended:  # what it still sends is of no use
            self._connection.out.send(frames.reset(self._stream, Reason.NO_ERROR))
        self._connection.close_call(self._stream)
