"""The server of HTTP/1.1 with several listening processes, the fronts, which ask this one, the owner, everything.

The owner itself accepts only in the place of a front that is not there: answering for a front costs it about a third of what a
connection of its own does, so the more it leaves to them the more they can do together.
"""

import asyncio
import socket
import ssl
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed
from forwardpass.ingress.cors import Origins
from forwardpass.ingress.fronts.board import Board, Row, new_salt
from forwardpass.ingress.fronts.channel import Channel
from forwardpass.ingress.fronts.desk import Desk
from forwardpass.ingress.fronts.process import FrontProcess
from forwardpass.ingress.fronts.wire import Opening, Renew
from forwardpass.ingress.http_server import HttpServer
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.message import FrontStatistics, HttpLimits, HttpStatistics, Respond, Screen
from forwardpass.ingress.serving import FamilyOf
from forwardpass.ingress.sockets import beside

MEMORY_LOOK_S = 0.25


class Fronting(NamedTuple):
    """How many processes listen, and what they are told besides what the server has."""

    fronts: int
    health_route: str
    predict_route: str
    tls: tuple[str, str, str] | None
    log: str


class FrontedServer(HttpServer):
    """``HttpServer`` whose port fronts listen on. A Unix socket is the owner's alone."""

    def __init__(
        self,
        respond: Respond,
        family_of: FamilyOf,
        limits: HttpLimits,
        clock: Clock,
        tls: ssl.SSLContext | None,
        in_flight: BytesInFlight | None,
        screen: Screen | None,
        origins: Origins | None,
        fronting: Fronting,
    ) -> None:
        """Raises OSError where there is no shared memory."""
        super().__init__(respond, family_of, limits, clock, tls, in_flight, screen, origins)
        self._fronting = fronting
        self._fronts: list[FrontProcess] = []
        self._board = Board(1 + fronting.fronts)
        self._row = Row(self._board, 0, new_salt())
        self.in_flight.join(self._row)
        self.connections.join(self._row)
        self._looking: asyncio.TimerHandle | None = None

    async def start(self, *, sock: socket.socket) -> None:
        await super().start(sock=sock)
        if sock.family == socket.AF_UNIX:
            return
        self._look_at_memory()
        for row in range(1, self._board.rows):
            if row > 1:
                sock = beside(sock)
                await self.listeners.add(sock)
            self._fronts.append(
                FrontProcess(self._opening(row), sock, self.listeners, self._board, self.clock, self._desk)
            )

    async def drain(self, grace_s: float) -> None:
        await asyncio.gather(super().drain(grace_s), *(front.drain(grace_s) for front in self._fronts))
        if self._looking is not None:
            self._looking.cancel()

    def statistics(self) -> HttpStatistics:
        """Of all processes together."""
        own = super().statistics()
        told = [self._board.statistics(row) for row in range(1, self._board.rows)]
        refused = sum((Counter[Code](each.refused) for each in told), Counter(own.refused))
        return replace(
            own,
            connections=own.connections + sum(each.connections for each in told),
            running=own.running + sum(each.running for each in told),
            requests=own.requests + sum(each.requests for each in told),
            cancelled=own.cancelled + sum(each.cancelled for each in told),
            refused=dict(refused),
        )

    def held(self) -> int:
        """Bytes of requests, in all processes."""
        return self.in_flight.held + self._row.held_elsewhere()

    def renew(self) -> None:
        for front in self._fronts:
            front.say(Renew(0))

    def fronts(self) -> list[FrontStatistics]:
        return [front.status() for front in self._fronts]

    def _desk(self, channel: Channel) -> Desk:
        return Desk(channel, self)

    def _look_at_memory(self) -> None:
        """Have the fronts know whether there is memory for large bodies."""
        self._looking = asyncio.get_running_loop().call_later(MEMORY_LOOK_S, self._look_at_memory)
        try:
            self.in_flight.refuse_work()
        except Failed:
            self._row.tell_memory(full=True)
        else:
            self._row.tell_memory(full=False)

    def _opening(self, row: int) -> Opening:
        fronting = self._fronting
        return Opening(
            limits=self.limits, origins=self.origins, health_route=fronting.health_route,
            predict_route=fronting.predict_route, tls=fronting.tls, row=row, rows=self._board.rows, salt=self._row.salt,
            log=fronting.log,
        )  # fmt: skip
