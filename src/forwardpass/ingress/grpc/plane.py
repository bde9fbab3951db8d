"""The data plane over gRPC: a call's bytes to its endpoint or to inference and back. One of the borders that end exceptions."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from forwardpass.core.clock import Clock, RandomIds
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.dialects.envelope import (
    DEADLINE_S_MAX,
    answer_headers,
    apply_headers,
    trace_header,
    trace_of,
)
from forwardpass.ingress.grpc.decoding import decode_infer, final_asked, target_of
from forwardpass.ingress.grpc.description import METHODS, Described, members
from forwardpass.ingress.grpc.encoding import GrpcAnswer, encode_infer, failed, trailing
from forwardpass.ingress.grpc.messages import Message, classes, parse_error
from forwardpass.ingress.inference import Inference, off_loop
from forwardpass.ingress.message import Headers, HttpRequest
from forwardpass.ingress.routes import Match, Route
from forwardpass.rollout.variant import Variant

INFER = "ModelInfer"
STREAM = "ModelStreamInfer"
_log = logging.getLogger("forwardpass.ingress")
Result = TypeVar("Result")


class GrpcCall(msgspec.Struct):
    """One call as the protocol hands it over. Names of ``headers``, its metadata, are in lower case."""

    method: str  # its full name, "/service/method"
    headers: Mapping[bytes, bytes]
    remaining_s: Callable[[], float | None]  # until the client's deadline; None = it has none

    @property
    def name(self) -> str:
        return self.method.rpartition("/")[2]


class GrpcPlane:
    """``respond`` and ``infer`` are what the protocol calls, for the methods that are lines of the route table."""

    def __init__(
        self,
        inference: Inference,
        routes: Sequence[Route],
        endpoints: Mapping[str, Endpoint],
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
        self._clock = clock
        self._enabled = enabled
        self._ids = RandomIds()
        self._classes = classes()
        self._malformed = parse_error()

    async def respond(self, call: GrpcCall, body: bytes) -> GrpcAnswer:
        """Every call gets an answer; what went wrong on our side is logged with its detail."""
        id = self._ids.next()
        work = self._inferred(call, body, id) if call.name == INFER else self._described(call, body, id)
        answer = await self.outcome(work, id, call)
        return failed(answer, id) if isinstance(answer, Failure) else answer

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

    async def parsed(self, name: str, body: bytes) -> Message:
        """Raises Refused for bytes that are no message of that name."""
        try:
            return await off_loop(len(body), self._classes[name].FromString, body)
        except self._malformed:
            raise Refused(Code.BAD_REQUEST, f"the bytes are no {name}") from None

    async def infer(
        self, call: GrpcCall, message: Message, size: int, id: str, wrap: Callable[[Message], Message]
    ) -> tuple[bytes, Headers]:
        """The answer of one request, as ``wrap`` packs it, and its metadata. Raises the Failure that ended it."""
        timeline = Timeline(self._clock())
        try:
            remaining_s = call.remaining_s()
            if remaining_s is not None and remaining_s <= 0:
                raise Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the request was here")
            final = final_asked(message)
            target = target_of(message.model_name, message.model_version)
        except Failure as failure:
            self._inference.count(failure)
            raise
        trace = trace_of(call.headers)

        def decode(variant: Variant) -> Request:
            request = decode_infer(message, variant.signature, id, timeline)
            apply_headers(request, HttpRequest(b"POST", call.method, "", call.headers, b"", timeline.received))
            if remaining_s is not None:
                given_s = DEADLINE_S_MAX if request.deadline_s is None else request.deadline_s
                request.deadline_s = min(given_s, remaining_s)
            request.trace = trace
            return request

        def encode(answer: Answer, request: Request) -> tuple[bytes, Headers]:
            headers = answer_headers(request.id, answer.version, request.sequence)
            if trace is not None:
                headers.append(trace_header(trace))
            return wrap(encode_infer(answer, request, final=final)).SerializeToString(), headers

        return await self._inference.run(target, size, decode, encode)

    async def _inferred(self, call: GrpcCall, body: bytes, id: str) -> GrpcAnswer:
        try:
            message = await self.parsed("ModelInferRequest", body)
        except BaseException as error:
            self._inference.count(error)
            raise
        answer, headers = await self.infer(call, message, len(body), id, lambda response: response)
        return GrpcAnswer(answer, trailing(headers))

    async def _described(self, call: GrpcCall, body: bytes, id: str) -> GrpcAnswer:
        method = METHODS[call.name]
        try:
            answer = await self._described_members(call, body, id, method)
        except BaseException as error:
            self._inference.count(error)
            raise
        self._inference.outside["ok"] += 1
        from google.protobuf.json_format import ParseDict

        response = ParseDict(answer, self._classes[method.response](), ignore_unknown_fields=True)
        return GrpcAnswer(response.SerializeToString(), [(b"x-request-id", id.encode())])

    async def _described_members(self, call: GrpcCall, body: bytes, id: str, method: Described) -> Mapping[str, object]:
        route = self.routes[call.method]
        if route.needs and route.needs not in self._enabled:
            raise Refused(Code.FORBIDDEN, f"this is switched off; the setting {route.needs} switches it on")
        message = await self.parsed(method.request, body)
        given = method.body(message)
        text = b"" if given is None else msgspec.json.encode(given)
        now_s = self._clock()
        http = HttpRequest(route.method, call.method, "", call.headers, text, now_s)
        asked = Call(http, Match(route, method.values(message)), id, Timeline(now_s), trace_of(call.headers))
        try:
            return method.answer(members(await self._endpoints[route.endpoint](asked)))
        except Failure as failure:
            instead = method.failed(failure)
            if instead is None:
                raise
            return instead
