"""A data plane with four routes of its own and nothing behind them, for what holds whatever the route."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from forwardpass.core.clock import FakeClock
from forwardpass.ingress.data_plane import DataPlane
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import Route
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.route import Routes

ROUTES = (
    Route(b"POST", "/infer/{pipeline}", "infer", "infer", "", family="openai", body="large"),
    Route(b"POST", "/stream/{pipeline}", "infer", "infer", "", body="large", streams=True),
    Route(b"GET", "/about", "about", "read", ""),
    Route(b"GET", "/live", "live", "open", ""),
)
Answering = Callable[[Call], Awaitable[HttpAnswer]]


@dataclass
class SmallPlane:
    """``answering`` is what /infer and /stream do; each of its calls is counted in ``runs``."""

    edge: Edge
    answering: Answering
    clock: FakeClock = field(default_factory=FakeClock)
    runs: int = 0

    def __post_init__(self) -> None:
        routes = Routes()
        handle = Handle(routes, 30.0, self.clock, receipts=Receipts(), metrics=Metrics())
        self.inference = Inference(handle, self.clock)
        endpoints = {"infer": self._infer, "about": self._about, "live": self._about}
        self.plane = DataPlane(self.inference, ROUTES, {}, endpoints, edge=self.edge)

    async def _infer(self, call: Call) -> HttpAnswer:
        self.runs += 1
        return await self.answering(call)

    async def _about(self, call: Call) -> HttpAnswer:
        return HttpAnswer(200, b"{}")

    async def asked(
        self,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        method: bytes = b"POST",
        path: str = "/infer/p",
        peer: str = "",
        query: str = "",
    ) -> HttpAnswer:
        lower = {b"host": b"localhost:8000"} | {k.lower().encode(): v.encode() for k, v in (headers or {}).items()}
        encoding = lower.get(b"content-encoding", b"")
        return await self.plane.respond(HttpRequest(method, path, query, lower, body, self.clock(), peer, encoding))

    def ask(
        self,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        method: bytes = b"POST",
        path: str = "/infer/p",
        peer: str = "",
        query: str = "",
    ) -> HttpAnswer:
        return asyncio.run(self.asked(body, headers, method=method, path=path, peer=peer, query=query))


async def counting(call: Call) -> HttpAnswer:
    """An answer that says how long the body was."""
    return HttpAnswer(200, b"%d" % len(call.http.body))


def headers_of(answer: HttpAnswer) -> dict[str, str]:
    """By lower-case name; several of a name joined as a client reads them."""
    found: dict[str, str] = {}
    for name, value in answer.headers:
        key = name.decode().lower()
        found[key] = f"{found[key]}, {value.decode()}" if key in found else value.decode()
    return found
