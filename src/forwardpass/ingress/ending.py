"""How a connection ends: our last answer, our end of it, then theirs; what has not ended in time is cut."""

import asyncio
from contextlib import suppress

from forwardpass.core.clock import Clock
from forwardpass.ingress.connections import LINGER_S


class Ending:
    """Of one connection. ``begun`` once the last of ours is said."""

    def __init__(self, transport: asyncio.Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._since_s = 0.0  # 0.0: it goes on
        self._cut_s = 0.0

    @property
    def begun(self) -> bool:
        return bool(self._since_s)

    def begin(self, patience_s: float) -> None:
        """What has not ended by itself is cut after so long."""
        self._since_s = self._clock()
        self._cut_s = self._since_s + patience_s

    def send(self, *, client_ended: bool) -> None:
        """After the last answer: say so, and discard what still comes in until the client closes too."""
        transport = self._transport
        if transport.is_closing():
            return
        transport.resume_reading()
        if client_ended or not transport.can_write_eof():
            transport.close()
        else:
            with suppress(OSError):  # the client is gone
                transport.write_eof()

    def overdue(self, now_s: float) -> bool:
        """Whether it must be cut; one whose output is all taken is closed here."""
        if now_s > self._cut_s:
            return True
        if now_s - self._since_s > LINGER_S and not self._transport.get_write_buffer_size():
            self._transport.close()
        return False
