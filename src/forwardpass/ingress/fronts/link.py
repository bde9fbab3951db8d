"""A front's side: each request goes to the owner, and its answer comes back."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType

from forwardpass.ingress.fronts.bodies import body_at, write_body
from forwardpass.ingress.fronts.channel import Channel
from forwardpass.ingress.fronts.wire import (
    INLINE_BYTES_MAX,
    Answered,
    Asked,
    Ended,
    GivenUp,
    LetIn,
    Piece,
    Said,
    Taken,
)
from forwardpass.ingress.message import HttpAnswer, HttpRequest


class NoAnswer(Exception):
    """The owner has none, and has logged why; or a stream broke off."""


class Link:
    """``respond`` and ``screen`` are what the HTTP protocol calls; ``told`` gets what is about no request."""

    def __init__(
        self, end: socket.socket, told: Callable[[Said], None], gone: Callable[[Exception | None], None]
    ) -> None:
        self._channel = Channel(end, self._take, gone)
        self._told = told
        self._number = 0
        self._asked: dict[int, asyncio.Future[HttpAnswer | None]] = {}
        self._streams: dict[int, _Pieces] = {}

    def say(self, message: Said) -> None:
        self._channel.say(message)

    async def respond(self, http: HttpRequest) -> HttpAnswer:
        """Raises NoAnswer."""
        answer = await self._ask(http, screens=False)
        if answer is None:
            raise NoAnswer("let in, though it was no question")
        return answer

    async def screen(self, http: HttpRequest) -> HttpAnswer | None:
        """Raises NoAnswer."""
        return await self._ask(http, screens=True)

    async def _ask(self, http: HttpRequest, *, screens: bool) -> HttpAnswer | None:
        body, memory = http.body, -1
        if len(body) > INLINE_BYTES_MAX:
            memory = await write_body((body,), len(body))
            body = b""
        self._number = number = self._number + 1
        headers = dict(http.headers) if not isinstance(http.headers, dict) else http.headers
        asked = Asked(
            number, http.method, http.path, http.query, headers, body, http.received_s, http.peer, http.encoding,
            http.subject, screens, memory >= 0,
        )  # fmt: skip
        answer: asyncio.Future[HttpAnswer | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._channel.say(asked, memory)
        try:
            return await answer
        except asyncio.CancelledError:
            self._streams.pop(number, None)
            self._channel.say(GivenUp(number))
            raise
        finally:
            self._asked.pop(number, None)

    def _take(self, said: Said, memory: int) -> None:
        match said:
            case Answered():
                self._answered(said, memory)
            case Piece() | Ended() if said.number in self._streams:
                pieces = self._streams[said.number]
                pieces.put(said)
                if isinstance(said, Ended):
                    del self._streams[said.number]
            case Ended() | LetIn():
                asked = self._asked.get(said.number)
                if asked is not None and not asked.done():
                    if isinstance(said, LetIn):
                        asked.set_result(None)
                    else:
                        asked.set_exception(NoAnswer("the owner has no answer"))
            case Piece():
                pass  # of what was given up
            case _:
                self._told(said)

    def _answered(self, said: Answered, memory: int) -> None:
        asked = self._asked.get(said.number)
        if asked is None or asked.done():  # given up
            if memory >= 0:
                os.close(memory)
            return
        body: bytes | list[memoryview] | _Pieces = said.body
        if memory >= 0:
            try:
                body = [body_at(memory)]
            except (OSError, ValueError) as error:
                asked.set_exception(NoAnswer(f"its body cannot be read: {error}"))
                return
        elif said.streams:
            body = self._streams[said.number] = _Pieces(said.number, self._taken, self._let_go)
        asked.set_result(HttpAnswer(said.status, body, said.content_type, said.headers, said.close))

    def _taken(self, number: int, size: int) -> None:
        self._channel.say(Taken(number, size))

    def _let_go(self, number: int) -> None:
        """Nobody wants the rest of a stream."""
        if self._streams.pop(number, None) is not None:
            self._channel.say(GivenUp(number))


class _Pieces(AsyncGenerator[bytes, None]):
    """A stream's pieces as they come. Closing it, begun or not, gives the rest up."""

    def __init__(self, number: int, taken: Callable[[int, int], None], let_go: Callable[[int], None]) -> None:
        self._number = number
        self._taken = taken
        self._let_go = let_go
        self._here: deque[Piece | Ended] = deque()
        self._awaited: asyncio.Future[None] | None = None

    def put(self, said: Piece | Ended) -> None:
        self._here.append(said)
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def asend(self, value: None) -> bytes:
        """Raises NoAnswer where it broke off."""
        while not self._here:
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited
        said = self._here.popleft()
        if isinstance(said, Piece):
            self._taken(self._number, len(said.data))
            return said.data
        if not said.whole:
            raise NoAnswer("the stream broke off")
        raise StopAsyncIteration

    async def athrow(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> bytes:
        self._let_go(self._number)
        raise kind if isinstance(kind, BaseException) else kind()

    async def aclose(self) -> None:
        self._let_go(self._number)
