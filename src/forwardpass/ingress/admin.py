"""The admin plane: status, metrics, receipts, load and unload, on a listener of its own (Starlette on uvicorn).

Errors are problem details (RFC 9457). What it shows it reads from the parts at that moment; nothing reports to it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from socket import socket
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from forwardpass.core.errors import Code, Failed, Failure, Refused, show
from forwardpass.ingress.admin_border import Border, problem
from forwardpass.ingress.admin_calls import as_call
from forwardpass.ingress.dialect import Endpoint
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Match, Table, no_query, version_number
from forwardpass.ingress.routes import Route as Line
from forwardpass.observe.metrics import Metrics, Samples
from forwardpass.observe.receipts import Receipts, receipt


class Operations(Protocol):
    """What the server lets its operator do; the admin plane's only way in."""

    def why_not_ready(self) -> str:
        """ "" when every pipeline answers."""

    def status(self) -> dict[str, Any]: ...

    def config(self) -> dict[str, Any]: ...

    def samples(self) -> Samples: ...

    async def load(self, pipeline: str, number: int) -> None: ...

    async def unload(self, pipeline: str, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class AdminPlane:
    """``application`` is the ASGI application; every route comes from the one table."""

    operations: Operations
    receipts: Receipts
    metrics: Metrics
    control: Mapping[str, Endpoint]  # what the data plane may have too

    def application(self) -> Border:
        routes = [
            Route(route.pattern, self._answering(route), methods=[route.method.decode()])
            for route in routes_of("admin")
        ]
        application = Starlette(
            routes=routes, exception_handlers={Exception: _defect, Failure: _failed, 404: _unmatched, 405: _unmatched}
        )
        application.router.redirect_slashes = False  # a path has one form
        return Border(application)

    def _answering(self, route: Line) -> Callable[[Request], Awaitable[Response]]:
        shared = self.control.get(route.endpoint)
        if shared is not None:
            return as_call(shared, route)
        return _checked(route, getattr(self, f"_{route.endpoint}"))

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, request: Request) -> Response:
        why = self.operations.why_not_ready()
        if why:
            raise Failed(Code.NOT_READY, why, retry_after_s=1.0)
        return JSONResponse({"ready": True})

    async def _status(self, request: Request) -> Response:
        return JSONResponse(self.operations.status())

    async def _config(self, request: Request) -> Response:
        return JSONResponse(self.operations.config())

    async def _metrics(self, request: Request) -> Response:
        text = self.metrics.exposition(self.operations.samples())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _receipt(self, request: Request) -> Response:
        record = self.receipts.find(request.path_params["id"])
        if record is None:
            raise Refused(Code.RECEIPT_NOT_FOUND, "no receipt of this id is kept")
        return JSONResponse(receipt(record))

    async def _load(self, request: Request) -> Response:
        pipeline, number = _named(request.path_params)
        await self.operations.load(pipeline, number)
        return JSONResponse({"pipeline": pipeline, "version": number, "stage": "ready"})

    async def _unload(self, request: Request) -> Response:
        pipeline, number = _named(request.path_params)
        await self.operations.unload(pipeline, number)
        return JSONResponse({"pipeline": pipeline, "version": number, "stage": "unloaded"})


@asynccontextmanager
async def listening(application: ASGIApp, sock: socket) -> AsyncIterator[None]:
    """Serve on a bound socket while the block runs."""
    config = uvicorn.Config(
        application,
        log_config=None,
        log_level="error",  # what clients send is no warning, and would go past our log
        lifespan="off",
        access_log=False,
        timeout_graceful_shutdown=1,
        server_header=False,
        ws="none",
    )
    server = _QuietServer(config)
    serving = asyncio.create_task(server.serve([sock]))
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait((serving,))


class _QuietServer(uvicorn.Server):
    """Leaves the process's signals to the product."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _named(values: Mapping[str, str]) -> tuple[str, int]:
    return values["pipeline"], version_number(values["version"])


def _checked(
    route: Line, endpoint: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint behind the refusal of what it has no use for; health may be asked with any query."""

    async def checked(request: Request) -> Response:
        if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            raise Refused(Code.BAD_REQUEST, "this path takes no body")
        if request.url.query and route.scope != "open":
            raise no_query()
        return await endpoint(request)

    return checked


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, Failure)
    return problem(error, request.state.id)


async def _defect(request: Request, error: Exception) -> Response:
    return problem(Failed(Code.INTERNAL, "the server failed on this request"), request.state.id)


async def _unmatched(request: Request, error: Exception) -> Response:
    """No such path, or not by this method: then it is told those of the table."""
    allowed = Table(routes_of("admin")).match(request.method.encode(), request.scope["path"])
    if isinstance(allowed, Match) or not allowed:
        return problem(Refused(Code.ROUTE_NOT_FOUND, "there is nothing at this path"), request.state.id)
    names = b", ".join(dict.fromkeys(allowed)).decode()
    text = f"this path takes {names}, not {show(request.method)}"
    response = problem(Refused(Code.METHOD_NOT_ALLOWED, text), request.state.id)
    response.headers["Allow"] = names
    return response
