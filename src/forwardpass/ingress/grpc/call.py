"""One gRPC call on its stream of HTTP/2: data to messages, the plane's answer to data and trailers."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.ingress.compression import pack
from forwardpass.ingress.framing import decode_content
from forwardpass.ingress.grpc import frames
from forwardpass.ingress.grpc.connection import Connection
from forwardpass.ingress.grpc.encoding import GrpcAnswer
from forwardpass.ingress.grpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, Broken, Reason
from forwardpass.ingress.grpc.hpack import literal
from forwardpass.ingress.grpc.plane import STREAM, GrpcCall, GrpcPlane
from forwardpass.ingress.grpc.stream import StreamAnswers
from forwardpass.ingress.message import HttpLimits

PREFIX_BYTES = 5  # of a message: whether it is compressed, and its length
PACKED_BYTES_MIN = 1024  # shorter answers are not worth compressing
INLINE_BYTES_MAX = 16 * 1024  # more is packed and unpacked in a thread
HELD_MESSAGE_BYTES = 256  # what the shortest message costs us
HELD_BODIES_MAX = 2  # what one connection's requests may hold, in times of the largest message

log = logging.getLogger("forwardpass.ingress")
_BEGINS = literal(b":status", b"200") + literal(b"content-type", b"application/grpc")
_FINE = literal(b"grpc-status", b"0")


class Message(NamedTuple):
    """As it came; ``packed`` means compressed. ``size`` is what it took of its stream."""

    body: bytes
    packed: bool

    @property
    def size(self) -> int:
        return PREFIX_BYTES + len(self.body)


class Splitter:
    """Messages out of the data of one call."""

    def __init__(self, bytes_max: int) -> None:
        self.partial_bytes = 0  # of a message that is not whole
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._needed = PREFIX_BYTES  # before there is more to know

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now. Raises Refused as soon as one says that it is too large."""
        self._parts.append(data)
        self.partial_bytes += len(data)
        if self.partial_bytes < self._needed:
            return []
        buffer = data if len(self._parts) == 1 else b"".join(self._parts)
        whole: list[Message] = []
        position, self._needed = 0, PREFIX_BYTES
        while len(buffer) - position >= PREFIX_BYTES:
            start = position + PREFIX_BYTES
            length = int.from_bytes(buffer[position + 1 : start])
            if length > self._bytes_max:
                text = f"the message has {length} bytes; at most {self._bytes_max} are allowed"
                raise Refused(Code.BODY_TOO_LARGE, text)
            if start + length > len(buffer):
                self._needed = PREFIX_BYTES + length
                break
            whole.append(Message(buffer[start : start + length], buffer[position] != 0))
            position = start + length
        self._parts = [buffer[position:]] if position < len(buffer) else []
        self.partial_bytes = len(buffer) - position
        return whole


class Reply:
    """What the server says on a stream: messages, then the end. ``coding`` is the one that its client uses."""

    def __init__(self, connection: Connection, stream: int, coding: bytes) -> None:
        self._connection = connection
        self._stream = stream
        self._coding = coding
        self._begun = False

    async def message(self, message: bytes, *, packed: bool = False) -> None:
        """Send one message; returns when it has left. ``packed``: the client compresses, so it is worth trying."""
        self._begin()
        self._connection.forgive()
        await self._connection.out.data(self._stream, await self._framed(message, packed))

    async def whole(self, answer: GrpcAnswer, *, packed: bool = False) -> None:
        """The one message of a call and its end, in one piece where the client takes it."""
        out, stream = self._connection.out, self._stream
        if packed or not out.takes(stream, PREFIX_BYTES + len(answer.message)):
            await self.message(answer.message, packed=packed)
            self.end(answer)
            return
        size = PREFIX_BYTES + len(answer.message)
        self._connection.forgive()
        out.spend(stream, size)
        begins, ends = self._begins(), _end(answer)
        out.send(
            b"".join(
                (
                    frames.head(HEADERS, END_HEADERS, stream, len(begins)),
                    begins,
                    frames.head(DATA, 0, stream, size),
                    _prefix(answer.message, False),
                    answer.message,
                    frames.head(HEADERS, END_HEADERS | END_STREAM, stream, len(ends)),
                    ends,
                )
            )
        )

    def end(self, answer: GrpcAnswer) -> None:
        """The status and the trailing metadata."""
        block = _end(answer) if self._begun else _BEGINS + _end(answer)
        self._connection.out.send(frames.frame(HEADERS, END_HEADERS | END_STREAM, self._stream, block))

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._connection.out.send(frames.frame(HEADERS, END_HEADERS, self._stream, self._begins()))

    def _begins(self) -> bytes:
        return _BEGINS + literal(b"grpc-encoding", self._coding) if self._coding else _BEGINS

    async def _framed(self, message: bytes, packed: bool) -> bytes:
        if packed and self._coding and len(message) >= PACKED_BYTES_MIN:
            if len(message) > INLINE_BYTES_MAX:
                message = await asyncio.to_thread(pack, (message,), self._coding)
            else:
                message = pack((message,), self._coding)
            return _prefix(message, True) + message
        return _prefix(message, False) + message


class Listener(Protocol):
    """What a call knows of who listens."""

    plane: GrpcPlane
    limits: HttpLimits
    clock: Clock
    running: int
    requests: int
    cancelled: int


class OpenCall:
    """A call from its head to its end. ``listener`` counts it; what it asks is the plane's to answer."""

    def __init__(self, listener: Listener, call: GrpcCall, connection: Connection, stream: int, coding: bytes) -> None:
        self._listener = listener
        self._call = call
        self._connection = connection
        self._stream = stream
        self._coding = coding
        self._limits = listener.limits
        self._splitter = Splitter(self._limits.body_bytes_max)
        self._messages: deque[Message] = deque()  # whole, not taken
        self._reply = Reply(connection, stream, coding)
        self._packs = False  # the client compresses
        self._ended = self._closed = False  # the client says no more; the answer is complete
        self._received = self._queued = self._credited = self._held = 0  # bytes
        self._began_s = listener.clock()  # what is awaited
        self._more: asyncio.Future[None] | None = None
        self._answers: StreamAnswers | None = None
        self._task: asyncio.Task[None] | None = None
        if call.name == STREAM:
            self._answers = StreamAnswers(listener.plane, call, self._read, self._write)
            self._start(self._answer_many(self._answers))

    def receive(self, data: bytes, ended: bool) -> None:
        """A part of what the client sends; ``ended``: it says no more."""
        if self._closed or self._ended:
            return
        self._ended = ended
        self._received += len(data)
        if self._received - self._credited > frames.STREAM_WINDOW:
            raise Broken(Reason.FLOW_CONTROL_ERROR, "more data than the window of the stream has")
        self._hold(len(data))
        try:
            if data:
                self._queue(data)
            if ended and self._splitter.partial_bytes:
                raise Refused(Code.INCOMPLETE_BODY, "the call ends inside a message")
            if self._connection.held_bytes > HELD_BODIES_MAX * self._limits.body_bytes_max:
                text = "the requests of this connection that are not answered hold too many bytes"
                raise Failed(Code.QUEUE_BYTES_FULL, text, retry_after_s=1.0)
            if self._answers is None:
                self._take_one()
        except Failure as failure:
            self._fail(failure)
            return
        if self._more is not None and not self._more.done():
            self._more.set_result(None)
        self._credit()

    def _queue(self, data: bytes) -> None:
        """Put what is whole now in line."""
        in_one = self._splitter.partial_bytes
        messages = self._splitter.feed(data)
        if messages or not in_one:
            self._began_s = self._listener.clock()
        self._messages += messages
        self._queued += sum([message.size for message in messages])
        self._hold(HELD_MESSAGE_BYTES * len(messages))

    def _take_one(self) -> None:
        """Start on the only message once the client has said all."""
        count = len(self._messages)
        if count > 1 or (self._ended and not count):
            raise Refused(Code.BAD_REQUEST, f"the method takes one message, got {count}")
        if self._ended:
            self._start(self._answer_one(self._messages.popleft()))

    def _credit(self) -> None:
        """Let the client go on: of many messages only those that were taken make room."""
        waiting = 0 if self._answers is None else self._queued
        owed = self._received - waiting - self._credited
        if owed >= frames.STREAM_WINDOW // 2 and not self._ended:
            self._credited += owed
            self._connection.credit(self._stream, owed)

    def _hold(self, size: int) -> None:
        self._held += size
        self._connection.held_bytes += size

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

    async def _answer_one(self, message: Message) -> None:
        self._packs = message.packed
        try:
            body = await self._unpacked(message)
        except Refused as refusal:
            self._fail(refusal)
            return
        answer = await self._listener.plane.respond(self._call, body)
        if answer.status:
            self._reply.end(answer)
        else:
            await self._reply.whole(answer, packed=message.packed)
        self._close()

    async def _answer_many(self, answers: StreamAnswers) -> None:
        remaining_s = self._call.remaining_s()
        try:
            async with asyncio.timeout(remaining_s):
                await answers.run()
        except TimeoutError:
            self._fail(Failed(Code.DEADLINE_EXCEEDED, "the deadline of the stream passed"))
        else:
            self._reply.end(GrpcAnswer(b"", ()))
            self._close()

    async def _read(self) -> bytes | Refused | None:
        """The next message of many, or why it cannot be unpacked; None after the last."""
        while not self._messages:
            if self._ended:
                return None
            self._more = self._connection.loop.create_future()
            await self._more
        message = self._messages.popleft()
        self._queued -= message.size
        self._hold(-message.size - HELD_MESSAGE_BYTES)
        self._credit()
        self._packs = message.packed
        try:
            return await self._unpacked(message)
        except Refused as refusal:
            return refusal

    async def _write(self, message: bytes) -> None:
        await self._reply.message(message, packed=self._packs)

    async def _unpacked(self, message: Message) -> bytes:
        """Raises Refused for what is no compressed data, or too much of it."""
        if not message.packed:
            return message.body
        if not self._coding:
            raise Refused(Code.BAD_ENCODING, "a message is marked as compressed and no grpc-encoding says how")
        if len(message.body) <= INLINE_BYTES_MAX:
            return decode_content(message.body, self._coding, self._limits)
        return await asyncio.to_thread(decode_content, message.body, self._coding, self._limits)

    def sweep(self, now_s: float) -> None:
        """Refuse what comes too slowly: a message that is begun, or the only one."""
        partial_bytes = self._splitter.partial_bytes
        awaited = partial_bytes or (self._answers is None and not self._ended)
        grace_s = self._limits.body_grace_s + partial_bytes / self._limits.body_rate_min
        if awaited and now_s - self._began_s > grace_s:
            self._fail(Refused(Code.BODY_TOO_SLOW, "the message came too slowly"))

    def cancel(self) -> None:
        """The client gave it up, or is gone."""
        self._closed = True
        self._hold(-self._held)
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Take no more requests; those that came are answered."""
        if self._answers is not None:
            self._answers.end()

    def _fail(self, failure: Failure) -> None:
        """End it with a failure that the plane knows nothing of."""
        if not self._closed:
            self._reply.end(self._listener.plane.refused(failure))
            self._close()
            if self._task is not None and self._task is not asyncio.current_task():
                self._task.cancel()

    def _close(self) -> None:
        self._closed = True
        self._hold(-self._held)
        if not self._ended:  # what it still sends is of no use
            self._connection.out.send(frames.reset(self._stream, Reason.NO_ERROR))
        self._connection.close_call(self._stream)


def _prefix(message: bytes, packed: bool) -> bytes:
    return bytes((packed,)) + len(message).to_bytes(4)


def _end(answer: GrpcAnswer) -> bytes:
    """The block of the trailers."""
    parts = [_FINE if not answer.status else literal(b"grpc-status", b"%d" % answer.status)]
    if answer.text:
        parts.append(literal(b"grpc-message", quote(answer.text, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~").encode()))
    parts += [literal(name, value) for name, value in answer.metadata]
    return b"".join(parts)
