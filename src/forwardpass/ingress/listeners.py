"""The sockets that one server accepts connections on, with or without TLS."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from forwardpass.ingress.connections import OpenConnections, address_of
from forwardpass.ingress.message import HttpLimits

RETRY_S = 1.0  # after the system could not accept one, for want of descriptors as a rule
AT_ONCE_MAX = 64  # are accepted before others have their turn

log = logging.getLogger("forwardpass.ingress")


class Listeners:
    """Makes a protocol for each connection, once its TLS handshake is done where there is one.

    The loop's own servers tell of a connection only then, and without descriptors try again without a pause. So we
    accept ourselves: what still shakes hands is counted in ``connections``, and is closed without a word where it is
    too many.
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
        self._watched: list[socket.socket] = []
        self._lent: set[socket.socket] = set()
        self._handshakes: set[asyncio.Task[None]] = set()

    async def add(self, sock: socket.socket) -> None:
        """Take over a listening socket; a Unix one is served without TLS."""
        if sock.family != socket.AF_UNIX:
            self.port = sock.getsockname()[1]
        self._watched.append(sock)
        self._watch(sock)

    def lend(self, sock: socket.socket) -> None:
        """Another process accepts on it, until it is taken back."""
        if sock in self._watched and sock not in self._lent:
            self._lent.add(sock)
            asyncio.get_running_loop().remove_reader(sock)

    def take_back(self, sock: socket.socket) -> None:
        """Accept on it here."""
        self._lent.discard(sock)
        self._watch(sock)

    def close(self) -> None:
        """Accept no more."""
        while self._watched:
            sock = self._watched.pop()
            self._lent.discard(sock)
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()

    async def end(self) -> None:
        """Accept no more, and give up what still shakes hands."""
        self.close()
        await asyncio.sleep(0)  # a task that is cancelled before it begins would leave its socket open
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _watch(self, sock: socket.socket) -> None:
        if sock in self._watched and sock not in self._lent:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        """What the loop calls while somebody waits."""
        for _ in range(AT_ONCE_MAX):
            try:
                client, peer = sock.accept()
            except BlockingIOError:
                return  # nobody waits any more
            except ConnectionError:
                continue  # it went away while it waited
            except OSError as error:
                self._pause(sock, error)
                return
            self._welcome(client, address_of(peer))

    def _pause(self, sock: socket.socket, error: OSError) -> None:
        log.error("no connection can be accepted", extra={"event": {"detail": error.strerror}})
        loop = asyncio.get_running_loop()
        loop.remove_reader(sock)
        loop.call_later(RETRY_S, self._watch, sock)

    def _welcome(self, client: socket.socket, address: str) -> None:
        if not self._connections.arrive(address):
            client.close()
            return
        client.setblocking(False)
        handshake = asyncio.get_running_loop().create_task(self._shake_hands(client, address))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, client: socket.socket, address: str) -> None:
        tls = None if client.family == socket.AF_UNIX else self._tls
        times = (self._limits.header_time_s, self._limits.write_time_s) if tls else (None, None)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                client,
                ssl=tls,
                ssl_handshake_timeout=times[0],
                ssl_shutdown_timeout=times[1],  # in it the last answer leaves too
            )
        except OSError:
            pass  # no handshake, or none in time: a client's own affair
        finally:
            self._connections.arrived(address)
