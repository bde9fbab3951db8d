"""A real server in a real process for tests, and the small ways to talk to it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

START_LIMIT_S = 60.0
FRONTS = int(os.environ.get("FORWARDPASS_TEST_FRONTS", "1"))
"""Processes that listen, where a test does not say: whole files are run with more than one too (make test)."""


@dataclass(slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.headers.get("x-error-code", "")


@dataclass(slots=True)
class Server:
    """Addresses and the process; every call opens its own connection unless it says otherwise."""

    process: "subprocess.Popen[bytes]"
    port: int
    admin_port: int
    log: Path
    output: list[str] = field(default_factory=list)
    grpc_port: int = 0  # served when the settings say grpc.serve

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        admin: bool = False,
    ) -> Reply:
        connection = HTTPConnection("127.0.0.1", self.admin_port if admin else self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, *, admin: bool = False) -> Reply:
        return self.call("GET", path, admin=admin)

    def predict(self, pipeline: str, fields: Mapping[str, Any], **headers: str) -> Reply:
        given = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        return self.call("POST", f"/predict/{pipeline}", json.dumps(fields).encode(), given)

    def infer(self, pipeline: str, name: str, datatype: str, shape: Sequence[int], data: Sequence[Any]) -> Reply:
        tensor = {"name": name, "datatype": datatype, "shape": list(shape), "data": list(data)}
        return self.call("POST", f"/v2/models/{pipeline}/infer", json.dumps({"inputs": [tensor]}).encode())

    def together(self, calls: int, one: Any) -> list[Any]:
        """``one(n)`` for every n, each in a thread of its own, at the same time."""
        with ThreadPoolExecutor(calls) as pool:
            return list(pool.map(one, range(calls)))

    def status(self) -> Any:
        return self.get("/status", admin=True).json

    def version(self, pipeline: str) -> Any:
        return next(v for v in self.status()["versions"] if v["pipeline"] == pipeline)

    def batches(self, pipeline: str) -> list[dict[str, Any]]:
        batches: list[dict[str, Any]] = self.get(f"/v2/models/{pipeline}/batches").json["batches"]
        return batches

    def worker_pids(self, pipeline: str) -> list[int]:
        return [worker["pid"] for worker in self.version(pipeline)["workers"] if worker["pid"]]

    def resident_bytes(self) -> int:
        """Of the server and all its workers."""
        pids = [self.process.pid, *(w["pid"] for v in self.status()["versions"] for w in v["workers"] if w["pid"])]
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 for pid in pids)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


def wait_until(true: Any, limit_s: float = 30.0) -> float:
    """Seconds until ``true()`` holds; fails the test when it does not within the limit."""
    started = time.monotonic()
    while not true():
        if time.monotonic() - started > limit_s:
            raise AssertionError(f"still not so after {limit_s} s")
        time.sleep(0.02)
    return time.monotonic() - started


def command(*arguments: str | Path) -> list[str]:
    grpc = ("--grpc-port", "0") if arguments[0] == "serve" and "--grpc-port" not in arguments else ()
    return [sys.executable, "-m", "forwardpass", *map(str, arguments), *grpc]


def forwardpass(*arguments: str | Path, data: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run one command of the product to its end."""
    return subprocess.run(
        [*command(*arguments), "--set", f"run.data={data}"], capture_output=True, text=True, timeout=120, check=check
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(
    *sources: Path,
    data: Path,
    ready: bool = True,
    settings: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Iterator[Server]:
    """A server over these sources; ended at the end of the block, by force if it must be.

    ``file`` is a server.toml, for what must not stand on a command line.
    """
    port, admin_port, grpc_port = free_port(), free_port(), free_port()
    values = {"run.data": data, "run.ready_grace_s": 0.0, "run.drain_s": 10.0, "grpc.serve": "off", **(settings or {})}
    if FRONTS > 1:
        values = {"run.fronts": FRONTS, **values}
    ports = ("--port", str(port), "--admin-port", str(admin_port), "--grpc-port", str(grpc_port))
    sets = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    sets += ["--settings", str(file)] if file else []
    data.mkdir(parents=True, exist_ok=True)
    log = data / f"server-{port}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command("serve", *sources, *ports, *sets),
            stdout=sink,
            stderr=sink,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
    server = Server(process, port, admin_port, log, grpc_port=grpc_port)
    try:
        wait_until(lambda: process.poll() is not None or _listens(server, ready), START_LIMIT_S)
        if ready:
            assert process.poll() is None, log.read_text()
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(server: Server, ready: bool) -> bool:
    try:
        up = server.get("/ready" if ready else "/live", admin=True).status == 200
        fronts = server.status().get("fronts", ()) if up and FRONTS > 1 else ()  # strangers are not told
        return up and all(front["state"] == "ready" for front in fronts)
    except OSError:
        return False
