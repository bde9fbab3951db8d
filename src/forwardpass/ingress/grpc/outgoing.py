"""What one connection sends: at once where its windows allow, else as the client takes it."""

import asyncio

from forwardpass.core.clock import Clock
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
    """Flow control of HTTP/2 over that of the transport. ``stalled_s``: since when a call waits to send, by stream."""

    def __init__(self, transport: asyncio.Transport, clock: Clock) -> None:
        self.stalled_s: dict[int, float] = {}
        self._transport = transport
        self._clock = clock
        self._window = WINDOW_DEFAULT
        self._window_first = WINDOW_DEFAULT
        self._frame_bytes_max = FRAME_BYTES_DEFAULT
        self._windows: dict[int, int] = {}
        self._paused = False
        self._more: asyncio.Future[None] | None = None  # done when more may be sent, perhaps

    @property
    def paused(self) -> bool:
        """Whether the transport holds as much as it should."""
        return self._paused

    def opened(self, stream: int) -> None:
        self._windows[stream] = self._window_first

    def closed(self, stream: int) -> None:
        self._windows.pop(stream, None)
        self.stalled_s.pop(stream, None)
        self._wake()

    def send(self, frames: bytes) -> None:
        """Frames that no window counts."""
        self._transport.write(frames)

    def takes(self, stream: int, size: int) -> bool:
        """Whether that many bytes may leave now, in one frame."""
        return not self._paused and size <= min(
            self._window, self._windows.get(stream, 0), self._frame_bytes_max, PIECE_BYTES_MAX
        )

    def spend(self, stream: int, size: int) -> None:
        """So many bytes of the call's data leave."""
        self._window -= size
        self._windows[stream] -= size

    async def data(self, stream: int, payload: bytes) -> None:
        """Send it in as many frames as it takes; waits while the client takes no more."""
        view, position = memoryview(payload), 0
        while position < len(payload):
            size = await self._room(stream, len(payload) - position)
            self.spend(stream, size)
            self._transport.writelines((head(DATA, 0, stream, size), view[position : position + size]))
            position += size

    async def _room(self, stream: int, wanted: int) -> int:
        limit = min(wanted, self._frame_bytes_max, PIECE_BYTES_MAX)
        while True:
            if stream not in self._windows:
                raise asyncio.CancelledError  # the call is given up
            size = min(limit, self._window, self._windows[stream])
            if size > 0 and not self._paused:
                self.stalled_s.pop(stream, None)
                return size
            self.stalled_s.setdefault(stream, self._clock())
            if self._more is None or self._more.done():
                self._more = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._more)

    def widen(self, stream: int, size: int) -> None:
        """The client takes so much more, of one call or (stream 0) of all. Raises Broken."""
        if stream == 0:
            self._window += size
            if self._window > WINDOW_MAX or not size:
                raise Broken(Reason.FLOW_CONTROL_ERROR, "a window that is too large, or widened by nothing")
        elif stream in self._windows:
            self._windows[stream] += size
            if self._windows[stream] > WINDOW_MAX or not size:
                raise Broken(Reason.FLOW_CONTROL_ERROR, "a window that is too large, or widened by nothing")
        self._wake()

    def apply(self, name: int, value: int) -> None:
        """One of the client's settings."""
        if name == INITIAL_WINDOW:
            difference, self._window_first = value - self._window_first, value
            for stream in self._windows:
                self._windows[stream] += difference
                if self._windows[stream] > WINDOW_MAX:
                    raise Broken(Reason.FLOW_CONTROL_ERROR, "a window that is too large")
            self._wake()
        elif name == MAX_FRAME:
            self._frame_bytes_max = value

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)
