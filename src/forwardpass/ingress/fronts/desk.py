"""The owner's side of one front: what it asks is answered as if it had come in here."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator

from forwardpass.ingress.fronts.bodies import read_body, write_body
from forwardpass.ingress.fronts.channel import Channel
from forwardpass.ingress.fronts.wire import INLINE_BYTES_MAX, Answered, Asked, Ended, GivenUp, LetIn, Piece, Taken
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.message import HttpAnswer, HttpRequest, Respond, Screen

STREAM_BYTES_MAX = 256 * 1024
"""Of one stream that may be on their way to a client; whoever makes it waits then."""

log = logging.getLogger("forwardpass.ingress")


class Desk:
    """A task for each request of the front; ``close`` ends them all, as their clients are gone."""

    def __init__(self, channel: Channel, respond: Respond, screen: Screen | None, in_flight: BytesInFlight) -> None:
        self._channel = channel
        self._respond = respond
        self._screen = screen
        self._in_flight = in_flight
        self._running: dict[int, asyncio.Task[None]] = {}
        self._windows: dict[int, _Window] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._running)

    def take(self, said: Asked | GivenUp | Taken, memory: int) -> None:
        if isinstance(said, Asked):
            self._running[said.number] = self._loop.create_task(self._answer(said, memory))
        elif isinstance(said, GivenUp):
            if (task := self._running.get(said.number)) is not None:
                self._loop.call_soon(task.cancel)  # after it began: before, its descriptor would stay open
        elif (window := self._windows.get(said.number)) is not None:
            window.taken(said.size)

    async def close(self) -> None:
        await asyncio.sleep(0)  # all have begun
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, asked: Asked, memory: int) -> None:
        http = HttpRequest(
            asked.method, asked.path, asked.query, asked.headers, asked.body, asked.received_s, asked.peer,
            asked.encoding, asked.subject,
        )  # fmt: skip
        number = asked.number
        try:
            try:
                if memory >= 0:
                    http.body = await read_body(memory)
                if not asked.screens:
                    await self._give(number, await self._respond(http))
                elif self._screen is None or (answer := await self._screen(http)) is None:
                    self._channel.say(LetIn(number))
                else:
                    await self._give(number, answer)
            finally:
                if http.unpacked_bytes:
                    self._in_flight.hold(-http.unpacked_bytes, http.peer)
        except (Exception, asyncio.CancelledError) as error:
            task = self._running[number]
            if isinstance(error, asyncio.CancelledError) and task.cancelling():
                raise  # nobody waits for it
            log.error("no answer was made", exc_info=error)
            self._channel.say(Ended(number, whole=False))
        finally:
            self._running.pop(number, None)

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


class _Window:
    """How much of a stream is on its way."""

    def __init__(self) -> None:
        self._size = 0
        self._room: asyncio.Future[None] | None = None

    def taken(self, size: int) -> None:
        self._size -= size
        if self._room is not None and self._size < STREAM_BYTES_MAX and not self._room.done():
            self._room.set_result(None)

    async def pass_(self, size: int) -> None:
        """Return when more may be sent."""
        self._size += size
        while self._size >= STREAM_BYTES_MAX:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
