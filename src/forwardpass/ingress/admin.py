"""The admin plane: status, metrics, receipts, load and unload, on a listener of its own (Starlette on uvicorn).

Errors are problem details (RFC 9457). What it shows it reads from the parts at that moment; nothing reports to it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from socket import socket
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.status import STATUSES, problem_body
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

    def application(self) -> Starlette:
        routes = [
            Route(route.pattern, self._guarded(getattr(self, f"_{route.endpoint}")), methods=[route.method.decode()])
            for route in routes_of("admin")
        ]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"], www_redirect=False)
        return Starlette(routes=routes, middleware=[hosts], exception_handlers={404: _not_found, 405: _not_allowed})

    def _guarded(self, endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                _refuse_foreign(request)
                return await endpoint(request)
            except Failure as failure:
                return problem(failure)

        return guarded

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


def problem(failure: Failure) -> Response:
    """A failure as application/problem+json."""
    status = STATUSES[failure.code]
    headers = {"X-Error-Code": failure.code.value}
    if failure.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(failure.retry_after_s)))
    body = problem_body(failure, status)
    return Response(json.dumps(body), status, headers, "application/problem+json")


@asynccontextmanager
async def listening(application: Starlette, sock: socket) -> AsyncIterator[None]:
    """Serve on a bound socket while the block runs."""
    config = uvicorn.Config(
        application, log_config=None, lifespan="off", access_log=False, timeout_graceful_shutdown=1, server_header=False
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


def _refuse_foreign(request: Request) -> None:
    """A page of another site may make a browser send requests here; they carry its origin. Raises Refused."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise Refused(Code.FORBIDDEN, "requests from pages of other origins are refused")


def _named(values: Mapping[str, str]) -> tuple[str, int]:
    text = values["version"]
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise Refused(Code.VERSION_NOT_FOUND, "versions are numbers")
    return values["pipeline"], int(text)


async def _not_found(request: Request, error: Exception) -> Response:
    return problem(Refused(Code.ROUTE_NOT_FOUND, "there is nothing at this path"))


async def _not_allowed(request: Request, error: Exception) -> Response:
    response = problem(Refused(Code.METHOD_NOT_ALLOWED, "this path takes another method"))
    response.headers["Allow"] = (getattr(error, "headers", None) and error.headers.get("Allow", "")) or ""  # type: ignore[attr-defined]  # Starlette's HTTPException
    return response
