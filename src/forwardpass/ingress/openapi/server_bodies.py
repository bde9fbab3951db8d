"""Bodies that no signature decides: what the server says of itself and its pipelines, and how it is told to change."""

from forwardpass.ingress.dialects import v2_logging
from forwardpass.ingress.openapi.served import Content, Schema, list_of, object_of

TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TIME: Schema = {"type": "integer"}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
OBJECT: Schema = {"type": "object"}
YES: Schema = {"const": True}

_TENSOR = object_of({"name": TEXT, "datatype": TEXT, "shape": list_of({"type": "integer", "minimum": -1})})
_SPAN = object_of({"count": COUNT, "ns": COUNT})
_SPANS = (
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss",
)  # fmt: skip
_RUNS = object_of({"batch_size": COUNT, "compute_input": _SPAN, "compute_infer": _SPAN, "compute_output": _SPAN})
_MEMORY = object_of({"type": TEXT, "id": COUNT, "byte_size": COUNT})
_STATISTICS = object_of(
    {
        **dict.fromkeys(("name", "version"), TEXT),
        **dict.fromkeys(("last_inference", "inference_count", "execution_count"), COUNT),
        "inference_stats": object_of(dict.fromkeys(_SPANS, _SPAN)),
        "response_stats": OBJECT,
        "batch_stats": list_of(_RUNS),
        "memory_usage": list_of(_MEMORY),
    }
)
_BATCH = object_of(
    {
        **dict.fromkeys(("reason", "outcome", "why"), TEXT),
        **dict.fromkeys(("id", "rows", "items", "worker", "left_waiting_rows", "limit"), COUNT),
        **dict.fromkeys(
            ("waited_us", "preprocess_us", "execute_us", "postprocess_us", "predicted_us", "took_us"), TIME
        ),
        "padding": SHARE,
    }
)
_CONTAINER = object_of({"modelName": TEXT, "modelUrl": TEXT})
_MODEL = object_of(
    {"id": TEXT, "object": {"const": "model"}, "created": COUNT, "owned_by": TEXT, "name": TEXT, "ready": TRUTH}
)
_LOG_CHANGES = {
    **dict.fromkeys(("log_info", "log_warning", "log_error"), TRUTH),
    "log_verbose_level": {"enum": [0, 1]},
    "log_format": {"enum": list(v2_logging.FORMATS)},
}


def json(schema: Schema) -> Content:
    return {"application/json": {"schema": schema}}


LIVE = json(object_of({"live": YES}))
READY = json(object_of({"live": YES, "ready": YES}))
MODEL_READY = json(object_of({"name": TEXT, "ready": YES}))
SERVER = json(object_of({"name": TEXT, "version": TEXT, "extensions": list_of(TEXT)}))
MODELS = json(object_of({"models": list_of(TEXT)}))
METADATA = json(
    object_of(
        {
            "name": TEXT,
            "versions": list_of(TEXT),
            "platform": TEXT,
            "inputs": list_of(_TENSOR),
            "outputs": list_of(_TENSOR),
            "properties": {"type": "object", "additionalProperties": TEXT},
        }
    )
)
BATCHES = json(
    object_of(
        {
            **dict.fromkeys(("pipeline", "batching"), TEXT),
            **dict.fromkeys(("version", "limit"), COUNT),
            "rows_max": {"anyOf": [COUNT, {"const": "auto"}]},
            "batches": list_of(_BATCH),
        }
    )
)
STATISTICS = json(object_of({"model_stats": list_of(_STATISTICS)}))
CONFIG = json({"type": "object", "properties": {"name": TEXT, "platform": TEXT, "max_batch_size": COUNT}})
NOTHING = json(object_of({}))
TEXT_ONLY: Content = {"text/plain; charset=utf-8": {"schema": TEXT}}
ALIVE = json(object_of({"status": {"const": "alive"}}))
CONTAINERS = json(object_of({"models": list_of(_CONTAINER)}))
CONTAINER = json(_CONTAINER)
CONTAINER_LOAD = json(
    object_of(
        {
            "model_name": {"type": "string", "pattern": "^[a-z0-9._-]{1,64}$"},
            "url": {"type": "string", "description": "must end with the name of the model"},
        },
        ("url",),
    )
)
OPENAI_MODELS = json(object_of({"object": {"const": "list"}, "data": list_of(_MODEL), "models": list_of(TEXT)}))
OPENAI_MODEL = json(_MODEL)
TEI_INFO = json(
    object_of(
        {
            **dict.fromkeys(("model_id", "model_sha", "version"), TEXT),
            "model_type": OBJECT,
            **dict.fromkeys(("max_batch_requests", "max_client_batch_size", "max_concurrent_requests"), COUNT),
        }
    )
)
INDEX = json(list_of(object_of(dict.fromkeys(("name", "version", "state", "reason"), TEXT))))
INDEX_ASKED = json(object_of({"ready": TRUTH}, ("ready",)))
LOADED = json(object_of({"name": TEXT, "load": YES}))
LOAD_ASKED = json(object_of({"parameters": object_of({})}, ("parameters",)))
UNLOADED = json(object_of({"name": TEXT, "unload": YES}))
UNLOAD_ASKED = json(
    object_of({"parameters": object_of({"unload_dependents": TRUTH}, ("unload_dependents",))}, ("parameters",))
)
LOG: Content = json(object_of({"log_file": TEXT, **_LOG_CHANGES}))
LOG_ASKED: Content = json(object_of(_LOG_CHANGES, tuple(_LOG_CHANGES)))
DOCUMENT = json(OBJECT)
PAGE: Content = {"text/html; charset=utf-8": {"schema": TEXT}}
ASSET: Content = {
    "text/css; charset=utf-8": {"schema": TEXT},
    "text/javascript; charset=utf-8": {"schema": TEXT},
}
