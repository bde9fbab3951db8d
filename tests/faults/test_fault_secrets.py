"""One canary in every place where a secret can be, and then a look everywhere it could have got to (R17, R18, O6)."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.faults.faulty import settle, write_own
from tests.serving import Reply, Server, forwardpass, serving, wait_until

CANARY = "C4n4ryF00d"
NAMES = (
    "key", "bearer", "jwt", "api_key", "basic", "redis", "body", "query", "header", "path", "client_id", "request_id",
    "idempotency", "file", "environment", "user_agent", "cookie", "trace",
)  # fmt: skip
MARKS = {name: f"{CANARY}{number:02}{name.replace('_', '')}" for number, name in enumerate(NAMES)}
DEFINITION = """
[[inputs]]
name = "text"
type = "text"

[[steps]]
use = "steps:told"
output = "result"
datatype = "BYTES"
"""
CODE = """
import os


def told(text: str) -> str:
    if text.startswith("fail"):
        raise RuntimeError(f"cannot do {text}")
    if text.startswith("end"):
        os._exit(7)
    return text
"""
SETTINGS = """
[auth]
required = true

[run]
redis = "redis://app:{redis}@127.0.0.1:1/0"

[[quotas]]
tenant = "*"
requests_per_s = 1000
"""


class Guarded:
    """A server that asks who is there, and the key of somebody who may do everything."""

    def __init__(self, server: Server, key: str, data: Path) -> None:
        self.server, self.key, self.data = server, key, data

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        return self.server.call(method, path, body or None, self._with(headers))

    def admin(self, path: str, **headers: str) -> Reply:
        return self.server.call("GET", path, None, self._with(headers), admin=True)

    def _with(self, headers: Mapping[str, str]) -> dict[str, str]:
        given = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        return given | {name.replace("_", "-"): value for name, value in headers.items()}

    def ask(self, text: str, **headers: str) -> Reply:
        return self.call("POST", "/predict/told", json.dumps({"text": text}).encode(), **headers)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    root, data, safe = (tmp_path_factory.mktemp(name) for name in ("models", "data", "settings"))
    write_own(root / "told" / "1", DEFINITION, CODE)
    settle(root)
    forwardpass("trust", root, data=data)
    scopes = [part for scope in ("infer", "receipts", "admin") for part in ("--scope", scope)]
    key = forwardpass("keys", "create", "--tenant", "t", *scopes, data=data).stdout
    found = re.search(r"fp_\w{8}_[\w-]{43}", key)
    assert found, key
    file = safe / "server.toml"
    file.write_text(SETTINGS.format(redis=MARKS["redis"]))
    settings = {"data.model_control": "true"}
    environment = {"DATABASE_PASSWORD": MARKS["environment"]}
    with serving(root, data=data, file=file, settings=settings, environment=environment) as server:
        yield Guarded(server, found[0], data)


def multipart(name: str) -> bytes:
    head = f'Content-Disposition: form-data; name="text"; filename="{name}"\r\nContent-Type: text/plain\r\n'
    return f"--B\r\n{head}\r\nfail {MARKS['body']}\r\n--B--\r\n".encode()


def send_everything(guarded: Guarded) -> list[Reply]:
    """A canary in each place of requests that succeed, fail, are refused and end the worker."""
    jwt = f"eyJhbGciOiJIUzI1NiJ9.eyJ0IjoxfQ.{MARKS['jwt']}"
    more = {
        "X_Secret": MARKS["header"],
        "X_Request_Id": MARKS["request_id"],
        "Idempotency_Key": MARKS["idempotency"],
        "User_Agent": MARKS["user_agent"],
        "Cookie": f"session={MARKS['cookie']}",
        "tracestate": f"a={MARKS['trace']}",
    }
    texts = [f"{how} {MARKS['body']}" for how in ("right", "fail", "end")]
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [f"fail {MARKS['body']}"]}
    message = json.dumps({"id": MARKS["client_id"], "inputs": [tensor]}).encode()
    form = {"Content_Type": "multipart/form-data; boundary=B"}
    guarded.call("POST", "/v2/logging", b'{"log_verbose_level": 0}')
    return [
        *(guarded.ask(text, **{**more, "Idempotency_Key": f"{MARKS['idempotency']}{text[:3]}"}) for text in texts),
        guarded.call("POST", "/v2/models/told/infer", message, **more),
        guarded.call("POST", "/predict/told", multipart(MARKS["file"]), **form),
        guarded.call("POST", f"/predict/told?secret={MARKS['query']}", b'{"text": "a"}'),
        guarded.call("POST", "/predict/told?receipt=full", json.dumps({"text": f"fail {MARKS['body']}"}).encode()),
        guarded.call("POST", f"/predict/{MARKS['path']}", b'{"text": "a"}'),
        guarded.call("GET", f"/nothing/{MARKS['path']}"),
        guarded.ask("a", Authorization=f"Bearer fp_k1k2k3k4_{MARKS['key']}"),
        guarded.ask("a", Authorization=f"Bearer {jwt}"),
        guarded.ask("a", Authorization=f"Bearer {MARKS['bearer']}"),
        guarded.ask("a", Authorization=f"Basic {MARKS['basic']}"),
        guarded.admin("/status", Authorization=f"Bearer fp_k1k2k3k4_{MARKS['key']}"),
        guarded.server.call("GET", "/v2/models/told", None, {"X-API-Key": MARKS["api_key"]}),
    ]


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def sinks(guarded: Guarded, replies: list[Reply]) -> Mapping[str, bytes]:
    """Everything that somebody else than the one who sent it can read."""
    server = guarded.server
    found = {path: guarded.admin(path).body for path in ("/status", "/metrics", "/config")}
    found |= {
        path: guarded.call("GET", path).body for path in ("/v2/models/told/batches", "/v2/models/told/stats", "/v2")
    }
    for reply in replies:
        id = reply.headers["x-request-id"]
        found[f"receipt {id}"] = guarded.admin(f"/receipts/{id}").body
    found["log"] = server.log.read_bytes()
    found["command line of the server"] = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    workers = children(server.process.pid)
    assert workers
    for pid in workers:
        for name in ("cmdline", "environ"):
            found[f"{name} of a worker"] = Path(f"/proc/{pid}/{name}").read_bytes()
    files = [path for path in guarded.data.rglob("*") if path.is_file()]
    found |= {str(path.relative_to(guarded.data)): path.read_bytes() for path in files}
    return found


def test_a_secret_is_found_nowhere_but_in_the_answer_to_whoever_sent_it(guarded: Guarded) -> None:
    replies = send_everything(guarded)
    assert {reply.status for reply in replies} >= {200, 401, 404, 500}
    wait_until(lambda: all(worker["pid"] for worker in guarded_status(guarded)))
    secrets = {**MARKS, "the key": guarded.key, "the key's secret": guarded.key.rsplit("_", 1)[1]}
    told = sinks(guarded, replies)
    assert b"request failed" in told["log"] and b"RuntimeError" in told["log"]
    assert [
        (where, name) for where, text in told.items() for name, mark in secrets.items() if mark.encode() in text
    ] == []


def guarded_status(guarded: Guarded) -> list[dict[str, object]]:
    status = guarded.admin("/status").json
    return [worker for version in status["versions"] for worker in version["workers"]]


def test_an_answer_repeats_only_what_its_contract_says(guarded: Guarded) -> None:
    """A right answer repeats the text, a V2 answer its id; an error names what was wrong, escaped and cut."""
    for reply in send_everything(guarded):
        told = {name for name, mark in MARKS.items() if mark.encode() in reply.body}
        assert told <= ({"body"} if reply.status == 200 else {"path", "query"}), reply.body


def test_the_settings_are_shown_without_passwords(guarded: Guarded, tmp_path: Path) -> None:
    assert guarded.admin("/config").json["run"]["redis"] == "redis://***@127.0.0.1:1/0"
    (tmp_path / "server.toml").write_text(SETTINGS.format(redis=MARKS["redis"]))
    told = forwardpass("config", "--settings", tmp_path / "server.toml", data=tmp_path).stdout
    assert 'redis = "redis://***@127.0.0.1:1/0"' in told and CANARY not in told


@pytest.mark.parametrize("line", ["redis = [ 'x://a:{}@b' ]", "redis = 'http://a:{}@b'", "reids = 'redis://a:{}@b'"])
def test_a_setting_that_is_refused_is_told_without_its_password(tmp_path: Path, line: str) -> None:
    (tmp_path / "server.toml").write_text(f"[run]\n{line.format(MARKS['redis'])}\n")
    done = forwardpass("config", "--settings", tmp_path / "server.toml", data=tmp_path, check=False)
    assert done.returncode == 2
    assert CANARY not in done.stdout + done.stderr


def test_a_process_that_dies_leaves_no_core_file_behind(guarded: Guarded) -> None:
    """Of the server and of its workers: memory holds what was sent."""
    for pid in (guarded.server.process.pid, *children(guarded.server.process.pid)):
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"Max core file size +0 +0 ", limits), limits
    before = set(os.listdir())
    guarded.ask("end once more")
    assert {name for name in set(os.listdir()) - before if "core" in name} == set()
