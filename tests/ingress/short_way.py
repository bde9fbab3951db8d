"""A data plane over real sockets in the test's own loop, its worker a thread: what many clients send at once is one pass.

``SUMS`` doubles rows of two numbers and sums them; a row that begins with 13 fails, with 14 has a note, with 7 waits
until ``gate`` is open. Each execution is kept in ``executed``, as its number of rows.
"""

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Input, Pipeline, Step, Version
from forwardpass.execution.local import LocalWorker
from forwardpass.ingress.data_plane import DataPlane
from forwardpass.ingress.dialects.table import DIALECTS
from forwardpass.ingress.direct import Direct
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.http_server import HttpServer
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest
from forwardpass.ingress.route_table import routes_of
from forwardpass.rollout.variant import Variant
from forwardpass.steps.kind import Kind
from forwardpass.steps.own import Own
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared
from forwardpass.trial import Trial, trial

STEP = "steps:sums"
PATH = "/v2/models/p/infer"
FAILS, NOTED, WAITS = 13, 14, 7
WIDTH = 24


@dataclass
class Sums:
    """The step, and what it has been asked."""

    gate: threading.Event = field(default_factory=threading.Event)
    executed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()

    def run(self, batch: Batch) -> None:
        x = batch.columns["x"]
        self.executed.append(batch.rows)
        for row in np.flatnonzero(x[:, 0] == FAILS):
            batch.fail(int(row), Refused(Code.IMAGE_INVALID, "13"))
        for row in np.flatnonzero(x[:, 0] == NOTED):
            batch.note(int(row), "seen", {"x": NOTED})
        if (x[:, 0] == WAITS).any():
            assert self.gate.wait(10), "nobody opened the gate"
        batch.columns["double"], batch.columns["sum"] = x * 2, x.sum(axis=1).astype("f8")

    def kind(self) -> Kind[Own]:
        def load(options: Own, known: FieldMap, context: Context) -> Prepared:
            return self.run

        fields = [Field("double", "FP32", (2,)), Field("sum", "FP64")]
        return Kind(STEP, Own, lambda options, known: fields, load)


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def sum(self) -> float:
        value: float = self.json["outputs"][1]["data"][0]
        return value

    @property
    def told(self) -> tuple[int, dict[str, str], bytes]:
        """All that the client sees, with one id in place of the request's own."""
        id = self.headers["x-request-id"]
        return self.status, {**self.headers, "x-request-id": "ID"}, self.body.replace(id.encode(), b"ID")


class Client:
    """One connection. What is sent stands in the server's socket before the loop looks again."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self._here = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    async def answer(self) -> Answered:
        """The next one. Raises ConnectionError where the server ends instead."""
        while b"\r\n\r\n" not in self._here:
            await self._more()
        head, _, _ = self._here.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        size = len(head) + 4 + int(length[1] if length else 0)
        while len(self._here) < size:
            await self._more()
        body, self._here = self._here[len(head) + 4 : size], self._here[size:]
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return Answered(int(first.split(" ")[1]), headers, body)

    async def ended(self) -> bool:
        """Whether nothing more came before the server's end."""
        try:
            await self._more()
        except ConnectionError:
            return not self._here
        return False

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """The way of a process that died."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    async def _more(self) -> None:
        piece = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 1 << 16), 10)
        if not piece:
            raise ConnectionError("the server ended")
        self._here += piece


def numbers(x: Sequence[float]) -> bytes:
    """The text of a V2 body for one row of these; all are of one length, so that their heads are alike."""
    return body_of(json.dumps([*x])[1:-1].encode())


def body_of(middle: bytes) -> bytes:
    """The same with this for its list of numbers."""
    data = middle.ljust(WIDTH)
    return b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[%b]}]}' % data


def request(body: bytes, *headers: str, path: str = PATH, method: str = "POST", version: str = "1.1") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass
class Running:
    """The server, what is behind it, and the ways to ask it."""

    server: HttpServer
    plane: DataPlane
    trial: Trial
    sums: Sums
    clients: list[Client] = field(default_factory=list)

    @property
    def variant(self) -> Variant:
        return self.trial.variant

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(self.trial.handle.books.metrics.outcomes("p", 1))

    @property
    def left_over(self) -> tuple[int, int, int, int]:
        """What counts as running or held: nothing, once all is answered."""
        return self.variant.running, self.server.running, self.server.in_flight.held, self.variant.queue.rows

    def client(self) -> Client:
        port = self.server.listeners.port
        assert port is not None
        self.clients.append(Client(port))
        return self.clients[-1]

    async def known(self, count: int, *headers: str, path: str = PATH) -> list[Client]:
        """Clients whose head and body are known, to a version whose pace is."""
        clients = [self.client() for _ in range(count)]
        for _ in range(3):
            for client in clients:
                client.send(request(numbers([1.0, 2.0]), *headers, path=path))
                assert (await client.answer()).status == 200
        for _ in range(100):  # whatever this machine is at besides
            self.variant.forecast.model.observe(1.0, 1e-6)
        self.sums.executed.clear()
        return clients

    async def together(self, asked: Sequence[tuple[Client, bytes]]) -> list[Answered]:
        """Sent in one pass of the loop, and what each was answered."""
        for client, data in asked:
            client.send(data)
        return [await client.answer() for client, _ in asked]

    async def settled(self) -> None:
        """Until nothing runs any more."""
        for _ in range(2000):
            if self.left_over == (0, 0, 0, 0):
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"still left over: {self.left_over}")


@asynccontextmanager
async def running(
    folder: Path,
    edge: Edge | None = None,
    limits: HttpLimits | None = None,
    definition: Pipeline | None = None,
    deadline_s: float = 10.0,
    short: bool = True,
) -> AsyncIterator[Running]:
    """With ``short`` off every request goes the long way."""
    sums, limits = Sums(), limits or HttpLimits()
    edge = edge or Edge(limits=limits)
    version = Version("p", 1, "0" * 64, str(folder), definition or pipeline(), trusted=True)
    make = partial(LocalWorker, own={STEP: sums.kind()})
    async with trial(version, threads=1, deadline_s=deadline_s, make_worker=make) as made:
        inference = Inference(made.handle, monotonic_s)
        routes = [route for route in routes_of("data") if route.endpoint in DIALECTS]
        plane = DataPlane(inference, routes, DIALECTS, {}, edge=edge)
        server = HttpServer(plane.respond, plane.family_of, limits, monotonic_s, origins=edge.origins)
        if short:
            server.begin = Direct(plane, edge, monotonic_s).begin
        with socket.create_server(("127.0.0.1", 0), backlog=512) as sock:
            sock.setblocking(False)
            await server.start(sock=sock)
            asks = Running(server, plane, made, sums)
            try:
                yield asks
            finally:
                sums.gate.set()
                for client in asks.clients:
                    client.close()
                await server.drain(1.0)


def pipeline(**changes: Any) -> Pipeline:
    made = Pipeline(
        (Step(STEP, {"output": "double", "datatype": "FP32"}),), (Input("x", "tensor", datatype="FP32", shape=(2,)),)
    )
    return replace(made, **changes)


async def long_way(asks: Running, body: bytes, headers: dict[bytes, bytes] | None = None) -> HttpAnswer:
    """What ``DataPlane.respond`` says."""
    given = {b"host": b"localhost", **(headers or {})}
    return await asks.plane.respond(HttpRequest(b"POST", PATH, "", given, body, monotonic_s()))
