"""What requests carry beside their body: headers, the query, and names in paths."""

from collections.abc import Mapping, Sequence

from forwardpass.core.caller import PRIORITIES
from forwardpass.ingress.dialects.envelope import DEADLINE_MS_MAX, PRIORITY_MAX
from forwardpass.ingress.openapi.served import Schema, Served, reference

INFER = ("deadline", "priority", "priority_class", "cache_control", "idempotency_key")
"""Of every inference route."""
RECEIPT = (*INFER, "receipt")
"""Of those whose answers have room for one."""
TURN = ("sequence_id", "sequence_start", "sequence_end")
"""Of pipelines that carry something from one request to the next."""
_EVERYWHERE = ("traceparent", "request_id")
_TRUTH: Schema = {"type": "string", "enum": ["true", "false"]}
SEQUENCE: Schema = {"type": "string", "pattern": "^[!-~]{1,128}$"}


def _header(name: str, description: str, schema: Schema, **more: bool) -> Schema:
    return {"name": name, "in": "header", "description": description, **more, "schema": schema}


def _integer(most: int) -> Schema:
    return {"type": "integer", "minimum": 1, "maximum": most}


COMPONENTS: dict[str, Schema] = {
    "deadline": _header(
        "X-Request-Deadline-Ms", "milliseconds after which no answer is wanted any more", _integer(DEADLINE_MS_MAX)
    ),
    "priority": _header("X-Request-Priority", "1 is the first to be served", _integer(PRIORITY_MAX)),
    "priority_class": _header(
        "X-Priority",
        "its class: the most urgent is served first, and the least urgent turned away first",
        {"type": "string", "enum": list(PRIORITIES)},
    ),
    "cache_control": _header(
        "Cache-Control",
        "no-cache: computed anew; no-store: and not kept; max-age=N: no kept answer that is older, in seconds",
        {"type": "string"},
    ),
    "idempotency_key": _header(
        "Idempotency-Key",
        "a request with a key that was met before runs no second time: it is given the first one's answer",
        {"type": "string", "pattern": "^[!#-~][!-~]{0,254}$"},
    ),
    "sequence_id": _header("X-Sequence-Id", "the sequence that the request is a step of", SEQUENCE),
    "sequence_start": _header("X-Sequence-Start", "whether the sequence begins with this request", _TRUTH),
    "sequence_end": _header("X-Sequence-End", "whether it ends with it", _TRUTH),
    "sequence_ended": _header("X-Sequence-Id", "the sequence that ends", SEQUENCE, required=True),
    "traceparent": _header(
        "traceparent", "the trace that the request belongs to (W3C Trace Context)", {"type": "string"}
    ),
    "request_id": _header(
        "X-Request-Id", "echoed as X-Client-Request-Id, if it is 1 to 64 letters, digits and dashes", {"type": "string"}
    ),
    "target_model": _header(
        "X-Amzn-SageMaker-Target-Model", "the pipeline that is asked, where the path names none", {"type": "string"}
    ),
    "receipt": {
        "name": "receipt",
        "in": "query",
        "description": "full: the answer says how it came about",
        "schema": {"type": "string", "enum": ["full"]},
    },
}


def beside_the_body(names: Sequence[str], subjects: Sequence[Served]) -> list[Schema]:
    """Those of the named components that mean something to one of these versions, as references."""
    steps = any(served.definition.sequence is not None for served in subjects)
    kept = [name for name in (*names, *_EVERYWHERE) if steps or name not in TURN]
    return [reference(name, "parameters") for name in kept]


def in_the_path(names: Sequence[str], known: Mapping[str, Sequence[str]]) -> list[Schema]:
    """One for each placeholder; ``known`` are the values that something answers for now."""
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", **({"enum": list(known[name])} if known.get(name) else {})},
        }
        for name in names
    ]
