"""Writes answers to one connection: in one piece, in pieces, or as a stream, and never faster than the client reads."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator

from forwardpass.core.clock import Clock
from forwardpass.ingress.framing import Head, Opening, answer_head
from forwardpass.ingress.message import HttpAnswer

PIECE_BYTES = 64 * 1024  # a larger body is written in pieces of this size, as the client takes them

log = logging.getLogger("forwardpass.ingress")


class AnswerWriter:
    """One answer at a time. The transport buffers up to its limit; past that ``pause`` is called and writing waits."""

    def __init__(self, transport: asyncio.Transport, clock: Clock) -> None:
        self.stalled_s = 0.0  # since when the client does not take what is written; 0.0 = it does
        self._transport = transport
        self._clock = clock
        self._writable: asyncio.Future[None] | None = None

    def at_once(self, answer: HttpAnswer) -> bool:
        """Whether ``write_now`` may be asked to write it: in one piece, to a client that takes it."""
        return isinstance(answer.body, bytes) and len(answer.body) <= PIECE_BYTES and self._writable is None

    def write_now(self, answer: HttpAnswer, head: Head, close: bool) -> None:
        """Answer the request of ``head``."""
        body = answer.body
        assert isinstance(body, bytes)
        wire = answer_head(answer, len(body), head.http_1_0, close)
        self._transport.write(wire if head.method == b"HEAD" else wire + body)

    def write_row(self, opening: Opening, id: str, text: bytes, close: bool) -> None:
        """Such an answer in short: its head is made but for its last lines."""
        last = b"Connection: close\r\n\r\n" if close else b"\r\n"
        self._transport.write(
            b"%bX-Request-Id: %b\r\nContent-Length: %d\r\n%b%b" % (opening.lines, id.encode(), len(text), last, text)
        )

    async def write(self, answer: HttpAnswer, head: Head, close: bool) -> bool:
        """Answer the request of ``head``; whether the connection must end after it."""
        body = answer.body
        if not isinstance(body, bytes) or len(body) > PIECE_BYTES:
            return await self._write_long(answer, head, close)
        self.write_now(answer, head, close)
        if self._writable is not None:
            await self._writable
        return close

    def refuse(self, refusal: HttpAnswer, method: bytes) -> None:
        """The connection's last answer, to what may not even have been a request."""
        assert isinstance(refusal.body, bytes)
        wire = answer_head(refusal, len(refusal.body), False, True)
        self._transport.write(wire if method == b"HEAD" else wire + refusal.body)

    async def _write_long(self, answer: HttpAnswer, head: Head, close: bool) -> bool:
        body = answer.body
        if isinstance(body, AsyncIterator):
            return await self._write_stream(answer, body, head, close)
        views = [memoryview(buffer).cast("B") for buffer in ((body,) if isinstance(body, bytes) else body)]
        self._transport.write(answer_head(answer, sum(map(len, views)), head.http_1_0, close))
        for view in views if head.method != b"HEAD" else ():
            for start in range(0, len(view), PIECE_BYTES):
                self._transport.write(view[start : start + PIECE_BYTES])
                await self._taken()
        return close

    async def _write_stream(self, answer: HttpAnswer, body: AsyncIterator[bytes], head: Head, close: bool) -> bool:
        """Each chunk leaves at once. A body that breaks off never looks whole to the client."""
        close = close or head.http_1_0
        self._transport.write(answer_head(answer, None, head.http_1_0, close))
        try:
            if head.method == b"HEAD":
                return close
            async for chunk in body:
                if chunk:
                    self._transport.write(chunk if head.http_1_0 else b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self._taken()
            if not head.http_1_0:
                self._transport.write(b"0\r\n\r\n")
            return close
        except Exception:
            log.exception("a streamed answer broke off")
            if head.http_1_0:
                self._transport.abort()  # its end is the connection's: only a reset tells the client
            return True
        finally:
            if isinstance(body, AsyncGenerator):
                await body.aclose()

    async def _taken(self) -> None:
        """Return when more may be written; a client that is gone ends the task here."""
        if self._writable is not None:
            await self._writable
        elif self._transport.is_closing():
            await asyncio.sleep(0)  # a lost connection takes writes without a word: let the loss arrive

    def pause(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()
        self.stalled_s = self._clock()

    def resume(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
        self.stalled_s = 0.0
