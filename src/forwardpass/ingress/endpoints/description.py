"""What the data plane says of the server and its pipelines: health, metadata, batches; and the end of a sequence."""

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from forwardpass.core.errors import Code, Failed
from forwardpass.ingress.dialect import Call, Endpoint, by_path
from forwardpass.ingress.dialects import predict, v2_metadata
from forwardpass.ingress.dialects.envelope import answer_headers
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer
from forwardpass.rollout.variant import Variant


@dataclass(frozen=True, slots=True)
class Description:
    """``why_not_ready`` answers "" when every pipeline answers."""

    inference: Inference
    why_not_ready: Callable[[], str]
    product_version: str
    extensions: tuple[str, ...] = v2_metadata.EXTENSIONS

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {
            "live": self._live,
            "ready": self._ready,
            "server_metadata": self._server_metadata,
            "models": self._models,
            "model_metadata": self._model_metadata,
            "model_ready": self._model_ready,
            "batches": self._batches,
            "end_sequence": self._end_sequence,
        }

    async def _live(self, call: Call) -> HttpAnswer:
        return v2_metadata.live()

    async def _ready(self, call: Call) -> HttpAnswer:
        why = self.why_not_ready()
        if why:
            raise Failed(Code.NOT_READY, why, retry_after_s=1.0)
        return v2_metadata.ready(True)

    async def _server_metadata(self, call: Call) -> HttpAnswer:
        return v2_metadata.server_metadata(self.product_version, self.extensions)

    async def _models(self, call: Call) -> HttpAnswer:
        return v2_metadata.models(sorted({each.version.pipeline for each in self.inference.visible(call.caller)}))

    async def _model_metadata(self, call: Call) -> HttpAnswer:
        variant = self._variant(call)
        assert variant.loaded is not None, "a routable version has loaded"
        numbers = self.inference.handle.routes.numbers(call.match.pipeline)
        return v2_metadata.model_metadata(variant.version, numbers, variant.signature, variant.loaded.platform)

    async def _model_ready(self, call: Call) -> HttpAnswer:
        variant = self._variant(call)
        if not variant.ready:
            raise Failed(Code.NOT_READY, f'no worker of "{variant.version.pipeline}" answers', retry_after_s=1.0)
        return v2_metadata.model_ready(variant.version.pipeline, True)

    async def _end_sequence(self, call: Call) -> HttpAnswer:
        variant = self._variant(call)
        request = predict.decode_end(call.http, call.id, call.timeline)
        await self.inference.handle.end_sequence(variant, request)
        return HttpAnswer(200, b"{}", headers=answer_headers(call.id, variant.version, request.sequence))

    async def _batches(self, call: Call) -> HttpAnswer:
        return HttpAnswer(200, orjson.dumps(batches_report(self._variant(call))))

    def _variant(self, call: Call) -> Variant:
        return self.inference.route(by_path(call), call.caller)


def batches_report(variant: Variant) -> dict[str, object]:
    """The last batches, newest last, each with why it was released and why it could be so large.

    Times are in microseconds; ``padding`` is the share of what the model computed that only filled rows up.
    """
    return {
        "pipeline": variant.version.pipeline,
        "version": variant.version.number,
        "batching": variant.batching_reason,
        "rows_max": variant.batch.rows_max,
        "limit": variant.forecast.limits.rows,
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
                "predicted_us": round(report.predicted_s * 1e6),
                "took_us": round(report.took_s * 1e6),
                "limit": report.limit,
                "why": report.why,
                "padding": round(report.padding / max(1, report.elements + report.padding), 3),
                "outcome": report.outcome,
            }
            for report in variant.batcher.reports
        ],
    }
