"""The endpoints of the data plane: an HttpRequest to the handle and back. One of the three borders that end exceptions."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable

import orjson

from forwardpass.core.clock import Clock, RandomIds
from forwardpass.core.errors import Code, Failed, Failure, Refused, show
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects import predict, v2, v2_answer, v2_metadata
from forwardpass.ingress.dialects.envelope import answer_headers
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import Match, Table
from forwardpass.ingress.status import Dialect, error_answer
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.variant import Variant

OFF_LOOP_BYTES_MIN = 256 * 1024  # parsing or printing more than this would hold up everybody else
_CLIENT_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")
_log = logging.getLogger("forwardpass.ingress")

Endpoint = Callable[[HttpRequest, Match, str], Awaitable[HttpAnswer]]
Decode = Callable[..., Request]
Encode = Callable[[Answer, Request], HttpAnswer]


class DataPlane:
    """``respond`` is what the HTTP protocol calls; ``why_not_ready`` answers "" when every pipeline answers."""

    def __init__(self, handle: Handle, why_not_ready: Callable[[], str], product_version: str, clock: Clock) -> None:
        self.outside: Counter[str] = Counter()  # ends of requests that reached no pipeline: "ok" or an error code
        self._handle = handle
        self._why_not_ready = why_not_ready
        self._product_version = product_version
        self._clock = clock
        self._table = Table("data")
        self._ids = RandomIds()
        self._inference: dict[str, tuple[Decode, Encode]] = {
            "v2_infer": (v2.decode_infer, v2_answer.encode_infer),
            "predict": (predict.decode, predict.encode),
        }
        self._endpoints: dict[str, Endpoint] = {
            "live": self._live,
            "ready": self._ready,
            "server_metadata": self._server_metadata,
            "models": self._models,
            "model_metadata": self._model_metadata,
            "model_ready": self._model_ready,
            "batches": self._batches,
            "end_sequence": self._end_sequence,
        }

    async def respond(self, http: HttpRequest) -> HttpAnswer:
        """Every request gets an answer; what went wrong on our side is logged with its detail."""
        id = self._ids.next()
        dialect: Dialect = "predict" if http.path.startswith("/predict") else "v2"
        try:
            match = self._table.match(http.method, http.path)
            if isinstance(match, Match):
                dialect_of = self._inference.get(match.route.endpoint)
                if dialect_of is not None:
                    answer = await self._infer(http, match, id, *dialect_of)
                else:
                    answer = await self._endpoint(http, match, id)
            else:
                self.outside[Code.METHOD_NOT_ALLOWED if match else Code.ROUTE_NOT_FOUND] += 1
                answer = _no_route(http, match, dialect, id)
        except Failure as failure:
            answer = error_answer(failure, dialect, id)
            if isinstance(failure, Failed):
                event = {"request": id, "code": failure.code.value, "detail": failure.detail, "path": show(http.path)}
                _log.warning("request failed", extra={"event": event})
            # Its frames hold the request's bytes, and it stands in one of them: let go of them now, not at a collection.
            failure.__traceback__ = failure.__context__ = None
        except Exception:  # a border: a defect of ours costs this request only
            _log.exception("request failed by a defect", extra={"event": {"request": id, "path": show(http.path)}})
            answer = error_answer(Failed(Code.INTERNAL, "the server failed on this request"), dialect, id)
        if not answer.headers or answer.headers[0][0] != b"X-Request-Id":
            answer.headers.insert(0, (b"X-Request-Id", id.encode()))
        client_id = http.headers.get(b"x-request-id")
        if client_id is not None and _CLIENT_ID.fullmatch(client_id):
            answer.headers.append((b"X-Client-Request-Id", client_id))
        return answer

    async def _infer(self, http: HttpRequest, match: Match, id: str, decode: Decode, encode: Encode) -> HttpAnswer:
        try:
            variant = self._handle.route(match.pipeline, match.number)
            variant.enter()  # from here to the answer: an unload waits also for a body that is being decoded
        except Failure as failure:
            self._count(failure)
            raise
        try:
            request = await self._decoded(http, variant, id, decode)
            answer = await self._handle.answer(variant, request)
            try:
                if sum([tensor.bytes_total for tensor in answer.outputs.values()]) < OFF_LOOP_BYTES_MIN:
                    return encode(answer, request)
                return await asyncio.to_thread(encode, answer, request)
            except BaseException:
                if not answer.failures:
                    variant.sequences.untold(request)
                raise
        finally:
            variant.exit()

    async def _decoded(self, http: HttpRequest, variant: Variant, id: str, decode: Decode) -> Request:
        timeline = Timeline(http.received_s)
        try:
            if len(http.body) < OFF_LOOP_BYTES_MIN:
                request = decode(http, variant.signature, id, timeline)
            else:
                request = await asyncio.to_thread(decode, http, variant.signature, id, timeline)
        except BaseException as error:
            self._count(error)
            raise
        timeline.decoded = self._clock()
        return request

    async def _endpoint(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        try:
            answer = await self._endpoints[match.route.endpoint](http, match, id)
        except BaseException as error:
            self._count(error)
            raise
        self.outside["ok"] += 1
        return answer

    def _count(self, error: BaseException) -> None:
        """A request ended before any pipeline knew of it."""
        cancelled = isinstance(error, asyncio.CancelledError)
        code = Code.CANCELLED if cancelled else error.code if isinstance(error, Failure) else Code.INTERNAL
        self.outside[code] += 1

    async def _live(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        return v2_metadata.live()

    async def _ready(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        why = self._why_not_ready()
        if why:
            raise Failed(Code.NOT_READY, why, retry_after_s=1.0)
        return v2_metadata.ready(True)

    async def _server_metadata(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        return v2_metadata.server_metadata(self._product_version)

    async def _models(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        return v2_metadata.models(sorted({variant.version.pipeline for variant in self._handle.routes.variants()}))

    async def _model_metadata(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        variant = self._handle.route(match.pipeline, match.number)
        assert variant.loaded is not None, "a routable version has loaded"
        numbers = self._handle.routes.numbers(match.pipeline)
        return v2_metadata.model_metadata(variant.version, numbers, variant.signature, variant.loaded.platform)

    async def _model_ready(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        variant = self._handle.route(match.pipeline, match.number)
        if not variant.ready:
            raise Failed(Code.NOT_READY, f'no worker of "{variant.version.pipeline}" answers', retry_after_s=1.0)
        return v2_metadata.model_ready(variant.version.pipeline, True)

    async def _end_sequence(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        variant = self._handle.route(match.pipeline, match.number)
        request = predict.decode_end(http, id, Timeline(http.received_s))
        await self._handle.end_sequence(variant, request)
        return HttpAnswer(200, b"{}", headers=answer_headers(id, variant.version, request.sequence))

    async def _batches(self, http: HttpRequest, match: Match, id: str) -> HttpAnswer:
        return HttpAnswer(200, orjson.dumps(batches_report(self._handle.route(match.pipeline, match.number))))


def batches_report(variant: Variant) -> dict[str, object]:
    """The last batches, newest last, each with why it was released; times in microseconds."""
    return {
        "pipeline": variant.version.pipeline,
        "version": variant.version.number,
        "batching": variant.batching_reason,
        "rows_max": variant.batch.rows_max,
        "batches": [
            {
                "id": report.id,
                "rows": report.rows,
                "items": report.items,
                "reason": report.reason,
                "worker": report.worker,
                "waited_us": round(report.waited_s * 1e6),
                "left_waiting_rows": report.waiting_rows,
                "preprocess_us": round(report.preprocess_s * 1e6),
                "execute_us": round(report.execute_s * 1e6),
                "postprocess_us": round(report.postprocess_s * 1e6),
                "outcome": report.outcome,
            }
            for report in variant.batcher.reports
        ],
    }


def _no_route(http: HttpRequest, allowed: "object", dialect: Dialect, id: str) -> HttpAnswer:
    if not allowed:
        return error_answer(Refused(Code.ROUTE_NOT_FOUND, "there is nothing at this path"), dialect, id)
    assert isinstance(allowed, list)
    names = b", ".join(dict.fromkeys(allowed))
    text = f"this path takes {names.decode()}, not {show(http.method.decode('latin-1'))}"
    answer = error_answer(Refused(Code.METHOD_NOT_ALLOWED, text), dialect, id)
    answer.headers.append((b"Allow", names))
    return answer
