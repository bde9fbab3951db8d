"""Connections before they are any, and after: TLS handshakes count, and no client holds up the end of a connection."""

import ipaddress
import select
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import trustme
from tests.ingress.http_wire import GET, LIMITS, Served, connect, read_reply, serving
from tests.ingress.test_http_connection import until

from forwardpass.ingress.connections import REFUSALS_MAX, address_of
from forwardpass.ingress.message import HttpLimits

LOOPS = pytest.mark.parametrize("plain_loop", [False, True], ids=["uvloop", "asyncio"])


@contextmanager
def serving_tls(limits: HttpLimits, plain_loop: bool) -> Iterator[tuple[Served, ssl.SSLContext]]:
    """A server with a certificate, and what its clients trust."""
    authority = trustme.CA()
    server_tls, client_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server_tls)
    authority.configure_trust(client_tls)
    with serving(limits=limits, tls=server_tls, plain_loop=plain_loop) as served:
        yield served, client_tls


@LOOPS
def test_a_tls_client_that_never_says_goodbye_holds_up_no_drain(plain_loop: bool) -> None:
    with serving_tls(LIMITS, plain_loop) as (served, client_tls), shaken(served, client_tls) as idle:
        idle.sendall(GET)
        assert read_reply(idle).statuses == [200]
        started = time.monotonic()
        served.call(served.server.drain(10))
        assert time.monotonic() - started < 3


@LOOPS
def test_an_idle_tls_connection_goes_though_its_client_does_not(plain_loop: bool) -> None:
    limits = replace(LIMITS, idle_time_s=0.1)
    with serving_tls(limits, plain_loop) as (served, client_tls), shaken(served, client_tls):
        until(lambda: served.server.statistics().connections == 0)


@LOOPS
@pytest.mark.parametrize(
    "limits",
    [replace(LIMITS, connections_max=3), replace(LIMITS, connections_per_address_max=3)],
    ids=["all", "address"],
)
def test_handshakes_that_are_never_made_count_as_connections(plain_loop: bool, limits: HttpLimits) -> None:
    limits = replace(limits, header_time_s=2.0)
    with serving_tls(limits, plain_loop) as (served, client_tls), ExitStack() as stack:
        silent = [stack.enter_context(connect(served)) for _ in range(3 + REFUSALS_MAX + 20)]
        until(lambda: len(closed(silent)) == 20)
        assert served.server.statistics().connections == 0
        until(lambda: len(closed(silent)) == len(silent))
        until(lambda: answered(served, client_tls))  # what was given up is counted out a moment later


@LOOPS
def test_a_drain_gives_up_what_still_shakes_hands(plain_loop: bool) -> None:
    with serving_tls(replace(LIMITS, header_time_s=20), plain_loop) as (served, _), connect(served) as silent:
        served.call(served.server.drain(10))
        assert read_reply(silent).closed
        with pytest.raises(OSError):
            connect(served)


def shaken(served: Served, client_tls: ssl.SSLContext) -> ssl.SSLSocket:
    """A client whose handshake is done."""
    return client_tls.wrap_socket(connect(served), server_hostname="localhost")


def answered(served: Served, client_tls: ssl.SSLContext) -> bool:
    """Whether a client that comes now gets its answer."""
    try:
        with shaken(served, client_tls) as client:
            client.sendall(GET)
            return read_reply(client, 0.05).statuses == [200]
    except OSError:
        return False


def closed(clients: list[socket.socket]) -> list[socket.socket]:
    """Those that the server has ended."""
    return select.select(clients, [], [], 0)[0]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("192.0.2.7", 5000), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 5000, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::", 5000, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5000, 0, 2), "fe80::/64"),
        (("::ffff:192.0.2.7", 5000, 0, 0), "192.0.2.7"),
        ("", ""), (b"", ""), (None, ""),
    ],
)  # fmt: skip
def test_one_address_is_what_one_caller_has(peer: object, address: str) -> None:
    assert address_of(peer) == address
    assert address == "" or ipaddress.ip_network(address)


def test_callers_of_a_unix_socket_have_no_limit_of_one_address(tmp_path: object) -> None:
    path = f"{tmp_path}/data"
    with serving(limits=replace(LIMITS, connections_per_address_max=1), path=path), ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(5)
            client.connect(path)
            client.sendall(GET)
            assert read_reply(client, 0.05).statuses == [200]
