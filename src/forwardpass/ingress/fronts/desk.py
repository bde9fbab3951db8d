"""The owner's side of one front: what it asks is answered as if it had come in here."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any

from forwardpass.ingress.framing import Head, Opening
from forwardpass.ingress.fronts.bodies import read_body, write_body
from forwardpass.ingress.fronts.channel import Channel
from forwardpass.ingress.fronts.wire import (
    INLINE_BYTES_MAX,
    OPENINGS_MAX,
    SLOTS_MAX,
    Answered,
    Asked,
    BrokenWire,
    Ended,
    GivenUp,
    LetIn,
    Line,
    Piece,
    Row,
    Taken,
)
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.serving import Answering, Serving, Waiting

STREAM_BYTES_MAX = 256 * 1024
"""Of one stream that may be on their way to a client; whoever makes it waits then."""

REQUESTS_SPARE = 1024
"""A front has one request of a connection at a time, but what it gave up may take a moment to end."""

log = logging.getLogger("forwardpass.ingress")


class Desk:
    """Has the requests of a front begun where that can be, and else a task for each, as a connection would.

    Fronts read what strangers send: one that asks what no front asks, or for more than the limits let in, is not gone
    on with. What one says of who asks (``peer``, ``subject``) is believed: it is where TLS ends.
    """

    def __init__(self, channel: Channel, serving: Serving) -> None:
        self._channel = channel
        self._serving = serving
        self._heads: dict[int, tuple[Head, Line]] = {}
        self._openings: dict[bytes, int] = {}
        self._begun: dict[int, Waiting] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._windows: dict[int, _Window] = {}
        limits = serving.limits
        self._requests_max = 2 * limits.connections_max + REQUESTS_SPARE
        self._large_bytes = 0  # of bodies in memory files
        self._large_max = 2 * limits.bytes_in_flight_max
        self._body_max = limits.body_bytes_max
        self._loop = asyncio.get_running_loop()

    def take(self, said: Asked | GivenUp | Taken, memory: int) -> None:
        """Raises BrokenWire for what no front says; then it has not taken ``memory``."""
        if isinstance(said, Asked):
            self._asked(said, memory)
        elif isinstance(said, Taken):
            if (window := self._windows.get(said.number)) is not None:
                window.taken(said.size)
        elif (waiting := self._begun.pop(said.number, None)) is not None:
            waiting.leave()
        elif (task := self._running.get(said.number)) is not None:
            self._loop.call_soon(task.cancel)  # after it began: before, its descriptor would stay open

    async def close(self) -> None:
        """Its clients are gone: all that runs for them ends."""
        await asyncio.sleep(0)  # all tasks have begun
        begun, tasks = list(self._begun.values()), list(self._running.values())
        self._begun.clear()
        for waiting in begun:
            waiting.leave()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _asked(self, asked: Asked, memory: int) -> None:
        begin, number = self._serving.begin, asked.number
        self._check(number, asked.received_s)
        head, line = self._head(asked)
        if begin is not None and not asked.screens and not asked.memory:
            try:
                answering = begin(head, asked.body, asked.received_s, _Counter(self, number, line))
            except Exception as error:
                self._fail(number, error)
                return
            if isinstance(answering, Waiting):
                self._begun[number] = answering
                return
            if answering is not None:
                self.tell(number, answering)
                return
        size = self._size(memory) if memory >= 0 else 0
        self._large_bytes += size
        self._run(number, self._answer(asked, _request(line, asked.body, asked.received_s), memory, size))

    def _check(self, number: int, received_s: float) -> None:
        if number in self._begun or number in self._running:
            raise BrokenWire("two requests of one number")
        if len(self._begun) + len(self._running) >= self._requests_max:
            raise BrokenWire("more requests than a front may have")
        if not 0.0 <= received_s <= self._serving.clock():
            raise BrokenWire("a request of another time")

    def _size(self, memory: int) -> int:
        size = os.fstat(memory).st_size
        if size > self._body_max or self._large_bytes + size > self._large_max:
            raise BrokenWire("larger bodies than a front lets in")
        return size

    def _head(self, asked: Asked) -> tuple[Head, Line]:
        line = asked.line
        if line is None:
            try:
                return self._heads[asked.slot]
            except KeyError:
                raise BrokenWire("a head that was not told") from None
        if not -1 <= asked.slot < SLOTS_MAX:
            raise BrokenWire("a slot that there is not")
        head = Head(line.method, line.path, line.query, line.headers, 0, line.encoding, True, line.http_1_0, False)
        if asked.slot >= 0:
            self._heads[asked.slot] = (head, line)
        return head, line

    def tell(self, number: int, answering: Answering) -> None:
        """The answer to what was begun, or what still has to be awaited for it."""
        self._begun.pop(number, None)
        body = answering.body if isinstance(answering, HttpAnswer) else None
        if isinstance(answering, HttpAnswer) and isinstance(body, bytes) and len(body) <= INLINE_BYTES_MAX:
            answer = answering
            self._channel.say(Answered(number, answer.status, body, answer.content_type, answer.headers, answer.close))
        else:
            self._run(number, self._finish(number, answering))

    def tell_row(self, number: int, opening: Opening, id: str, text: bytes) -> None:
        self._begun.pop(number, None)
        slot, told = self._openings.get(opening.lines), None
        if slot is None:
            if len(self._openings) == OPENINGS_MAX:
                self._openings.clear()
            slot = self._openings[opening.lines] = len(self._openings)
            told = (list(opening.headers), opening.lines)
        self._channel.say(Row(number, slot, id, text, told))

    def _run(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        self._running[number] = self._loop.create_task(self._bordered(number, work))

    async def _bordered(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and self._running[number].cancelling():
                raise  # nobody waits for it
            self._fail(number, error)
        finally:
            del self._running[number]

    def _fail(self, number: int, error: BaseException) -> None:
        log.error("no answer was made", exc_info=error)
        self._channel.say(Ended(number, whole=False))

    async def _answer(self, asked: Asked, http: HttpRequest, memory: int, size: int) -> None:
        serving, number = self._serving, asked.number
        try:
            if asked.memory:
                http.body = await read_body(memory)
            if not asked.screens:
                await self._give(number, await serving.respond(http))
            elif serving.screen is None or (answer := await serving.screen(http)) is None:
                self._channel.say(LetIn(number))
            else:
                await self._give(number, answer)
        finally:
            self._large_bytes -= size
            if http.unpacked_bytes:
                serving.in_flight.hold(-http.unpacked_bytes, http.peer)

    async def _finish(self, number: int, answering: Answering) -> None:
        await self._give(number, answering if isinstance(answering, HttpAnswer) else await answering)

    async def _give(self, number: int, answer: HttpAnswer) -> None:
        body, memory = answer.body, -1
        told = Answered(number, answer.status, b"", answer.content_type, answer.headers, answer.close)
        if isinstance(body, AsyncIterator):
            told.streams = True
            self._channel.say(told)
            await self._stream(number, body)
            return
        parts = (body,) if isinstance(body, bytes) else body
        size = sum(memoryview(part).nbytes for part in parts)
        if size > INLINE_BYTES_MAX:
            memory = await write_body(parts, size)
            told.memory = True
        else:
            told.body = body if isinstance(body, bytes) else b"".join(parts)
        self._channel.say(told, memory)

    async def _stream(self, number: int, body: AsyncIterator[bytes]) -> None:
        window = self._windows[number] = _Window()
        try:
            async for chunk in body:
                for start in range(0, len(chunk), INLINE_BYTES_MAX):
                    piece = chunk[start : start + INLINE_BYTES_MAX]
                    self._channel.say(Piece(number, piece))
                    await window.pass_(len(piece))
            self._channel.say(Ended(number, whole=True))
        finally:
            del self._windows[number]
            if isinstance(body, AsyncGenerator):
                await body.aclose()


class _Counter:
    """The asker of a request that was begun."""

    __slots__ = ("_desk", "_line", "_number")

    def __init__(self, desk: Desk, number: int, line: Line) -> None:
        self._desk = desk
        self._number = number
        self._line = line

    def request(self, head: Head, body: bytes, received_s: float) -> HttpRequest:
        return _request(self._line, body, received_s)

    def tell_row(self, opening: Opening, id: str, text: bytes) -> None:
        self._desk.tell_row(self._number, opening, id, text)

    def tell(self, answering: Answering) -> None:
        self._desk.tell(self._number, answering)


def _request(line: Line, body: bytes, received_s: float) -> HttpRequest:
    headers, encoding = line.headers, line.encoding
    return HttpRequest(line.method, line.path, line.query, headers, body, received_s, line.peer, encoding, line.subject)


class _Window:
    """How much of a stream is on its way."""

    def __init__(self) -> None:
        self._size = 0
        self._room: asyncio.Future[None] | None = None

    def taken(self, size: int) -> None:
        """Raises BrokenWire for more than was sent."""
        if not 0 <= size <= self._size:
            raise BrokenWire("more of a stream was taken than was sent")
        self._size -= size
        if self._room is not None and self._size < STREAM_BYTES_MAX and not self._room.done():
            self._room.set_result(None)

    async def pass_(self, size: int) -> None:
        """Return when more may be sent."""
        self._size += size
        while self._size >= STREAM_BYTES_MAX:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
