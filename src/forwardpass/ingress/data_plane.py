"""The data plane over HTTP: an HttpRequest to its route's endpoint or dialect and back. One of the borders that end exceptions."""

import logging
import re
from collections.abc import Mapping, Sequence

from forwardpass.core.clock import RandomIds
from forwardpass.core.errors import Code, Failed, Failure, Refused, show
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialect import Call, Dialect, Endpoint, by_path
from forwardpass.ingress.dialects.envelope import apply_headers, trace_header, trace_of
from forwardpass.ingress.inference import Inference, off_loop
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX, Family, Match, Route, Table
from forwardpass.ingress.status import error_answer
from forwardpass.rollout.variant import Variant

_CLIENT_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")
_log = logging.getLogger("forwardpass.ingress")


class DataPlane:
    """``respond`` is what the HTTP protocol calls.

    Every route has its name in ``dialects`` or ``endpoints``; ``enabled`` are the settings that are on and that a
    route may need.
    """

    def __init__(
        self,
        inference: Inference,
        routes: Sequence[Route],
        dialects: Mapping[str, Dialect],
        endpoints: Mapping[str, Endpoint],
        enabled: frozenset[str] = frozenset(),
    ) -> None:
        missing = {route.endpoint for route in routes} - dialects.keys() - endpoints.keys()
        assert not missing, f"routes without an endpoint: {missing}"
        self._inference = inference
        self._table = Table(routes)
        self._dialects = dialects
        self._endpoints = endpoints
        self._enabled = enabled
        self._ids = RandomIds()

    async def respond(self, http: HttpRequest) -> HttpAnswer:
        """Every request gets an answer; what went wrong on our side is logged with its detail."""
        id = self._ids.next()
        family: Family = _family(http.path)
        trace = trace_of(http.headers)
        try:
            match = self._table.match(http.method, http.path)
            if isinstance(match, Match):
                family = match.route.family
                answer = await self._matched(Call(http, match, id, Timeline(http.received_s), trace))
            else:
                self._inference.outside[Code.METHOD_NOT_ALLOWED if match else Code.ROUTE_NOT_FOUND] += 1
                answer = _no_route(http, match, family, id)
        except Failure as failure:
            answer = error_answer(failure, family, id)
            if isinstance(failure, Failed):
                event = {"request": id, "code": failure.code.value, "detail": failure.detail, "path": show(http.path)}
                _log.warning("request failed", extra={"event": event})
            # Its frames hold the request's bytes, and it stands in one of them: let go of them now, not at a collection.
            failure.__traceback__ = failure.__context__ = None
        except Exception:  # a border: a defect of ours costs this request only
            _log.exception("request failed by a defect", extra={"event": {"request": id, "path": show(http.path)}})
            answer = error_answer(Failed(Code.INTERNAL, "the server failed on this request"), family, id)
        if not answer.headers or answer.headers[0][0] != b"X-Request-Id":
            answer.headers.insert(0, (b"X-Request-Id", id.encode()))
        if trace is not None:
            answer.headers.append(trace_header(trace))
        client_id = http.headers.get(b"x-request-id")
        if client_id is not None and _CLIENT_ID.fullmatch(client_id):
            answer.headers.append((b"X-Client-Request-Id", client_id))
        return answer

    async def _matched(self, call: Call) -> HttpAnswer:
        route = call.match.route
        try:
            self._check(call.http, route)
            dialect = self._dialects.get(route.endpoint)
            if dialect is None:
                answer = await self._endpoints[route.endpoint](call)
                self._inference.outside["ok"] += 1
                return answer
            size = len(call.http.body)
            # A path is read at once: from here to the answer the version must not be unloaded.
            target = by_path(call) if dialect.target is by_path else await off_loop(size, dialect.target, call)
        except BaseException as error:
            self._inference.count(error)
            raise

        def decode(variant: Variant) -> Request:
            request = dialect.decode(call, variant.signature)
            apply_headers(request, call.http)
            request.trace = call.trace
            return request

        def encode(answer: Answer, request: Request) -> HttpAnswer:
            return dialect.encode(answer, request, call)

        return await self._inference.run(target, size, decode, encode)

    def _check(self, http: HttpRequest, route: Route) -> None:
        """Raises Refused for a route that is off, and for a body that it does not take."""
        if route.needs and route.needs not in self._enabled:
            raise Refused(Code.FORBIDDEN, f"this is switched off; the setting {route.needs} switches it on")
        if http.body and route.body != "large":
            if route.body == "none":
                raise Refused(Code.BAD_REQUEST, "this path takes no body")
            if len(http.body) > SMALL_BODY_BYTES_MAX:
                text = f"the body has {len(http.body)} bytes; at most {SMALL_BODY_BYTES_MAX} are allowed here"
                raise Refused(Code.BODY_TOO_LARGE, text)


def _family(path: str) -> Family:
    """Whose clients ask for what is no route."""
    return "predict" if path.startswith("/predict") else "openai" if path.startswith("/v1/") else "v2"


def _no_route(http: HttpRequest, allowed: Sequence[bytes], family: Family, id: str) -> HttpAnswer:
    if not allowed:
        return error_answer(Refused(Code.ROUTE_NOT_FOUND, "there is nothing at this path"), family, id)
    names = b", ".join(dict.fromkeys(allowed))
    text = f"this path takes {names.decode()}, not {show(http.method.decode('latin-1'))}"
    answer = error_answer(Refused(Code.METHOD_NOT_ALLOWED, text), family, id)
    answer.headers.append((b"Allow", names))
    return answer
