"""The server of HTTP/1.1: its listening sockets, its drain, its counts. What a connection does is in ``http``."""

import asyncio
import socket
import ssl
from collections.abc import Sequence

from forwardpass.core.clock import Clock
from forwardpass.ingress.cors import Origins
from forwardpass.ingress.http import HttpConnection
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.listeners import Listeners
from forwardpass.ingress.message import FrontStatistics, HttpLimits, HttpStatistics, Respond, Screen
from forwardpass.ingress.serving import FamilyOf, Serving


class HttpServer(Serving):
    """Serves ``respond`` and owns its connections and their tasks; the arguments are those of ``Serving``."""

    def __init__(
        self,
        respond: Respond,
        family_of: FamilyOf,
        limits: HttpLimits,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        in_flight: BytesInFlight | None = None,
        screen: Screen | None = None,
        origins: Origins | None = None,
    ) -> None:
        super().__init__(respond, family_of, limits, clock, in_flight, screen, origins)
        self.listeners = Listeners(self.connection, self.connections, limits, tls)

    def connection(self) -> asyncio.Protocol:
        """What reads one connection and answers it."""
        return HttpConnection(self)

    async def start(self, *, sock: socket.socket) -> None:
        """Serve what connects to a listening socket, without TLS to a Unix one. May be called for several."""
        await self.listeners.add(sock)
        self.connections.watch()

    async def drain(self, grace_s: float) -> None:
        """Let running requests end within the grace, each connection closing after its answer; then cut the rest."""
        self.draining = True
        await self.listeners.end()
        await self.connections.drain(grace_s)

    def statistics(self) -> HttpStatistics:
        return HttpStatistics(len(self.connections), self.running, self.requests, self.cancelled, dict(self.refused))

    def fronts(self) -> Sequence[FrontStatistics]:
        """The processes that listen beside this one."""
        return ()

    def renew(self) -> None:
        """Have them look at their certificates now."""
