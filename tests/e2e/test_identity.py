"""Keys, tokens and certificates of clients at one real server, asked by real client libraries."""

import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trustme
from cryptography import x509
from tests import fixtures_onnx
from tests.grpc_calls import Channel, infer_request
from tests.ingress.issuer import AUDIENCE, ISSUER, Issuer, issuing
from tests.serving import Server, command, free_port, serving, wait_until

from forwardpass import client
from forwardpass.store.keys import FILE, Key, KeyStore, digest_of, new_id, new_secret


def add(store: KeyStore, *scopes: str, subject: str = "") -> str:
    id = new_id()
    secret = new_secret(id)
    digest = b"" if subject else digest_of(secret.encode())
    store.add(Key(id, "acme", frozenset(scopes), 1.0, digest, subject=subject))
    return secret


@dataclass
class Secured:
    """A server with TLS that takes keys, an issuer's tokens, and certificates of ``authority``'s clients."""

    server: Server
    store: KeyStore
    data: Path
    key: str
    issuer: Issuer
    authority: trustme.CA
    known: trustme.LeafCert
    unknown: trustme.LeafCert

    def trusting(self, shown: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if shown is not None:
            shown.configure_cert(context)
        return context

    def status(self, shown: trustme.LeafCert | None = None, **headers: str) -> int:
        url = f"https://localhost:{self.server.port}/v2/models/identity"
        with httpx.Client(verify=self.trusting(shown)) as asking:
            return asking.get(
                url, headers={name.replace("_", "-"): value for name, value in headers.items()}
            ).status_code

    def channel(self, shown: trustme.LeafCert | None) -> Channel:
        root = self.authority.cert_pem.bytes()
        key = shown.private_key_pem.bytes() if shown else None
        chain = b"".join(blob.bytes() for blob in shown.cert_chain_pems) if shown else None
        return Channel(self.server.grpc_port, grpc.ssl_channel_credentials(root, key, chain))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    root, data = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("data")
    (root / "identity" / "1").mkdir(parents=True)
    fixtures_onnx.identity(root / "identity" / "1" / "model.onnx")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(data / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(data / "server.pem"))
    known, unknown = (authority.issue_cert(f"{name}@mesh", common_name=name) for name in ("svc", "other"))
    subject = x509.load_pem_x509_certificate(known.cert_chain_pems[0].bytes()).subject.rfc4514_string()
    store = KeyStore(data)
    key = add(store, "infer:identity")
    add(store, "infer:identity", subject=subject)
    with issuing() as issuer:
        auth = {"required": "true", "jwks": f"{issuer.url}/jwks", "issuer": ISSUER, "audience": AUDIENCE}
        settings: dict[str, Any] = {f"auth.{name}": value for name, value in auth.items()}
        settings |= {"auth.client_ca": data / "ca.pem", "grpc.serve": "on"}
        settings |= {"data.tls_certificate": data / "server.pem", "data.tls_key": data / "server.pem"}
        with serving(root, data=data, settings=settings) as server:
            yield Secured(server, store, data, key, issuer, authority, known, unknown)


def test_a_key_counts_with_and_without_a_certificate(secured: Secured) -> None:
    assert secured.status(Authorization=f"Bearer {secured.key}") == 200
    assert secured.status(secured.unknown, X_API_Key=secured.key) == 200
    assert secured.status() == 401


def test_a_certificate_of_a_known_subject_counts_without_a_key(secured: Secured) -> None:
    assert [secured.status(shown) for shown in (secured.known, secured.unknown)] == [200, 401]
    assert secured.status(secured.known, Authorization="Bearer wrong") == 401


def test_a_certificate_of_somebody_else_s_authority_ends_the_handshake(secured: Secured) -> None:
    foreign = trustme.CA().issue_cert("svc@mesh", common_name="svc")
    with pytest.raises(httpx.TransportError):
        secured.status(foreign)


def test_certificates_count_over_grpc_too(secured: Secured) -> None:
    asked = infer_request("identity", "x", "FP32", [1, 4], bytes(16))
    opened = secured.channel(secured.known)
    assert opened.infer(asked).model_name == "identity"
    opened.raw.close()
    for shown in (secured.unknown, None):
        opened = secured.channel(shown)
        with pytest.raises(grpc.RpcError) as refused:
            opened.infer(asked)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        opened.raw.close()


def test_a_token_of_the_issuer_counts(secured: Secured) -> None:
    right, narrow = secured.issuer.token(), secured.issuer.token("ES256", scope="infer:add")
    old = secured.issuer.token(exp=1_000_000_000)
    assert [secured.status(Authorization=f"Bearer {token}") for token in (right, narrow, old)] == [200, 403, 401]


def test_the_client_sends_the_key_it_is_given_or_finds(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    url, transport = f"https://localhost:{secured.server.port}", httpx.HTTPTransport(verify=secured.trusting())
    monkeypatch.delenv("FORWARDPASS_KEY", raising=False)
    with client.Client(url, transport=transport) as nobody, pytest.raises(client.RequestError) as refused:
        nobody.metadata("identity")
    assert refused.value.code == "unauthenticated"
    with client.Client(url, key=secured.key, transport=httpx.HTTPTransport(verify=secured.trusting())) as given:
        assert given.metadata("identity")["name"] == "identity"
    monkeypatch.setenv("FORWARDPASS_KEY", secured.key)
    with client.Client(url, transport=httpx.HTTPTransport(verify=secured.trusting())) as found:
        assert found.metadata("identity")["name"] == "identity"


def test_the_document_says_how_to_say_who_asks(secured: Secured) -> None:
    url = f"https://localhost:{secured.server.port}/openapi.json"
    document = httpx.get(url, verify=secured.trusting(), headers={"X-API-Key": secured.key}).json()
    assert {scheme["type"] for scheme in document["components"]["securitySchemes"].values()} == {"http", "apiKey"}
    assert document["security"] == [{name: []} for name in document["components"]["securitySchemes"]]
    assert document["paths"]["/v2/health/live"]["get"]["security"] == []
    assert "security" not in document["paths"]["/v2/models"]["get"]
    assert "401" in document["paths"]["/v2/models"]["get"]["responses"]


def test_a_store_that_is_away_takes_no_key_with_it(secured: Secured) -> None:
    (secured.data / FILE).rename(secured.data / "away")
    wait_until(lambda: b"store of keys cannot be read" in secured.server.log.read_bytes())
    assert secured.status(Authorization=f"Bearer {secured.key}") == 200
    (secured.data / "away").rename(secured.data / FILE)
    wait_until(lambda: b"store of keys is read again" in secured.server.log.read_bytes())
    new = add(secured.store, "infer")
    wait_until(lambda: secured.status(Authorization=f"Bearer {new}") == 200)


def test_the_admin_plane_that_others_can_reach_has_tls_and_wants_a_key(secured: Secured, tmp_path: Path) -> None:
    root = tmp_path / "models" / "identity" / "1"
    root.mkdir(parents=True)
    fixtures_onnx.identity(root / "model.onnx")
    admin = add(KeyStore(tmp_path), "admin")
    pem, port = secured.data / "server.pem", free_port()
    settings = {
        "run.ready_grace_s": 0,
        "auth.required": "true",
        "admin.host": "0.0.0.0",
        "data.tls_certificate": pem,
        "data.tls_key": pem,
    }
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    ports = ("--port", "0", "--admin-port", str(port), "--set", f"run.data={tmp_path}")
    with subprocess.Popen(command("serve", root, *ports, *sets), stderr=subprocess.DEVNULL) as process:
        url = f"https://localhost:{port}"
        with httpx.Client(verify=secured.trusting()) as asking:
            wait_until(lambda: _answers(asking, f"{url}/ready"))
            assert asking.get(f"{url}/status").status_code == 401
            assert asking.get(f"{url}/status", headers={"X-API-Key": admin}).status_code == 200
        process.terminate()


def _answers(asking: httpx.Client, url: str) -> bool:
    try:
        return asking.get(url).status_code == 200
    except httpx.TransportError:
        return False
