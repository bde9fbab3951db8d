"""The list of models, in one form that OpenAI's clients and those of KServe's first protocol both read."""

from dataclasses import dataclass

import orjson

from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.dialects.task_body import target_of
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer
from forwardpass.rollout.variant import Variant

OWNER = "forwardpass"


@dataclass(frozen=True, slots=True)
class Models:
    """One model per pipeline, in its current version; a version by itself is ``pipeline:version``."""

    inference: Inference

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {"openai_models": self._models, "openai_model": self._model}

    async def _models(self, call: Call) -> HttpAnswer:
        routes = self.inference.handle.routes
        names = sorted({each.version.pipeline for each in self.inference.visible(call.caller) if each.ready})
        data = [_model(routes.find(name, None), name) for name in names]
        return HttpAnswer(200, orjson.dumps({"object": "list", "data": data, "models": names}))

    async def _model(self, call: Call) -> HttpAnswer:
        target = target_of(call.match.values["model"])
        variant = self.inference.route(target, call.caller)
        name = target.pipeline if target.number is None else f"{target.pipeline}:{target.number}"
        return HttpAnswer(200, orjson.dumps(_model(variant, name)))


def _model(variant: Variant, name: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": int(variant.loaded_at_s),
        "owned_by": OWNER,
        "name": name,
        "ready": variant.ready,
    }
