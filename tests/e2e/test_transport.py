"""How requests and answers travel, with real clients: compression, pages of other origins, certificates, Unix sockets,
repeated requests, and limits of rate."""

import gzip
import json
import signal
import socket
import ssl
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from tests.serving import Server, serving, wait_until

PAGE = "https://app.example"
ROWS = 4000
LARGE: dict[str, Any] = {
    "id": "a",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [ROWS, 4], "data": [1.5] * (4 * ROWS)}],
}


@dataclass(frozen=True)
class Transport:
    """A server with everything switched on that is off otherwise."""

    server: Server
    authority: trustme.CA
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "x.sock"

    def client(self) -> httpx.Client:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return httpx.Client(base_url=f"https://localhost:{self.server.port}", verify=context, timeout=30)

    def curl(self, *arguments: str) -> bytes:
        return subprocess.run(["curl", "-sS", *arguments], capture_output=True, check=True, timeout=30).stdout

    def shown(self) -> bytes:
        """The certificate that a new client is shown."""
        with self.client() as client, client.stream("GET", "/v2/health/live") as answer:
            found = answer.extensions["network_stream"].get_extra_info("ssl_object").getpeercert(True)
            assert isinstance(found, bytes)
            return found


def issue(authority: trustme.CA, folder: Path) -> None:
    """A certificate and its key, written as a renewal does: each file replaced."""
    issued = authority.issue_cert("localhost")
    pem = {"server.pem": issued.cert_chain_pems[0].bytes(), "server.key": issued.private_key_pem.bytes()}
    for name, content in pem.items():
        (folder / "new").write_bytes(content)
        (folder / "new").replace(folder / name)


@pytest.fixture(scope="module")
def transport(repository: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transport]:
    folder, authority = tmp_path_factory.mktemp("transport"), trustme.CA()
    issue(authority, folder)
    settings = {
        "data.tls_certificate": folder / "server.pem", "data.tls_key": folder / "server.key",
        "data.unix_socket": folder / "x.sock", "data.cors_origins": json.dumps([PAGE]),
        "limits.idempotency_ttl_s": 600,
    }  # fmt: skip
    with serving(repository / "identity", repository / "own", data=data, settings=settings) as server:
        yield Transport(server, authority, folder)


@pytest.mark.parametrize(("coding", "unpack"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_a_large_answer_is_compressed_for_whoever_accepts_it(transport: Transport, coding: str, unpack: object) -> None:
    with transport.client() as client:
        packed = client.post("/v2/models/identity/infer", json=LARGE, headers={"Accept-Encoding": coding})
        plain = client.post("/v2/models/identity/infer", json=LARGE, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == coding and "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 10


def test_the_header_length_of_a_binary_answer_means_the_body_once_unpacked(transport: Transport) -> None:
    body = LARGE | {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    with transport.client() as client:
        answer = client.post("/v2/models/identity/infer", json=body, headers={"Accept-Encoding": "gzip"})
    length = int(answer.headers["inference-header-content-length"])
    assert answer.headers["content-encoding"] == "gzip"
    output = json.loads(answer.content[:length])["outputs"][0]
    assert len(answer.content) - length == output["parameters"]["binary_data_size"] == 16 * ROWS


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_request_is_unpacked(transport: Transport, coding: str) -> None:
    plain = json.dumps(LARGE).encode()
    packed = gzip.compress(plain) if coding == "gzip" else zlib.compress(plain)
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    with transport.client() as client:
        answer = client.post("/v2/models/identity/infer", content=packed, headers=headers)
    assert (answer.status_code, answer.json()["outputs"][0]["shape"]) == (200, [ROWS, 4])


def test_curl_unpacks_what_it_is_sent_through_the_unix_socket(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "body").write_text(json.dumps(LARGE))
    url = "http://localhost/v2/models/identity/infer"
    said = transport.curl(
        "--compressed", "--unix-socket", str(transport.path), "-H", "Content-Type: application/json", "--data-binary",
        f"@{tmp_path / 'body'}", url,
    )  # fmt: skip
    assert json.loads(said)["outputs"][0]["data"] == LARGE["inputs"][0]["data"]
    assert transport.path.stat().st_mode & 0o777 == 0o600


def test_a_page_of_a_named_origin_may_ask_and_no_other(transport: Transport) -> None:
    asking = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    with transport.client() as client:
        preflight = client.options("/predict/own", headers=asking)
        mine = client.post("/predict/own", json={"x": [1, 2]}, headers={"Origin": PAGE})
        other = client.post("/predict/own", json={"x": [1, 2]}, headers={"Origin": "https://evil.example"})
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (204, "content-type")
    assert set(preflight.headers["access-control-allow-methods"].split(", ")) == {"POST", "DELETE"}
    assert (mine.status_code, mine.headers["access-control-allow-origin"]) == (200, PAGE)
    assert (other.status_code, other.json()["error"]["code"]) == (403, "forbidden")


def test_a_page_of_a_host_that_was_rebound_to_this_machine_unloads_nothing(repository: Path, data: Path) -> None:
    settings = {"data.model_control": "true", "data.hosts": json.dumps(["localhost", "127.0.0.1", "Named.Example"])}
    path = "/v2/repository/models/identity/unload"
    with serving(repository / "identity", data=data, settings={"data.model_control": "true"}) as server:
        rebound = server.call("POST", path, headers={"Host": "evil.example", "Origin": "http://evil.example"})
        assert (rebound.status, rebound.code) == (421, "misdirected")
        own = server.call("POST", "/v2/repository/index", headers={"Origin": f"http://127.0.0.1:{server.port}"})
        assert own.status == 200 and own.json[0]["state"] == "READY"
    with serving(repository / "identity", data=data, settings=settings) as server:
        named = {"Host": "named.example", "Origin": "https://named.example"}
        assert server.call("POST", path, headers=named).status == 200


def test_sigterm_waits_for_no_idle_tls_connection(repository: Path, data: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    issue(authority, tmp_path)
    settings = {"data.tls_certificate": tmp_path / "server.pem", "data.tls_key": tmp_path / "server.key"}
    with serving(repository / "identity", data=data, settings=settings) as server:
        client_tls = ssl.create_default_context()
        authority.configure_trust(client_tls)
        idle = socket.create_connection(("127.0.0.1", server.port))
        with client_tls.wrap_socket(idle, server_hostname="localhost"):
            server.terminate()
            assert wait_until(lambda: server.process.poll() is not None) < 8  # run.drain_s is 10


def test_the_operator_may_hang_up_or_ask_for_a_web_socket_and_nothing_is_logged(repository: Path, data: Path) -> None:
    with serving(repository / "identity", data=data) as server:
        wait_until(lambda: "ready: identity" in server.log.read_text())  # it answers a moment before it says so
        before = server.log.read_text()
        asked = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\n"
        for rest in (b"Content-Length: 100\r\n\r\n{", b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.admin_port)) as client:
                client.sendall(asked + rest)
        wait_until(lambda: server.get("/live", admin=True).status == 200)
        assert server.log.read_text() == before


def test_a_repeated_request_is_run_once(transport: Transport) -> None:
    before = transport.server.version("own")["outcomes"].get("ok", 0)
    with transport.client() as client:
        answers = [
            client.post("/predict/own", json={"x": [1, 2]}, headers={"Idempotency-Key": '"same"'}) for _ in range(3)
        ]
        other = client.post("/predict/own", json={"x": [1, 3]}, headers={"Idempotency-Key": '"same"'})
    assert {answer.text for answer in answers} == {answers[0].text} and answers[0].json()["outputs"] == {"y": 3.0}
    assert [answer.headers.get("idempotency-replayed") for answer in answers] == [None, "true", "true"]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 1
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_mismatch")
    assert transport.server.version("own")["outcomes"]["ok"] == before + 1


def test_fifty_of_the_same_at_once_are_run_once(transport: Transport) -> None:
    before = transport.server.version("own")["outcomes"].get("ok", 0)
    with transport.client() as client:

        def one(_: int) -> int:
            headers = {"Idempotency-Key": "at-once"}
            return client.post("/predict/own", json={"x": [1200, 0]}, headers=headers).status_code

        statuses = transport.server.together(50, one)
        assert one(0) == 200
    assert set(statuses) <= {200, 409} and 200 in statuses
    assert transport.server.version("own")["outcomes"]["ok"] == before + 1


def test_certificates_are_read_again_on_sighup(transport: Transport) -> None:
    before = transport.shown()
    issue(transport.authority, transport.folder)
    transport.server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: transport.shown() != before, 4.0)


def test_a_broken_certificate_changes_nothing_and_is_logged(transport: Transport) -> None:
    before = transport.shown()
    (transport.folder / "server.pem").write_text("broken")
    transport.server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the new certificate cannot be used" in transport.server.log.read_text())
    assert transport.shown() == before
    issue(transport.authority, transport.folder)


def test_a_unix_socket_outlives_a_killed_server_but_not_one_that_ends(
    repository: Path, data: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.sock"
    settings = {"data.unix_socket": path, "data.unix_socket_mode": "0660"}
    with serving(repository / "identity", data=data, settings=settings) as first:
        first.process.kill()
        first.process.wait()
    assert path.is_socket()
    with serving(repository / "identity", data=data, settings=settings):
        assert path.stat().st_mode & 0o777 == 0o660
        with serving(repository / "identity", data=data, settings=settings, ready=False) as second:
            assert second.process.wait(20) != 0
        assert "another server listens there" in second.log.read_text()
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://localhost/v2/health/live").json() == {"live": True}
    assert not path.exists()


def test_a_caller_over_its_rate_is_told_when_to_come_back(repository: Path, data: Path) -> None:
    settings = {"limits.requests_per_minute": 3}
    with serving(repository / "identity", data=data, settings=settings) as server:
        answers = [server.get("/v2/models/identity") for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        assert (answers[3].code, answers[3].headers["ratelimit-policy"]) == ("rate_limited", '"default";q=3;w=60')
        assert 1 <= int(answers[3].headers["retry-after"]) <= 20
        assert all(server.get("/v2/health/ready").status == 200 for _ in range(5))
