"""The data plane over gRPC: a call's bytes to its endpoint or to inference and back. One of the borders that end exceptions."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from forwardpass.core.caller import Caller
from forwardpass.core.clock import Clock, RandomIds
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.off_loop import off_loop
from forwardpass.core.request import Answer, Request, Trace
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.dialects.caching import cache_headers
from forwardpass.ingress.dialects.envelope import (
    DEADLINE_S_MAX,
    answer_headers,
    apply_headers,
    client_id_header,
    guard_header,
    trace_header,
    trace_of,
)
from forwardpass.ingress.edge import Edge, allow
from forwardpass.ingress.grpc.decoding import InferCall, decode_infer, final_asked, target_of, without_raw
from forwardpass.ingress.grpc.description import METHODS, Described, members
from forwardpass.ingress.grpc.encoding import GrpcAnswer, encode_infer, failed, trailing
from forwardpass.ingress.grpc.large_fields import Buffers
from forwardpass.ingress.grpc.messages import Message, classes, parse_error
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import Headers, HttpAnswer, HttpRequest
from forwardpass.ingress.routes import Match, Route
from forwardpass.rollout.variant import Variant

INFER = "ModelInfer"
STREAM = "ModelStreamInfer"
_log = logging.getLogger("forwardpass.ingress")
Result = TypeVar("Result")
Body = bytes | bytearray
Unpack = Callable[[], Awaitable[Body]]
"""The call's message, once it is known that it may ask. Raises Failure."""


class GrpcCall(msgspec.Struct):
    """One call as the protocol hands it over: ``http`` is its head, without a body."""

    http: HttpRequest
    remaining_s: Callable[[], float | None]  # until the client's deadline; None = it has none

    @property
    def method(self) -> str:
        """Its full name, /service/method."""
        return self.http.path

    @property
    def name(self) -> str:
        return self.http.path.rpartition("/")[2]


class GrpcPlane:
    """``respond`` and ``infer`` are what the protocol calls, for the methods that are lines of the route table."""

    def __init__(
        self,
        inference: Inference,
        routes: Sequence[Route],
        endpoints: Mapping[str, Endpoint],
        edge: Edge,
        clock: Clock,
        enabled: frozenset[str] = frozenset(),
    ) -> None:
        self.routes = {route.pattern: route for route in routes}
        names = {route.pattern.rpartition("/")[2]: route.endpoint for route in routes}
        described = {name: endpoint for name, endpoint in names.items() if name not in (INFER, STREAM)}
        assert described.keys() <= METHODS.keys(), f"routes that are no methods: {described.keys() - METHODS.keys()}"
        assert set(described.values()) <= endpoints.keys(), "routes without an endpoint"
        self._inference = inference
        self._endpoints = endpoints
        self._edge = edge
        self._clock = clock
        self._enabled = enabled
        self._ids = RandomIds()
        self._classes = classes()
        self._malformed = parse_error()

    async def respond(self, call: GrpcCall, unpack: Unpack) -> GrpcAnswer:
        """Every call gets an answer; what went wrong on our side is logged with its detail."""
        id, trace = self._ids.next(), trace_of(call.http.headers)
        work = self._inferred(call, unpack, id, trace) if call.name == INFER else self._described(call, unpack, id)
        try:
            answer = await self.outcome(work, id, call)
        finally:
            call.http.leave()
        ended = failed(answer, id) if isinstance(answer, Failure) else answer
        return ended._replace(metadata=[*ended.metadata, *trailing(self._marks(call, trace))])

    async def outcome(self, work: Awaitable[Result], id: str, call: GrpcCall) -> Result | Failure:
        """What the work gives, or the Failure that ended it, whatever it raised."""
        try:
            return await work
        except Failure as failure:
            if isinstance(failure, Failed):
                event = {"request": id, "code": failure.code.value, "detail": failure.detail, "path": call.method}
                _log.warning("request failed", extra={"event": event})
            failure.__traceback__ = failure.__context__ = None  # its frames hold the request's bytes
            return failure
        except Exception:  # a border: a defect of ours costs this request only
            _log.exception("request failed by a defect", extra={"event": {"request": id, "path": call.method}})
            return Failed(Code.INTERNAL, "the server failed on this request")

    def count(self, failure: Failure) -> None:
        """A request ended before any pipeline knew of it."""
        self._inference.count(failure)

    def refused(self, failure: Failure) -> GrpcAnswer:
        """The end of a call that broke the protocol's rules or bounds, counted."""
        self._inference.count(failure)
        return failed(failure, self._ids.next())

    async def parsed(self, body: Body) -> InferCall:
        """Raises Refused for bytes that are no ModelInferRequest."""
        rest, raw = without_raw(body)
        message = await self._message("ModelInferRequest", rest)
        return InferCall(message, message.raw_input_contents if raw is None else raw, len(body))

    async def infer(
        self,
        call: GrpcCall,
        asked: InferCall,
        id: str,
        wrap: Callable[[Buffers], Buffers],
        trace: Trace | None,
        caller: Caller,
    ) -> tuple[Buffers, Headers]:
        """The answer of one request, as ``wrap`` packs it, and who gave it. Raises the Failure that ended it.

        That it may ask is known: see ``admit``.
        """
        timeline, remaining_s = Timeline(self._clock()), call.remaining_s()
        try:
            message = asked.message
            final = final_asked(message)
            target = target_of(message.model_name, message.model_version)
        except Failure as failure:
            self._inference.count(failure)
            raise

        def decode(variant: Variant) -> Request:
            request = decode_infer(asked, variant.signature, id, timeline)
            apply_headers(request, call.http)
            if remaining_s is not None:
                given_s = DEADLINE_S_MAX if request.deadline_s is None else request.deadline_s
                request.deadline_s = min(given_s, remaining_s)
            request.trace, request.caller = trace, caller
            return request

        def encode(answer: Answer, request: Request) -> tuple[Buffers, Headers]:
            headers = answer_headers(request.id, answer.version, request.sequence) + guard_header(answer)
            headers += cache_headers(answer, request)
            return wrap(encode_infer(answer, request, final=final)), headers

        return await self._inference.run(target, asked.size, decode, encode, caller, call.http.admission)

    async def unknown(self, call: GrpcCall) -> Failure | None:
        """Why nobody is known to ask, if so: looked at with every message of a stream, which ends then."""
        try:
            await self._edge.identify(call.http)
        except Failure as failure:
            return failure
        return None

    async def screen(self, call: GrpcCall) -> Failure | None:
        """Why a message that is not small need not come in, if so; ``admit`` looks again once it is here."""
        return await self.outcome(self._screened(call), self._ids.next(), call)

    async def _screened(self, call: GrpcCall) -> None:
        await self._edge.screen(call.http, self.routes[call.method])

    async def admit(self, call: GrpcCall) -> Caller:
        """Who asks. Raises Failure for a client that waits no more, or may not ask."""
        remaining_s = call.remaining_s()
        if remaining_s is not None and remaining_s <= 0:
            raise Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the request was here")
        if b"idempotency-key" in call.http.headers:
            raise Refused(Code.UNKNOWN_FIELD, "Idempotency-Key has no meaning over gRPC", field="idempotency-key")
        return await self._edge.admit(call.http, self.routes[call.method])

    def _marks(self, call: GrpcCall, trace: Trace | None) -> list[tuple[bytes, bytes]]:
        """What every answer says beside who gave it."""
        marked = HttpAnswer(200, headers=client_id_header(call.http.headers))
        if trace is not None:
            marked.headers.append(trace_header(trace))
        self._edge.mark(marked, call.http, self.routes[call.method], "v2")
        return marked.headers

    async def _message(self, name: str, body: Body) -> Message:
        try:
            return await off_loop(len(body), self._classes[name].FromString, body)
        except self._malformed:
            raise Refused(Code.BAD_REQUEST, f"the bytes are no {name}") from None

    async def _inferred(self, call: GrpcCall, unpack: Unpack, id: str, trace: Trace | None) -> GrpcAnswer:
        try:
            caller = await self.admit(call)
            asked = await self.parsed(await unpack())
        except BaseException as error:
            self._inference.count(error)
            raise
        answer, headers = await self.infer(call, asked, id, lambda response: response, trace, caller)
        return GrpcAnswer(answer, trailing(headers))

    async def _described(self, call: GrpcCall, unpack: Unpack, id: str) -> GrpcAnswer:
        method = METHODS[call.name]
        try:
            answer = await self._described_members(call, unpack, id, method)
        except BaseException as error:
            self._inference.count(error)
            raise
        self._inference.outside["ok"] += 1
        from google.protobuf.json_format import ParseDict

        response = ParseDict(answer, self._classes[method.response](), ignore_unknown_fields=True)
        return GrpcAnswer((response.SerializeToString(),), [(b"x-request-id", id.encode())])

    async def _described_members(
        self, call: GrpcCall, unpack: Unpack, id: str, method: Described
    ) -> Mapping[str, object]:
        caller = await self.admit(call)
        route = self.routes[call.method]
        if route.needs and route.needs not in self._enabled:
            raise Refused(Code.FORBIDDEN, f"this is switched off; the setting {route.needs} switches it on")
        message = await self._message(method.request, await unpack())
        given = method.body(message)
        text = b"" if given is None else msgspec.json.encode(given)
        now_s = self._clock()
        http = msgspec.structs.replace(call.http, method=route.method, body=text, received_s=now_s)
        match = Match(route, method.values(message))
        allow(caller, route.scope, match.pipeline)
        asked = Call(http, match, id, Timeline(now_s), caller=caller)
        try:
            return method.answer(members(await self._endpoints[route.endpoint](asked)))
        except Failure as failure:
            instead = method.failed(failure)
            if instead is None:
                raise
            return instead
