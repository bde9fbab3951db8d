"""Which HTTP status each error code becomes, and the body an error has in each dialect: known here and nowhere else."""

import math

import orjson

from forwardpass.core.clock import near_whole
from forwardpass.core.errors import Code, Failure
from forwardpass.ingress.message import HttpAnswer
from forwardpass.ingress.routes import Family

_CODES: dict[int, tuple[Code, ...]] = {
    400: (
        Code.BAD_REQUEST, Code.INCOMPLETE_BODY, Code.TOO_MANY_CHUNKS, Code.BAD_ENCODING, Code.JSON_INVALID,
        Code.JSON_TOO_DEEP, Code.JSON_TOO_MANY_KEYS, Code.JSON_DUPLICATE_KEY, Code.UNKNOWN_FIELD, Code.MISSING_FIELD,
        Code.WRONG_TYPE, Code.OUT_OF_RANGE, Code.SHAPE_MISMATCH, Code.SHAPE_OVERFLOW, Code.DATATYPE_MISMATCH,
        Code.BINARY_SIZE_MISMATCH, Code.BATCH_TOO_LARGE, Code.INVALID_UTF8, Code.INVALID_INPUT, Code.UNKNOWN_OUTPUT,
        Code.IMAGE_INVALID, Code.IMAGE_TRUNCATED, Code.AUDIO_FORMAT, Code.AUDIO_INVALID,
    ),
    401: (Code.UNAUTHENTICATED,),
    403: (Code.FORBIDDEN,),
    404: (
        Code.ROUTE_NOT_FOUND, Code.PIPELINE_NOT_FOUND, Code.VERSION_NOT_FOUND, Code.RECEIPT_NOT_FOUND,
        Code.SEQUENCE_NOT_FOUND,
    ),
    405: (Code.METHOD_NOT_ALLOWED,),
    406: (Code.NOT_ACCEPTABLE,),
    408: (Code.BODY_TOO_SLOW, Code.HEADER_TIMEOUT),
    409: (Code.CONFLICT, Code.FOLDER_CHANGED, Code.IDEMPOTENCY_RUNNING),
    410: (Code.SEQUENCE_LOST,),  # not 503: the same request sent again would be refused
    413: (Code.BODY_TOO_LARGE, Code.INPUT_TOO_LARGE, Code.OUTPUT_TOO_LARGE),
    414: (Code.URL_TOO_LONG,),
    415: (Code.UNSUPPORTED_MEDIA_TYPE,),
    417: (Code.EXPECTATION_FAILED,),
    421: (Code.MISDIRECTED,),
    422: (
        Code.QUARANTINED, Code.DEFINITION_INVALID, Code.MODEL_INVALID, Code.DIGEST_MISMATCH, Code.NOT_TRUSTED,
        Code.NOT_SIGNED, Code.GUARD_BLOCKED, Code.GOLDEN_MISMATCH, Code.LOAD_FAILED, Code.RULE_REFUSED, Code.IDEMPOTENCY_MISMATCH,
    ),
    429: (Code.RATE_LIMITED, Code.CONCURRENCY_LIMITED, Code.BUDGET_EXHAUSTED),
    431: (Code.HEADERS_TOO_LARGE,),
    499: (Code.CANCELLED,),
    500: (
        Code.WORKER_CRASHED, Code.WORKER_HUNG, Code.ENGINE_FAILED, Code.ENGINE_OUT_OF_MEMORY, Code.NON_FINITE_OUTPUT,
        Code.OUTPUT_OUT_OF_RANGE, Code.BAD_OUTPUT_SHAPE, Code.STEP_FAILED, Code.INTERNAL, Code.SETTINGS_INVALID,
        Code.RUNTIME_MISSING, Code.PORT_IN_USE, Code.STORE_LOCKED,
    ),
    501: (Code.NOT_IMPLEMENTED,),
    503: (
        Code.QUEUE_FULL, Code.QUEUE_BYTES_FULL, Code.QUEUE_WAIT_TOO_LONG, Code.TOO_MANY_CONNECTIONS, Code.NOT_READY,
        Code.SHUTTING_DOWN, Code.MODEL_UNAVAILABLE, Code.SEQUENCES_FULL, Code.SHED, Code.BYTES_IN_FLIGHT_FULL,
        Code.MEMORY_FULL,
    ),
    504: (Code.DEADLINE_EXCEEDED,),
}  # fmt: skip

STATUSES: dict[Code, int] = {code: status for status, codes in _CODES.items() for code in codes}

_GRPC: dict[int, int] = {
    400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 406: 3, 408: 4, 409: 9, 410: 9, 413: 8, 414: 3, 415: 3, 417: 3, 421: 3, 422: 3, 429: 8,
    431: 8, 499: 1, 500: 13, 501: 12, 503: 14, 504: 4,
}  # fmt: skip
"""HTTP status -> gRPC's: 1 cancelled, 3 invalid argument, 4 deadline exceeded, 5 not found, 7 permission denied,
8 resource exhausted, 9 failed precondition, 12 unimplemented, 13 internal, 14 unavailable, 16 unauthenticated."""

GRPC_STATUSES: dict[Code, int] = {code: _GRPC[status] for code, status in STATUSES.items()}


_PREDICTED = (Code.QUEUE_FULL, Code.QUEUE_BYTES_FULL, Code.QUEUE_WAIT_TOO_LONG, Code.SHED)
"""Where the time to come again is a prediction: who is a little early loses nothing, and not all come at once."""


def error_answer(failure: Failure, family: Family, request_id: str) -> HttpAnswer:
    """The answer that tells a client of a failure, in the shape that clients of its family read."""
    status = STATUSES[failure.code]
    headers = [(b"X-Request-Id", request_id.encode()), (b"X-Error-Code", failure.code.encode())]
    if status == 401:
        headers.append((b"WWW-Authenticate", b"Bearer"))
    if failure.code is Code.GUARD_BLOCKED:
        headers.append((b"X-Guardrails", b"block=1"))
    if failure.retry_after_s is not None or status in (429, 503):
        wait_s = failure.retry_after_s or 1.0
        whole_s = near_whole(wait_s) if failure.code in _PREDICTED else math.ceil(wait_s)
        headers.append((b"Retry-After", b"%d" % max(1, whole_s)))
        if family == "openai":
            headers.append((b"retry-after-ms", b"%d" % max(1, math.ceil(wait_s * 1000))))
    elif family == "openai" and (status >= 500 or status in (408, 409)):
        headers.append((b"x-should-retry", b"false"))  # else its client asks again, for the same outcome
    body = orjson.dumps(_body(failure, family, status, request_id))
    kind = b"application/problem+json" if family == "problem" else b"application/json"
    return HttpAnswer(status, body, kind, headers)


def error_body(failure: Failure) -> dict[str, object]:
    """What the predict dialect says of a failure, of a whole request or of one of its rows."""
    return {"code": failure.code, "message": failure.text, "field": failure.field}


def problem_body(failure: Failure, status: int, request_id: str) -> dict[str, object]:
    """Problem details (RFC 9457)."""
    return {
        "type": f"urn:forwardpass:{failure.code}",
        "title": failure.code,
        "status": status,
        "detail": failure.text,
        "instance": f"urn:forwardpass:request:{request_id}",
    }


def _body(failure: Failure, family: Family, status: int, request_id: str) -> dict[str, object]:
    match family:
        case "v2":  # its clients want a string under "error"
            return {"error": failure.text, "code": failure.code, "request_id": request_id}
        case "openai":
            return {"error": _openai_error(failure, status)}
        case "cohere":
            return {"message": failure.text, "id": request_id, "error": _openai_error(failure, status)}
        case "tei":
            return {"error": failure.text, "error_type": _tei_type(failure.code, status), "code": failure.code}
        case "mlflow":
            return {"error_code": _mlflow_code(status), "message": failure.text, "code": failure.code}
        case "problem":
            return problem_body(failure, status, request_id)
        case "predict":
            return {"error": {**error_body(failure), "request_id": request_id}}


def _openai_error(failure: Failure, status: int) -> dict[str, object]:
    """``type`` and ``code`` in OpenAI's words where it has some."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    param = failure.field.strip("/") or None
    if failure.code in (Code.PIPELINE_NOT_FOUND, Code.VERSION_NOT_FOUND):
        return {"message": failure.text, "type": kind, "param": "model", "code": "model_not_found"}
    return {"message": failure.text, "type": kind, "param": param, "code": failure.code.value}


_TEI_TYPES: dict[Code, str] = {
    Code.NOT_READY: "unhealthy", Code.SHUTTING_DOWN: "unhealthy", Code.MODEL_UNAVAILABLE: "unhealthy",
    Code.QUEUE_FULL: "overloaded", Code.QUEUE_BYTES_FULL: "overloaded", Code.QUEUE_WAIT_TOO_LONG: "overloaded",
    Code.TOO_MANY_CONNECTIONS: "overloaded", Code.SHED: "overloaded", Code.BYTES_IN_FLIGHT_FULL: "overloaded",
    Code.MEMORY_FULL: "overloaded", Code.MISSING_FIELD: "empty",
}  # fmt: skip


def _tei_type(code: Code, status: int) -> str:
    """Its own six words, but ``tokenizer``: what the tokenizer refuses is told as ``validation``."""
    if status == 429:
        return "overloaded"
    return _TEI_TYPES.get(code, "validation" if status < 500 else "backend")


def _mlflow_code(status: int) -> str:
    names = {400: "BAD_REQUEST", 404: "ENDPOINT_NOT_FOUND", 429: "REQUEST_LIMIT_EXCEEDED", 501: "NOT_IMPLEMENTED"}
    waiting = {503: "TEMPORARILY_UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
    return {**names, **waiting}.get(status, "INTERNAL_ERROR" if status >= 500 else "INVALID_PARAMETER_VALUE")
