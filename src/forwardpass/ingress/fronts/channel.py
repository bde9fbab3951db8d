"""One end of the wire in an event loop: what is said in one turn of it leaves in one packet."""

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable

from forwardpass.ingress.fronts.wire import (
    DESCRIPTORS_MAX,
    PACKET_BYTES_MAX,
    Answered,
    Asked,
    BrokenWire,
    Said,
    encode,
    receive,
    send,
)

log = logging.getLogger("forwardpass.ingress")

MESSAGES_MAX = 256  # in one packet: whoever reads them answers other callers in between
RETRY_S = 0.02
_PASSING = frozenset((errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS))
"""The system has no room for a packet now, or for one more descriptor that is on its way."""


class Channel:
    """``take`` is called with each message and the descriptor of its memory file (-1: none), ``gone`` once.

    The descriptor is whose that takes it to close, but not where BrokenWire is raised. What cannot be sent at once
    waits; who is ``asked`` hears no more until it is sent, so that who asks but does not listen piles up nothing. Of
    two ends only one may be so.
    """

    def __init__(
        self,
        end: socket.socket,
        take: Callable[[Said, int], None],
        gone: Callable[[Exception | None], None],
        *,
        asked: bool = False,
    ) -> None:
        self._end = end
        self._take = take
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(PACKET_BYTES_MAX)
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._flushing = False  # it was arranged
        self._asked = asked
        self._deaf = False  # until what waits is sent
        self._open = True
        self._loop.add_reader(end.fileno(), self._readable)

    def say(self, message: Said, descriptor: int = -1) -> None:
        """Its descriptor is closed once it is sent. Where the other side is gone nothing happens."""
        if not self._open:
            if descriptor >= 0:
                os.close(descriptor)
            return
        self._waiting.append((encode(message), descriptor))
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """``gone`` is not called."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._end.fileno())
            self._loop.remove_writer(self._end.fileno())
            self._end.close()
            _close(descriptor for _, descriptor in self._waiting)
            self._waiting.clear()

    def _flush(self) -> None:
        while self._waiting and self._open:
            messages: list[bytes] = []
            descriptors: list[int] = []
            size = 0
            for data, descriptor in self._waiting:
                size += len(data)
                if messages and (size > PACKET_BYTES_MAX - 8 or len(descriptors) == DESCRIPTORS_MAX):
                    break
                messages.append(data)
                if descriptor >= 0:
                    descriptors.append(descriptor)
                if len(messages) == MESSAGES_MAX:
                    break
            try:
                send(self._end, messages, descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._end.fileno(), self._writable)
                self._hold_off()
                return
            except OSError as error:
                if error.errno not in _PASSING:
                    self._lose(error)
                    return
                self._loop.call_later(RETRY_S, self._flush)
                self._hold_off()
                return
            _close(descriptors)
            for _ in messages:
                self._waiting.popleft()
        self._flushing = False
        if self._deaf and self._open:
            self._deaf = False
            self._loop.add_reader(self._end.fileno(), self._readable)

    def _hold_off(self) -> None:
        if self._asked and not self._deaf:
            self._deaf = True
            self._loop.remove_reader(self._end.fileno())

    def _writable(self) -> None:
        self._loop.remove_writer(self._end.fileno())
        self._flush()

    def _readable(self) -> None:
        try:
            received = receive(self._end, self._buffer)
        except BlockingIOError:
            return
        except (OSError, BrokenWire) as error:
            self._lose(error)
            return
        if received is None:
            self._lose(None)
            return
        descriptors = iter(received.descriptors)
        try:
            for message in received.messages:
                attached = isinstance(message, Asked | Answered) and message.memory
                self._hear(message, next(descriptors, -1) if attached else -1)
        except BrokenWire as error:
            _close(descriptors)
            self._lose(error)

    def _hear(self, message: Said, descriptor: int) -> None:
        try:
            self._take(message, descriptor)
        except BrokenWire:
            _close((descriptor,))
            raise
        except Exception:  # a border: a defect costs this message, never those that came with it
            log.exception("what a front or the owner said could not be followed")

    def _lose(self, error: Exception | None) -> None:
        if self._open:
            self.close()
            self._gone(error)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
