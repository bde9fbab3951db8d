"""What Text Embeddings Inference says of itself at ``/info``; its ``/health`` is MLflow's too."""

from dataclasses import dataclass

import orjson

from forwardpass.core.pipeline import Signature
from forwardpass.ingress.dialect import Call, Endpoint, Target
from forwardpass.ingress.dialects.task_body import TEXTS_MAX
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer


@dataclass(frozen=True, slots=True)
class TeiDescription:
    """Of the pipeline that answers requests which name none."""

    inference: Inference
    product_version: str

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {"tei_info": self._info}

    async def _info(self, call: Call) -> HttpAnswer:
        """What has no meaning here is left out."""
        variant = self.inference.route(Target("", None, ("embed", "rank", "classify")), call.caller)
        version, definition = variant.version, variant.version.definition
        body = {
            "model_id": version.pipeline,
            "model_sha": version.digest,
            "model_type": _model_type(variant.signature),
            "max_batch_requests": variant.batch.rows_cut,
            "max_client_batch_size": TEXTS_MAX,
            "max_concurrent_requests": definition.queue.rows_max,
            "version": self.product_version,
        }
        return HttpAnswer(200, orjson.dumps(body))


def _model_type(signature: Signature) -> dict[str, object]:
    task = signature.task
    assert task is not None, "it was found by its task"
    labels = {str(place): label for place, label in enumerate(task.labels)}
    numbers = {label: int(place) for place, label in labels.items()}
    match task.kind:
        case "embed":
            return {"embedding": {}}
        case "rank":
            return {"reranker": {"id2label": {}, "label2id": {}}}
        case "classify":
            return {"classifier": {"id2label": labels, "label2id": numbers}}
