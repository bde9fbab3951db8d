"""The sockets that one server of the data plane accepts connections on, with or without TLS."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from forwardpass.ingress.connections import OpenConnections, address_of
from forwardpass.ingress.message import HttpLimits
from forwardpass.ingress.sockets import BACKLOG

RETRY_S = 1.0  # after the system could not accept one, for want of descriptors as a rule

log = logging.getLogger("forwardpass.ingress")


class Listeners:
    """Makes a protocol for each connection, once its TLS handshake is done where there is one.

    The loop's own servers tell of a connection only then. So with TLS we accept ourselves: what still shakes hands is
    counted in ``connections``, and is closed without a word where it is too many.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        connections: OpenConnections,
        limits: HttpLimits,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.port = 0  # the one listened on, also when any was asked for
        self._make = make
        self._connections = connections
        self._limits = limits
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._watched: list[socket.socket] = []  # those that we accept from ourselves
        self._handshakes: set[asyncio.Task[None]] = set()

    async def add(self, sock: socket.socket) -> None:
        """Take over a listening socket; a Unix one is served without TLS."""
        loop = asyncio.get_running_loop()
        if sock.family == socket.AF_UNIX:
            self._servers.append(await loop.create_unix_server(self._make, sock=sock, backlog=BACKLOG))
            return
        self.port = sock.getsockname()[1]
        if self._tls is None:
            self._servers.append(await loop.create_server(self._make, sock=sock, backlog=BACKLOG))
        else:
            self._watched.append(sock)
            self._watch(sock, self._tls)

    def close(self) -> None:
        """Accept no more."""
        for server in self._servers:
            server.close()
        while self._watched:
            sock = self._watched.pop()
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()

    async def end(self) -> None:
        """Accept no more, and give up what still shakes hands."""
        self.close()
        await asyncio.sleep(0)  # a task that is cancelled before it begins would leave its socket open
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _watch(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        if sock in self._watched:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock, tls)

    def _accept(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        """What the loop calls while somebody waits."""
        loop = asyncio.get_running_loop()
        try:
            client, peer = sock.accept()
        except (BlockingIOError, ConnectionError):
            return  # it went away while it waited
        except OSError as error:
            log.error("no connection can be accepted", extra={"event": {"detail": error.strerror}})
            loop.remove_reader(sock)
            loop.call_later(RETRY_S, self._watch, sock, tls)
            return
        address = address_of(peer)
        if not self._connections.arrive(address):
            client.close()
            return
        client.setblocking(False)
        handshake = loop.create_task(self._shake_hands(client, address, tls))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, client: socket.socket, address: str, tls: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                client,
                ssl=tls,
                ssl_handshake_timeout=self._limits.header_time_s,
                ssl_shutdown_timeout=self._limits.write_time_s,  # in it the last answer leaves too
            )
        except OSError:
            pass  # no handshake, or none in time: a client's own affair
        finally:
            self._connections.arrived(address)
