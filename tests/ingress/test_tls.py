"""Certificates that change under a running server: new connections get the new one, and a broken one changes nothing."""

import logging
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from tests.ingress.http_wire import GET, Served, connect, read_reply, serving

from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Misconfigured
from forwardpass.ingress.tls import CHECK_S, Certificates


@dataclass
class Files:
    """The two files, and who issues what is written to them."""

    folder: Path
    authority: trustme.CA
    clock: FakeClock

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    def write(self, *, key: bool = True) -> int:
        """A new pair, or its certificate only; the certificate's serial number."""
        issued = self.authority.issue_cert("localhost")
        self._replace(self.certificate, b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        if key:
            self._replace(self.key, issued.private_key_pem.bytes())
        text = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())
        return hash(text)

    def opened(self) -> Certificates:
        return Certificates(str(self.certificate), str(self.key), self.clock)

    def seen_by(self, served: Served, highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> int:
        """Which certificate a new client is shown; the connection answers too."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        context.maximum_version = highest
        with context.wrap_socket(connect(served), server_hostname="localhost") as client:
            client.sendall(GET)
            assert read_reply(client, 0.05).statuses == [200]
            return hash(client.getpeercert(binary_form=True))

    def _replace(self, file: Path, content: bytes) -> None:
        new = file.with_suffix(".new")
        new.write_bytes(content)
        os.replace(new, file)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, trustme.CA(), FakeClock())


@pytest.fixture(params=[False, True], ids=["uvloop", "asyncio"])
def served(files: Files, request: pytest.FixtureRequest) -> Iterator[tuple[Served, Certificates, int]]:
    first = files.write()
    certificates = files.opened()
    with serving(tls=certificates.context, plain_loop=request.param) as running:
        yield running, certificates, first


Running = tuple[Served, Certificates, int]


def test_new_connections_get_the_new_certificate_without_a_restart(files: Files, served: Running) -> None:
    running, _, first = served
    assert files.seen_by(running) == first
    second = files.write()
    files.clock.advance(CHECK_S)
    assert files.seen_by(running) == second != first


def test_the_files_are_not_looked_at_for_every_connection(files: Files, served: Running) -> None:
    running, certificates, first = served
    second = files.write()
    files.clock.advance(CHECK_S - 0.1)
    assert files.seen_by(running) == first
    certificates.renew()
    assert files.seen_by(running) == second


def test_a_broken_pair_is_logged_once_and_the_old_one_stays(
    files: Files, served: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running, certificates, first = served
    with caplog.at_level(logging.INFO, "forwardpass.ingress"):
        files.write(key=False)
        for _ in range(3):
            certificates.renew()
        assert files.seen_by(running) == first
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        second = files.write()
        certificates.renew()
    assert files.seen_by(running) == second
    assert caplog.records[-1].levelname == "INFO"


def test_files_that_are_away_for_a_while_change_nothing(files: Files, served: Running) -> None:
    running, certificates, first = served
    files.key.unlink()
    certificates.renew()
    assert files.seen_by(running) == first
    second = files.write()
    certificates.renew()
    assert files.seen_by(running) == second


def test_an_open_connection_stays(files: Files, served: Running) -> None:
    running, certificates, _ = served
    context = ssl.create_default_context()
    files.authority.configure_trust(context)
    with context.wrap_socket(connect(running), server_hostname="localhost") as client:
        for _ in range(2):
            client.sendall(GET)
            assert read_reply(client, 0.05).statuses == [200]
            files.write()
            certificates.renew()


def test_a_client_that_names_no_host_gets_the_new_one_too(files: Files, served: Running) -> None:
    running, certificates, _ = served
    second = files.write()
    certificates.renew()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(connect(running)) as client:
        assert hash(client.getpeercert(binary_form=True)) == second


def test_versions_before_1_2_are_refused(files: Files, served: Running) -> None:
    running, _, first = served
    assert files.seen_by(running, ssl.TLSVersion.TLSv1_2) == first
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)), connect(running) as client:
        context.wrap_socket(client, server_hostname="localhost")


def test_a_listener_speaks_its_own_protocol(files: Files, served: Running) -> None:
    running, certificates, _ = served
    context = ssl.create_default_context()
    files.authority.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    for _ in range(2):
        with context.wrap_socket(connect(running), server_hostname="localhost") as client:
            assert client.selected_alpn_protocol() == "http/1.1"
        files.write()
        certificates.renew()


@pytest.mark.parametrize("broken", ["empty", "away", "of another", "with a passphrase"])
def test_a_server_does_not_start_with_a_pair_that_cannot_be_used(files: Files, broken: str) -> None:
    files.write(key=broken != "away")
    match broken:
        case "empty":
            files.certificate.write_bytes(b"")
        case "of another":
            files.write(key=False)
        case "with a passphrase":
            files.key.write_bytes(LOCKED)
    with pytest.raises(Misconfigured, match=r"data\.tls_certificate: cannot be used"):
        files.opened()


def test_a_plain_client_of_a_tls_port_is_told_nothing_and_hurts_nobody(files: Files, served: Running) -> None:
    running, _, first = served
    with connect(running) as client:
        client.sendall(GET)
        client.shutdown(socket.SHUT_WR)
        read_reply(client)
    assert files.seen_by(running) == first


LOCKED = b"""-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,0123456789ABCDEF0123456789ABCDEF

AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
-----END EC PRIVATE KEY-----
"""


def test_clients_of_a_new_authority_are_taken_without_a_restart(files: Files) -> None:
    files.write()
    first, second = trustme.CA(), trustme.CA()
    authority = files.folder / "clients.pem"

    def admitted(certificates: Certificates, by: trustme.CA) -> bool:
        context = ssl.create_default_context()
        files.authority.configure_trust(context)
        by.issue_cert("svc@mesh").configure_cert(context)
        with serving(tls=certificates.context) as running, connect(running) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="localhost") as client:
                    client.sendall(GET)
                    return read_reply(client, 0.05).statuses == [200]
            except OSError:
                return False

    first.cert_pem.write_to_path(str(authority))
    certificates = Certificates(str(files.certificate), str(files.key), files.clock, client_ca=str(authority))
    assert (admitted(certificates, first), admitted(certificates, second)) == (True, False)
    authority.unlink()
    second.cert_pem.write_to_path(str(authority))
    certificates.renew()
    assert (admitted(certificates, first), admitted(certificates, second)) == (False, True)
