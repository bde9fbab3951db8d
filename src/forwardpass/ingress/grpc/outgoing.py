"""What one connection sends: at once where its windows allow, else as the client takes it."""

import asyncio
from collections.abc import Mapping

from forwardpass.ingress.grpc.budget import SENT_BYTES_FORGIVE, Budget
from forwardpass.ingress.grpc.frames import (
    DATA,
    FRAME_BYTES_DEFAULT,
    INITIAL_WINDOW,
    MAX_FRAME,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    Broken,
    Reason,
    head,
)

PIECE_BYTES_MAX = 64 * 1024  # of one write, whatever frames the client takes


class Outgoing:
    """Flow control of HTTP/2 over that of the transport.

    ``stalled_s`` is how long the client has not taken what waits, ``stalled_calls_s`` likewise of single calls for which
    it leaves no window; what is sent counts against it, ``rate_min`` bytes a second. ``paused``: the transport is full.
    """

    def __init__(self, transport: asyncio.Transport, budget: Budget, rate_min: int) -> None:
        self.stalled_s = 0.0
        self.stalled_calls_s: dict[int, float] = {}  # by stream, of all that have more to send
        self._transport = transport
        self._budget = budget
        self._rate_min = rate_min
        self._window = WINDOW_DEFAULT
        self._window_first = WINDOW_DEFAULT
        self._frame_bytes_max = FRAME_BYTES_DEFAULT
        self._windows: dict[int, int] = {}
        self.paused = False
        self._more: asyncio.Future[None] | None = None  # done when more may be sent, perhaps

    def opened(self, stream: int) -> None:
        self._windows[stream] = self._window_first

    def closed(self, stream: int) -> None:
        self._windows.pop(stream, None)
        self.stalled_calls_s.pop(stream, None)
        self._wake()

    def send(self, frames: bytes) -> None:
        """Frames that no window counts."""
        self._transport.write(frames)

    def takes(self, stream: int, size: int) -> bool:
        """Whether that many bytes may leave now, in one frame."""
        return not self.paused and size <= min(
            self._window, self._windows.get(stream, 0), self._frame_bytes_max, PIECE_BYTES_MAX
        )

    def spend(self, stream: int, size: int) -> None:
        """So many bytes of the call's data leave."""
        self._window -= size
        self._windows[stream] -= size
        self._budget.forgive(size / SENT_BYTES_FORGIVE)
        if self.stalled_s or self.stalled_calls_s:
            self._taken(stream, size / self._rate_min)

    async def data(self, stream: int, payload: bytes | memoryview) -> None:
        """Send it in as many frames as it takes; waits while the client takes no more."""
        view, position = memoryview(payload), 0
        try:
            while position < len(payload):
                size = await self._room(stream, len(payload) - position)
                self.spend(stream, size)
                self._transport.writelines((head(DATA, 0, stream, size), view[position : position + size]))
                position += size
        finally:
            self.stalled_calls_s.pop(stream, None)

    async def _room(self, stream: int, wanted: int) -> int:
        limit = min(wanted, self._frame_bytes_max, PIECE_BYTES_MAX)
        while True:
            if stream not in self._windows:
                raise asyncio.CancelledError  # the call is given up
            size = min(limit, self._window, self._windows[stream])
            if size > 0 and not self.paused:
                return size
            self.stalled_calls_s.setdefault(stream, 0.0)
            if self._more is None or self._more.done():
                self._more = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._more)

    def _taken(self, stream: int, worth_s: float) -> None:
        self.stalled_s = max(0.0, self.stalled_s - worth_s)
        if stream in self.stalled_calls_s:
            self.stalled_calls_s[stream] = max(0.0, self.stalled_calls_s[stream] - worth_s)

    def sweep(self, passed_s: float) -> None:
        """So long has passed: count it to what the client does not take, one call or all."""
        if self.paused or (self._window <= 0 and self.stalled_calls_s):
            self.stalled_s += passed_s
            return
        if not self.stalled_calls_s:
            self.stalled_s = 0.0
        for stream in self.stalled_calls_s:
            if self._windows.get(stream, 1) <= 0:
                self.stalled_calls_s[stream] += passed_s

    def widen(self, stream: int, size: int) -> None:
        """The client takes so much more, of one call or (stream 0) of all. Raises Broken."""
        if not size:
            raise Broken(Reason.PROTOCOL_ERROR, "a window that is widened by nothing")
        if stream == 0:
            self._window = _within(self._window + size)
        elif stream in self._windows:
            self._windows[stream] = _within(self._windows[stream] + size)
        self._wake()

    def apply(self, settings: Mapping[int, int]) -> None:
        """The client's settings by number. Raises Broken."""
        self._frame_bytes_max = settings.get(MAX_FRAME, self._frame_bytes_max)
        first = settings.get(INITIAL_WINDOW, self._window_first)
        difference, self._window_first = first - self._window_first, first
        if difference:
            for stream, window in self._windows.items():
                self._windows[stream] = _within(window + difference)
            self._wake()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


def _within(window: int) -> int:
    if window > WINDOW_MAX:
        raise Broken(Reason.FLOW_CONTROL_ERROR, "a window that is too large")
    return window
