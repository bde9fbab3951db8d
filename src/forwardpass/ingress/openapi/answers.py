"""What a client of each family can be told instead of its answer: bodies, statuses and headers of refusals."""

from collections.abc import Iterable
from http import HTTPStatus

from forwardpass.ingress.openapi.served import Schema, object_of, reference
from forwardpass.ingress.routes import Family, Route
from forwardpass.ingress.status import STATUSES

_FRAMING = frozenset({400, 405, 408, 413, 414, 415, 417, 421, 431, 500, 501, 503})
"""Before the path is looked at: these may come in V2's shape on every path."""
_ALWAYS = _FRAMING | {403, 429}
_INFER = frozenset({404, 409, 410, 422, 504})
_NAMED = frozenset({404, 504})

_TEXT: Schema = {"type": "string"}
_CODE = reference("ErrorCode")
_OPENAI_ERROR = object_of(
    {"message": _TEXT, "type": _TEXT, "param": {"type": ["string", "null"]}, "code": {"type": "string"}}
)
_BODIES: dict[Family, Schema] = {
    "v2": object_of({"error": _TEXT, "code": _CODE, "request_id": _TEXT}),
    "predict": object_of(
        {"error": object_of({"code": _CODE, "message": _TEXT, "field": _TEXT, "request_id": _TEXT}, ("request_id",))}
    ),
    "openai": object_of({"error": _OPENAI_ERROR}),
    "cohere": object_of({"message": _TEXT, "id": _TEXT, "error": _OPENAI_ERROR}),
    "tei": object_of({"error": _TEXT, "error_type": _TEXT, "code": _CODE}),
    "mlflow": object_of({"error_code": _TEXT, "message": _TEXT, "code": _CODE}),
    "problem": {"type": "object"},
}


def statuses(route: Route) -> list[int]:
    """Of the refusals that a request on this route can meet."""
    found = set(_ALWAYS)
    if route.scope != "open":
        found.add(401)
    if route.scope in ("infer", "admin"):
        found |= _INFER
    elif "{" in route.pattern or route.endpoint == "tei_info":  # the pipeline that requests without a name get
        found |= _NAMED
    if route.endpoint == "invocations":
        found.add(406)
    return sorted(found)


def responses(route: Route) -> dict[str, Schema]:
    """References to those of the family, by status."""
    return {str(status): reference(f"{route.family}_{status}", "responses") for status in statuses(route)}


def response_components(routes: Iterable[Route]) -> dict[str, Schema]:
    """What ``responses`` of these routes refers to."""
    wanted = sorted({(route.family, status) for route in routes for status in statuses(route)})
    return {f"{family}_{status}": _response(family, status) for family, status in wanted}


def schema_components(families: Iterable[Family]) -> dict[str, Schema]:
    """The bodies of refusals, and the codes they carry."""
    codes: Schema = {"type": "string", "enum": sorted(STATUSES), "description": "stable: programs switch on it"}
    return {"ErrorCode": codes, **{error_part(family): _BODIES[family] for family in sorted({*families, "v2"})}}


def header_components() -> dict[str, Schema]:
    """Headers of answers, by the name of their component."""
    text: Schema = {"schema": {"type": "string"}}
    return {
        "X-Request-Id": {**text, "required": True, "description": "what the server calls this request, in its log too"},
        "X-Client-Request-Id": {**text, "description": "the request's own X-Request-Id"},
        "X-Error-Code": {"required": True, "description": "which failure it is", "schema": _CODE},
        "Retry-After": {
            "required": True,
            "description": "seconds after which the same request may work",
            "schema": {"type": "integer", "minimum": 1},
        },
        "Allow": {**text, "required": True, "description": "the methods that this path takes"},
        "X-Pipeline": {**text, "required": True, "description": "which pipeline answered"},
        "X-Pipeline-Version": {
            "required": True,
            "description": "which version of it",
            "schema": {"type": "integer", "minimum": 0},
        },
        "X-Pipeline-Digest": {**text, "required": True, "description": "SHA-256 over all files of that version"},
        "X-Sequence-Id": {**text, "description": "the sequence that the request belongs to, if any"},
        "traceparent": {**text, "description": "the trace that the request named, with the server's own span"},
        "Idempotency-Replayed": {**text, "description": "true where an Idempotency-Key was met before"},
    }


def header_references(*names: str) -> dict[str, Schema]:
    return {name: reference(name, "headers") for name in names}


def error_part(family: Family) -> str:
    """The component with the body that refusals of the family have."""
    return f"Error.{family}"


def row_error() -> Schema:
    """One failed row among others, in the plain dialect."""
    return object_of({"code": _CODE, "message": _TEXT, "field": _TEXT})


def _response(family: Family, status: int) -> Schema:
    codes = [code for code, of_code in STATUSES.items() if of_code == status]
    headers = header_references("X-Request-Id", "X-Error-Code", "X-Client-Request-Id", "traceparent")
    if status in (429, 503):
        headers |= header_references("Retry-After")
    if status == 405:
        headers |= header_references("Allow")
    schema = reference(error_part(family))
    if family != "v2" and status in _FRAMING:
        schema = {"anyOf": [schema, reference(error_part("v2"))]}
    return {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
        "headers": headers,
        "content": {"application/json": {"schema": schema}},
    }
