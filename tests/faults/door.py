"""A server that wants keys, and keys of every kind to knock with (the catalogue's A)."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import count
from pathlib import Path

from tests import fixtures_onnx
from tests.faults.h2_wire import END_HEADERS, HEADERS, PREFACE, SETTINGS, Wire, frame, head
from tests.serving import Reply, Server, serving

from forwardpass.ingress.route_table import ROUTES
from forwardpass.ingress.routes import Route
from forwardpass.store.keys import Key, KeyStore, digest_of, new_id, new_secret

HTTP_ROUTES = [route for route in ROUTES if route.protocol == "http"]
CLOSED = [route for route in HTTP_ROUTES if route.scope != "open"]
REVOKED_WITHIN_S = 2.0  # promised is one, of a machine that does nothing else
RIGHT = {"infer": "infer", "read": "infer", "receipts": "receipts", "admin": "admin"}
LESS = {"infer": "jobs", "receipts": "infer", "admin": "infer"}
"""Scope of a route -> a key that has it, and one that has others."""


@dataclass
class Door:
    """A server and keys of every kind. Each request comes from an address of its own: who guesses often is told so."""

    server: Server
    data: Path
    keys: dict[str, str] = field(default_factory=dict)
    _addresses: Iterator[int] = field(default_factory=lambda: count(1))

    def create(self, name: str, tenant: str, *scopes: str, expires_s: float | None = None) -> None:
        id = new_id()
        self.keys[name] = new_secret(id)
        digest = digest_of(self.keys[name].encode())
        KeyStore(self.data).add(Key(id, tenant, frozenset(scopes), 1.0, digest, expires_s=expires_s))

    def revoke(self, name: str) -> None:
        KeyStore(self.data).revoke(self.keys[name].split("_")[1], 2.0)

    def address(self) -> str:
        number = next(self._addresses)
        return f"127.{1 + number // 65000}.{number // 250 % 250}.{number % 250 + 1}"

    @contextmanager
    def wire(self, method: str, key: str = "", timeout_s: float = 10.0) -> Iterator[Wire]:
        """A call over gRPC that is begun, on stream 1."""
        given = {"authorization": f"Bearer {self.keys.get(key, key)}"} if key else {}
        with socket.create_connection(("127.0.0.1", self.server.grpc_port), timeout_s, (self.address(), 0)) as sock:
            wire = Wire(sock)
            wire.say(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, head(path=method, **given)))
            yield wire

    def ask(
        self,
        method: str,
        path: str,
        key: str = "",
        body: bytes = b"",
        *,
        admin: bool = False,
        address: str = "",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        source = address or self.address()
        port = self.server.admin_port if admin else self.server.port
        connection = HTTPConnection("127.0.0.1", port, timeout=30, source_address=(source, 0))
        given = {"Authorization": f"Bearer {self.keys.get(key, key)}"} if key else {}
        try:
            connection.request(method, path, body or None, given | (headers or {}))
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def walk(self, route: Route, key: str = "", pipeline: str = "identity") -> Reply:
        path = path_of(route, pipeline)
        return self.ask(route.method.decode(), path, key, admin=route.plane == "admin")


def path_of(route: Route, pipeline: str = "identity") -> str:
    values = {"version": "1", "id": "0" * 32, "repository": "r", "asset": "try.js"}
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], pipeline), route.pattern)


@contextmanager
def opened(root: Path, data: Path) -> Iterator[Door]:
    """A server of two pipelines, "identity" and "add", and a key of each kind."""
    for name, graph in (("identity", fixtures_onnx.identity), ("add", fixtures_onnx.add)):
        (root / name / "1").mkdir(parents=True)
        graph(root / name / "1" / "model.onnx")
    settings = {"auth.required": "true", "grpc.serve": "on", "data.model_control": "true"}
    making = Door(None, data)  # type: ignore[arg-type]  # keys are there before the server is
    making.create("infer", "acme", "infer")
    making.create("identity", "acme", "infer:identity")
    making.create("nothing there", "acme", "infer:nothing")
    making.create("jobs", "acme", "jobs")
    making.create("receipts", "acme", "receipts")
    making.create("other", "zeta", "infer", "receipts")
    making.create("admin", "ops", "admin")
    making.create("expired", "acme", "infer", "admin", "receipts", "jobs", expires_s=2.0)
    making.create("revoked", "acme", "infer", "admin", "receipts", "jobs")
    making.revoke("revoked")
    making.keys["wrong"] = making.keys["infer"][:-1] + ("A" if making.keys["infer"][-1] != "A" else "B")
    with serving(root, data=data, settings=settings) as server:
        making.server = server
        yield making
