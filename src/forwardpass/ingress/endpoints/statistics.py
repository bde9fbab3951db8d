"""Statistics and configuration of the versions that are loaded, as V2 names them."""

from dataclasses import dataclass

import orjson

from forwardpass.ingress.dialect import Call, Endpoint, by_path
from forwardpass.ingress.dialects.v2_config import model_config
from forwardpass.ingress.dialects.v2_statistics import statistics
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer
from forwardpass.rollout.variant import Variant


@dataclass(frozen=True, slots=True)
class Statistics:
    """Reads only; what it reads is counted where requests end and batches return."""

    inference: Inference

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {"statistics": self._statistics, "model_config": self._model_config}

    async def _statistics(self, call: Call) -> HttpAnswer:
        return HttpAnswer(200, orjson.dumps({"model_stats": [statistics(variant) for variant in self._asked(call)]}))

    async def _model_config(self, call: Call) -> HttpAnswer:
        variant = self.inference.route(by_path(call), call.caller)
        numbers = self.inference.handle.routes.numbers(variant.version.pipeline)
        return HttpAnswer(200, orjson.dumps(model_config(variant, numbers)))

    def _asked(self, call: Call) -> list[Variant]:
        """The version of the path, all versions of its pipeline, or all there are. Raises Failure for what is none."""
        pipeline, number = call.match.pipeline, call.match.number
        loaded = [variant for variant in self.inference.visible(call.caller) if variant.loaded is not None]
        if not pipeline:
            return loaded
        asked = [
            variant
            for variant in loaded
            if variant.version.pipeline == pipeline and number in (None, variant.version.number)
        ]
        return asked or [self.inference.route(by_path(call), call.caller)]
