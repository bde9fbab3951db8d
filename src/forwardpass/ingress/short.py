"""The short way of a connection's request: begun when it has come, told when its batch is done, without the task.

At most one request of a connection is on it, and then nothing else of that connection is being answered.
"""

import logging
from typing import NamedTuple, Protocol

from forwardpass.ingress.framing import Head, Opening
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX
from forwardpass.ingress.serving import Answering, Serving, Waiting
from forwardpass.ingress.writer import AnswerWriter

log = logging.getLogger("forwardpass.ingress")


class Begun(NamedTuple):
    """With ``answering`` it is left to the task: an answer that still has to be awaited, or is long to write."""

    head: Head
    size: int
    waiting: Waiting | None
    answering: Answering | None = None


class Host(Protocol):
    """The connection."""

    def request(self, head: Head, body: bytes, received_s: float) -> HttpRequest:
        """As others are to see it."""

    def told(self, close: bool) -> None:
        """The answer is written; whether it was the last."""

    def later(self, begun: Begun) -> None:
        """Have the task answer it, before all else."""

    def cut(self) -> None:
        """End the connection at once."""


class Short:
    """To whoever answers it is the Asker. ``begun`` is what is on the way, None where the task may go on."""

    __slots__ = ("_host", "_server", "_writer", "begun")

    def __init__(self, server: Serving, writer: AnswerWriter, host: Host) -> None:
        self.begun: Begun | None = None
        self._server = server
        self._writer = writer
        self._host = host

    def begin(self, head: Head, body: bytes, size: int) -> bool:
        """Whether it has been begun, as nothing need be awaited for it but its batch."""
        server = self._server
        begin = server.begin
        if begin is None or len(body) > SMALL_BODY_BYTES_MAX or self._writer.stalled_s:
            return False
        if not server.in_flight.room(size):
            return False
        answering = begin(head, body, server.clock(), self)
        if answering is None:
            return False
        server.running += 1
        server.requests += 1
        server.in_flight.hold(size)
        if isinstance(answering, Waiting):
            self.begun = Begun(head, size, answering)
        else:
            self.begun = Begun(head, size, None)
            self.tell(answering)
        return True

    def request(self, head: Head, body: bytes, received_s: float) -> HttpRequest:
        return self._host.request(head, body, received_s)

    def tell(self, answering: Answering) -> None:
        try:
            self._tell(answering)
        except Exception:  # a border, as the task is
            log.exception("a connection was given up")
            self._host.cut()

    def _tell(self, answering: Answering) -> None:
        begun = self.begun
        assert begun is not None, "an answer to nothing"
        if not isinstance(answering, HttpAnswer) or not self._writer.at_once(answering):
            return self._host.later(begun._replace(answering=answering))
        close = answering.close or not begun.head.keep_alive or self._server.draining
        self._writer.write_now(answering, begun.head, close)
        self.over(begun)
        self._host.told(close)

    def tell_row(self, opening: Opening, id: str, text: bytes) -> None:
        begun = self.begun
        assert begun is not None, "an answer to nothing"
        close = not begun.head.keep_alive or self._server.draining
        self._writer.write_row(opening, id, text, close)
        self.over(begun)
        self._host.told(close)

    def leave(self) -> None:
        """The client went away from it."""
        begun = self.begun
        if begun is not None:
            self._server.cancelled += 1
            self.over(begun)
            if begun.waiting is not None:
                begun.waiting.leave()

    def over(self, begun: Begun) -> None:
        """It is answered, or left."""
        server = self._server
        self.begun = None
        server.running -= 1
        server.in_flight.hold(-begun.size)
