"""The data plane over HTTP: an HttpRequest to its route's endpoint or dialect and back. One of the borders that end exceptions."""

import logging
from collections.abc import Mapping, Sequence

from forwardpass.core.caller import Caller
from forwardpass.core.clock import RandomIds
from forwardpass.core.errors import Code, Failed, Failure, Refused, show
from forwardpass.core.off_loop import off_loop
from forwardpass.core.request import Answer, Request, Trace
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.compression import compress
from forwardpass.ingress.dialect import Call, Dialect, Endpoint, by_path
from forwardpass.ingress.dialects.caching import cache_headers
from forwardpass.ingress.dialects.envelope import apply_headers, client_id_header, guard_header, trace_header, trace_of
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.idempotency import KeptAnswers, fingerprint, key_of
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX, Family, Match, Route, Table, no_query
from forwardpass.ingress.status import error_answer
from forwardpass.rollout.variant import Variant

_log = logging.getLogger("forwardpass.ingress")


class DataPlane:
    """``respond`` and ``screen`` are what the HTTP protocol calls.

    Every route has its name in ``dialects`` or ``endpoints``; ``enabled`` are the settings that are on and that a
    route may need. ``border`` is the form of what is refused before a route's own clients are asked; without, theirs.
    """

    def __init__(
        self,
        inference: Inference,
        routes: Sequence[Route],
        dialects: Mapping[str, Dialect],
        endpoints: Mapping[str, Endpoint],
        enabled: frozenset[str] = frozenset(),
        edge: Edge | None = None,
        border: Family | None = None,
    ) -> None:
        missing = {route.endpoint for route in routes} - dialects.keys() - endpoints.keys()
        assert not missing, f"routes without an endpoint: {missing}"
        self.inference = inference
        self._table = Table(routes)
        self._dialects = dialects
        self._endpoints = endpoints
        self._enabled = enabled
        self._edge = Edge() if edge is None else edge
        self._border = border
        self._ids = RandomIds()

    async def respond(self, http: HttpRequest) -> HttpAnswer:
        """Every request gets an answer; what went wrong on our side is logged with its detail."""
        id = self._ids.next()
        trace = trace_of(http.headers)
        match = self._table.match(http.method, http.path)
        route = match.route if isinstance(match, Match) else None
        family = self.family_of(http.method, http.path) if route is None else self._border or route.family
        try:
            if isinstance(match, Match):
                caller = await self._admit(http, match.route, match.pipeline)
                family = match.route.family
                kept = self._accept(http, match.route)
                if http.encoding:
                    await self._unpack(http, match.route)
                call = Call(http, match, id, Timeline(http.received_s), trace, caller)
                answer = await self._matched(call) if kept is None else await self._once(call, kept)
                self._edge.watch(answer, caller)
            else:
                await self._admit(http, None)
                answer = self._unmatched(http, match, family, id)
        except Exception as error:  # a border: a defect of ours costs this request only
            answer = told(error, http, route, family, id)
        finally:
            http.leave()
        self.mark(answer, http, route, family, id, trace)
        if self._edge.compresses(answer, http):
            await compress(answer, http.headers.get(b"accept-encoding"))
        return answer

    async def screen(self, http: HttpRequest) -> HttpAnswer | None:
        """The answer to a request whose body need not come in, as nobody who is known asks, or may; None where it may.

        It is asked for with the head alone, before a body that is not small; ``respond`` looks again once it is here.
        """
        match = self._table.match(http.method, http.path)
        route, pipeline = (match.route, match.pipeline) if isinstance(match, Match) else (None, "")
        try:
            await self._edge.screen(http, route, pipeline)
            return None
        except Exception as error:  # a border, as ``respond`` is
            self.inference.count(error)
            id, family = self._ids.next(), self.family_of(http.method, http.path)
            answer = told(error, http, route, family, id)
        self.mark(answer, http, route, family, id, trace_of(http.headers))
        return answer

    def mark(
        self, answer: HttpAnswer, http: HttpRequest, route: Route | None, family: Family, id: str, trace: Trace | None
    ) -> None:
        """Add what every answer says, an error too."""
        _name(answer, id)
        if trace is not None:
            answer.headers.append(trace_header(trace))
        answer.headers += client_id_header(http.headers)
        self._edge.mark(answer, http, route, family)

    def plain(self, http: HttpRequest) -> tuple[Match, Dialect] | None:
        """Who reads requests with this head; None for what is answered otherwise than by one plain answer to its caller.

        What is left out here ``respond`` does before and after it asks the dialect.
        """
        match = self._table.match(http.method, http.path)
        if not isinstance(match, Match) or http.encoding or b"idempotency-key" in http.headers:
            return None
        route, dialect = match.route, self._dialects.get(match.route.endpoint)
        if dialect is None or dialect.target is not by_path or route.scope != "infer" or route.body != "large":
            return None
        refused = route.streams or (route.needs and route.needs not in self._enabled) or http.method != route.method
        return None if refused or self._border is not None else (match, dialect)

    def family_of(self, method: bytes, path: str) -> Family:
        """Whose clients ask there, also where nothing answers."""
        return self._border or self._table.family(method, path)

    async def _admit(self, http: HttpRequest, route: Route | None, pipeline: str = "") -> Caller:
        """Who asks. Nothing is done with a body before that."""
        try:
            return await self._edge.admit(http, route, pipeline)
        except BaseException as error:
            self.inference.count(error)
            raise

    def _accept(self, http: HttpRequest, route: Route) -> KeptAnswers | None:
        """Where the answer of a request that its route takes is kept, if it is."""
        try:
            self._check(http, route)
            return self._edge.keeps(http, route)
        except BaseException as error:
            self.inference.count(error)
            raise

    async def _unpack(self, http: HttpRequest, route: Route) -> None:
        try:
            await self._edge.unpack(http, route)
        except BaseException as error:
            self.inference.count(error)
            raise

    async def _once(self, call: Call, kept: KeptAnswers) -> HttpAnswer:
        """The answer of the first request with this key, or this one's. Whatever ends it otherwise frees the key."""
        try:
            key = key_of(call.http.headers[b"idempotency-key"])
            asked = await off_loop(len(call.http.body), fingerprint, call.http)
            again = kept.begin(call.caller.peers, key, asked)
        except BaseException as error:
            self.inference.count(error)
            raise
        if again is not None:
            self.inference.outside["replayed"] += 1
            return again
        answer = None
        try:
            answer = await self._matched(call)
            _name(answer, call.id)  # the answer given again names the request that was run
            return answer
        finally:
            kept.end(call.caller.peers, key, answer if call.repeatable else None)

    async def _matched(self, call: Call) -> HttpAnswer:
        route = call.match.route
        try:
            dialect = self._dialects.get(route.endpoint)
            if dialect is None:
                answer = await self._endpoints[route.endpoint](call)
                self.inference.outside["ok"] += 1
                return answer
            work = dialect.work(call.http)
            # A path is read at once: from here to the answer the version must not be unloaded.
            target = by_path(call) if dialect.target is by_path else await off_loop(work, dialect.target, call)
        except BaseException as error:
            self.inference.count(error)
            raise

        def decode(variant: Variant) -> Request:
            request = dialect.decode(call, variant.signature)
            apply_headers(request, call.http)
            request.trace, request.caller = call.trace, call.caller
            return request

        def encode(answer: Answer, request: Request) -> HttpAnswer:
            call.repeatable = all(isinstance(failure, Refused) for failure in answer.failures.values())
            encoded = dialect.encode(answer, request, call)
            encoded.headers += guard_header(answer) + cache_headers(answer, request)
            return encoded

        return await self.inference.run(target, work, decode, encode, call.caller, call.http.admission)

    def _unmatched(self, http: HttpRequest, allowed: Sequence[bytes], family: Family, id: str) -> HttpAnswer:
        answer = self._edge.origins.preflight(http, allowed)
        if answer is None:
            answer = _no_route(http, allowed, family, id)
            self.inference.outside[Code.METHOD_NOT_ALLOWED if allowed else Code.ROUTE_NOT_FOUND] += 1
        else:
            self.inference.outside["ok"] += 1
        return answer

    def _check(self, http: HttpRequest, route: Route) -> None:
        """Raises Refused for a route that is off, and for a query or a body that it does not take.

        Dialects look at their queries themselves; health is for everybody who asks, however it is asked.
        """
        if http.query and route.scope != "open" and route.endpoint not in self._dialects:
            raise no_query()
        if route.needs and route.needs not in self._enabled:
            raise Refused(Code.FORBIDDEN, f"this is switched off; the setting {route.needs} switches it on")
        if http.body and route.body != "large":
            if route.body == "none":
                raise Refused(Code.BAD_REQUEST, "this path takes no body")
            if len(http.body) > SMALL_BODY_BYTES_MAX:
                text = f"the body has {len(http.body)} bytes; at most {SMALL_BODY_BYTES_MAX} are allowed here"
                raise Refused(Code.BODY_TOO_LARGE, text)


def told(error: Exception, http: HttpRequest, route: Route | None, family: Family, id: str) -> HttpAnswer:
    """The answer to a request that ended so; what went wrong on our side is logged."""
    if not isinstance(error, Failure):
        _log.error(
            "request failed by a defect", exc_info=error, extra={"event": {"request": id, "path": show(http.path)}}
        )
        return error_answer(Failed(Code.INTERNAL, "the server failed on this request"), family, id)
    if isinstance(error, Failed) and (route is None or route.scope != "open"):  # health says it all itself
        event = {"request": id, "code": error.code.value, "detail": error.detail, "path": show(http.path)}
        _log.warning("request failed", extra={"event": event})
    # Its frames hold the request's bytes, and it stands in one of them: let go of them now, not at a collection.
    error.__traceback__ = error.__context__ = None
    return error_answer(error, family, id)


def _name(answer: HttpAnswer, id: str) -> None:
    if not answer.headers or answer.headers[0][0] != b"X-Request-Id":
        answer.headers.insert(0, (b"X-Request-Id", id.encode()))


def _no_route(http: HttpRequest, allowed: Sequence[bytes], family: Family, id: str) -> HttpAnswer:
    if not allowed:
        return error_answer(Refused(Code.ROUTE_NOT_FOUND, "there is nothing at this path"), family, id)
    names = b", ".join(dict.fromkeys(allowed))
    text = f"this path takes {names.decode()}, not {show(http.method.decode('latin-1'))}"
    answer = error_answer(Refused(Code.METHOD_NOT_ALLOWED, text), family, id)
    answer.headers.append((b"Allow", names))
    return answer
