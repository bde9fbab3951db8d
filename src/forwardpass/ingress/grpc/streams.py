"""The streams of one connection (RFC 9113, 5.1): the calls that run, and on which of them a client may still speak."""

from typing import NamedTuple, Protocol

from forwardpass.ingress.grpc.frames import Broken, Reason

SPEAKING_MAX = 1000
"""Streams whose client has not said its last. Those past it that we ended are forgotten, the oldest first: what was
under way when a client heard of the end is long here by then."""


class Call(Protocol):
    """What the connection knows of a call."""

    def receive(self, data: bytes, ended: bool) -> None:
        """A part of what the client sends; ``ended``: it says no more."""

    def sweep(self, now_s: float) -> None:
        """Enforce the limits in time."""

    def excuse(self) -> None:
        """The client may not have been able to send until now: its time begins anew."""

    def cancel(self) -> None:
        """The client gave it up, or is gone."""

    def end(self) -> None:
        """Take no more requests; those that came are answered."""


class Running(NamedTuple):
    call: Call
    began_s: float


class Streams:
    """``running`` are the calls by stream, ``last`` is the newest stream."""

    def __init__(self) -> None:
        self.last = 0
        self.running: dict[int, Running] = {}
        self._speaking: dict[int, int | None] = {}  # to the bytes of data that are still to come, where it was said
        self._untold: set[int] = set()  # of these, what was answered and not reset

    def open(self, stream: int, ended: bool) -> None:
        """A client's new stream. Raises Broken for one that it cannot open."""
        if stream % 2 == 0:
            raise Broken(Reason.PROTOCOL_ERROR, "a stream that a client cannot open")
        self.last = stream
        if not ended:
            self._speaking[stream] = None
            if len(self._speaking) > SPEAKING_MAX:
                self._silence(next(old for old in self._speaking if old not in self.running))

    def announce(self, stream: int, size: int) -> None:
        """So many bytes of data will come."""
        self._speaking[stream] = size

    def may_speak(self, stream: int) -> None:
        """Raises Broken for data or headers on a stream that was never opened, or on which the client said its last."""
        if stream == 0 or stream > self.last:
            raise Broken(Reason.PROTOCOL_ERROR, "a frame of no stream")
        if stream not in self._speaking:
            raise Broken(Reason.STREAM_CLOSED, "a frame of a stream that has ended")

    def said(self, stream: int, size: int, ended: bool) -> bool:
        """So many bytes came; whether they are as many as were announced."""
        left = self._speaking[stream]
        if left is not None:
            left = self._speaking[stream] = left - size
        if ended:
            self._silence(stream)
        return left is None or left == 0 or (left > 0 and not ended)

    def given_up(self, stream: int) -> None:
        """The client says no more on it. Raises Broken."""
        if stream == 0 or stream > self.last:
            raise Broken(Reason.PROTOCOL_ERROR, "an end of no stream")
        self._silence(stream)

    def answered(self, stream: int) -> None:
        """It was answered at its head: most clients say the rest at once, and mistake a reset that comes before."""
        if stream in self._speaking:
            self._untold.add(stream)

    def to_reset(self) -> list[int]:
        """Such streams on which the client did not say its last; each once."""
        untold = list(self._untold)
        self._untold.clear()
        return untold

    def _silence(self, stream: int) -> None:
        self._speaking.pop(stream, None)
        self._untold.discard(stream)
