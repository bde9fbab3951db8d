"""Where a front begins: a process that listens beside the owner, and asks it everything.

``python -m forwardpass.ingress.fronts.live PARENT LISTENER BOARD``, started by ``process.py`` only; its end of the wire
is its standard input.
"""

import asyncio
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import sys

import uvloop

from forwardpass.core.clock import monotonic_s
from forwardpass.ingress.fronts.board import Board, Row
from forwardpass.ingress.fronts.counted import CountedServer
from forwardpass.ingress.fronts.link import Link
from forwardpass.ingress.fronts.wire import PACKET_BYTES_MAX, Drain, Opening, Ready, Renew, Said, receive
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.platform_routes import data_routes
from forwardpass.ingress.routes import Table
from forwardpass.observe import log
from forwardpass.observe.pressure import work_refused

BEAT_S = 0.25
GC_THRESHOLDS = (5_000, 20, 50)
_log = logging.getLogger("forwardpass.ingress")
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


class Front:
    """One listening process. ``ended`` once it has drained."""

    def __init__(self, opening: Opening, end: socket.socket, listener: socket.socket, board: Board) -> None:
        self.ended = asyncio.Event()
        self._listener = listener
        self._row = Row(board, opening.row, opening.salt)
        self._link = Link(end, self._told, self._left_alone)
        table = Table(data_routes(opening.health_route, opening.predict_route))
        in_flight = BytesInFlight(opening.limits.bytes_in_flight_max, self._refuse_work)
        self._server = CountedServer(opening, self._link, table.family, in_flight, self._row)
        self._draining: list[asyncio.Task[None]] = []

    async def serve(self) -> None:
        """Until it is told to end."""
        await self._server.start(sock=self._listener)
        self._link.say(Ready(0))
        self._beat()
        await self.ended.wait()

    def _told(self, said: Said) -> None:
        match said:
            case Renew():
                self._server.renew()
            case Drain():
                self._draining.append(asyncio.create_task(self._drain(said.grace_s)))

    async def _drain(self, grace_s: float) -> None:
        await self._server.drain(grace_s)
        await asyncio.sleep(0)  # what the connections that were cut gave up is told
        self.ended.set()

    def _beat(self) -> None:
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)
        self._row.beat(monotonic_s)

    def _refuse_work(self) -> None:
        if self._row.memory_full:
            raise work_refused()

    def _left_alone(self, error: Exception | None) -> None:
        """Without the owner there is no answer to anybody."""
        if error is not None:
            _log.error("a front cannot follow its owner", extra={"event": {"reason": str(error)}})
            logging.shutdown()
        os._exit(1)


def main() -> None:
    parent, listener, board = map(int, sys.argv[1:4])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # memory holds what was sent
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # whoever stops the whole group means the owner, which lets us finish
    end = socket.socket(fileno=0)
    end.setblocking(True)
    received = receive(end, bytearray(PACKET_BYTES_MAX))
    if received is None or not isinstance(opening := received.messages[0], Opening):
        return
    end.setblocking(False)
    log.start(opening.log)
    gc.set_threshold(*GC_THRESHOLDS)

    async def live() -> None:
        gc.collect()
        gc.freeze()
        await Front(opening, end, socket.socket(fileno=listener), Board(opening.rows, board)).serve()

    uvloop.run(live())


if __name__ == "__main__":
    main()
