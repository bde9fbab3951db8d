"""A front's side: each request goes to the owner, and its answer comes back."""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType

from forwardpass.ingress.framing import Head, Opening
from forwardpass.ingress.fronts.bodies import body_at, write_body
from forwardpass.ingress.fronts.channel import Channel
from forwardpass.ingress.fronts.wire import (
    INLINE_BYTES_MAX,
    SLOTS_MAX,
    Answered,
    Asked,
    Ended,
    GivenUp,
    LetIn,
    Line,
    Piece,
    Row,
    Said,
    Taken,
)
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.serving import Asker, Waiting

log = logging.getLogger("forwardpass.ingress")


class NoAnswer(Exception):
    """The owner has none, and has logged why; or a stream broke off."""


async def _no_answer() -> HttpAnswer:
    raise NoAnswer("the owner has no answer")


class Link:
    """``begin``, ``respond`` and ``screen`` are what the HTTP protocol calls; ``told`` gets what is about no request."""

    def __init__(
        self, end: socket.socket, told: Callable[[Said], None], gone: Callable[[Exception | None], None]
    ) -> None:
        self._channel = Channel(end, self._take, gone)
        self._told = told
        self._number = 0
        self._heads: list[Head | None] = [None] * SLOTS_MAX
        self._slot = 0  # the next one
        self._openings: dict[int, Opening] = {}
        self._begun: dict[int, Asker] = {}
        self._asked: dict[int, asyncio.Future[HttpAnswer | None]] = {}
        self._streams: dict[int, _Pieces] = {}

    def say(self, message: Said) -> None:
        self._channel.say(message)

    def begin(self, head: Head, body: bytes, received_s: float, asker: Asker) -> Waiting:
        """Of a small body: the asker is told the answer, and there is no task that waits for it."""
        self._number = number = self._number + 1
        slot, line = head.asked, None
        if slot is None or slot < 0 or self._heads[slot] is not head:
            line = _line(asker.request(head, b"", received_s), http_1_0=head.http_1_0)
            if slot is None:
                slot = -1  # a head that is never repeated takes no place
            else:
                slot, self._slot = self._slot, (self._slot + 1) % SLOTS_MAX
                self._heads[slot] = head
            head.asked = slot
        self._begun[number] = asker
        self._channel.say(Asked(number, slot, received_s, body, line))
        return _Begun(self, number)

    async def respond(self, http: HttpRequest) -> HttpAnswer:
        """Raises NoAnswer."""
        answer = await self._ask(http, screens=False)
        if answer is None:
            raise NoAnswer("let in, though it was no question")
        return answer

    async def screen(self, http: HttpRequest) -> HttpAnswer | None:
        """Raises NoAnswer."""
        return await self._ask(http, screens=True)

    def give_up(self, number: int) -> None:
        """Nobody wants its answer, or the rest of it."""
        if self._begun.pop(number, None) is not None or self._streams.pop(number, None) is not None:
            self._channel.say(GivenUp(number))

    async def _ask(self, http: HttpRequest, *, screens: bool) -> HttpAnswer | None:
        body, memory = http.body, -1
        if len(body) > INLINE_BYTES_MAX:
            memory = await write_body((body,), len(body))
            body = b""
        self._number = number = self._number + 1
        answer: asyncio.Future[HttpAnswer | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._channel.say(Asked(number, -1, http.received_s, body, _line(http), screens, memory >= 0), memory)
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
            case Row():
                self._row(said)
            case Piece() | Ended() if (pieces := self._streams.get(said.number)) is not None:
                pieces.put(said)
                if isinstance(said, Ended):
                    del self._streams[said.number]
            case Ended():
                self._unanswered(said.number, self._begun.pop(said.number, None))
            case LetIn():
                if (asked := self._asked.get(said.number)) is not None and not asked.done():
                    asked.set_result(None)
            case Piece():
                pass  # of what was given up
            case _:
                self._told(said)

    def _answered(self, said: Answered, memory: int) -> None:
        number = said.number
        asker, asked = self._begun.pop(number, None), self._asked.get(number)
        if asker is None and (asked is None or asked.done()):  # given up
            if memory >= 0:
                os.close(memory)
            return
        body: bytes | list[memoryview] | _Pieces = said.body
        if said.memory:
            try:
                body = [body_at(memory)]
            except (OSError, ValueError) as error:
                log.error("an answer could not be read", exc_info=error)
                self._unanswered(number, asker)
                return
        elif said.streams:
            body = self._streams[number] = _Pieces(number, self._taken, self.give_up)
        answer = HttpAnswer(said.status, body, said.content_type, said.headers, said.close)
        if asker is not None:
            asker.tell(answer)
        elif asked is not None:
            asked.set_result(answer)

    def _unanswered(self, number: int, asker: Asker | None) -> None:
        asked = self._asked.get(number)
        if asker is not None:
            asker.tell(_no_answer())
        elif asked is not None and not asked.done():
            asked.set_exception(NoAnswer("the owner has no answer"))

    def _row(self, said: Row) -> None:
        if said.opening is not None:
            self._openings[said.slot] = Opening(*said.opening)
        opening = self._openings[said.slot]
        asker, asked = self._begun.pop(said.number, None), self._asked.get(said.number)
        if asker is not None:
            asker.tell_row(opening, said.id, said.text)
        elif asked is not None and not asked.done():
            asked.set_result(opening.answer(said.id, said.text))

    def _taken(self, number: int, size: int) -> None:
        self._channel.say(Taken(number, size))


class _Begun(Waiting):
    """A request that was begun."""

    __slots__ = ("_link", "_number")

    def __init__(self, link: Link, number: int) -> None:
        self._link = link
        self._number = number

    def leave(self) -> None:
        self._link.give_up(self._number)


def _line(http: HttpRequest, *, http_1_0: bool = True) -> Line:
    """Where the version is not known, answers in short are not for it."""
    headers = http.headers if isinstance(http.headers, dict) else dict(http.headers)
    return Line(http.method, http.path, http.query, headers, http.encoding, http_1_0, http.peer, http.subject)


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
