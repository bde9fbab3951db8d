"""Which HTTP status each error code becomes, and the body an error has in each dialect: known here and nowhere else."""

import math
from typing import Literal

import orjson

from forwardpass.core.errors import Code, Failure
from forwardpass.ingress.message import HttpAnswer

Dialect = Literal["v2", "predict"]

_CODES: dict[int, tuple[Code, ...]] = {
    400: (
        Code.BAD_REQUEST, Code.INCOMPLETE_BODY, Code.TOO_MANY_CHUNKS, Code.BAD_ENCODING, Code.JSON_INVALID,
        Code.JSON_TOO_DEEP, Code.JSON_TOO_MANY_KEYS, Code.JSON_DUPLICATE_KEY, Code.UNKNOWN_FIELD, Code.MISSING_FIELD,
        Code.WRONG_TYPE, Code.OUT_OF_RANGE, Code.SHAPE_MISMATCH, Code.SHAPE_OVERFLOW, Code.DATATYPE_MISMATCH,
        Code.BINARY_SIZE_MISMATCH, Code.BATCH_TOO_LARGE, Code.INVALID_UTF8, Code.INVALID_INPUT, Code.UNKNOWN_OUTPUT,
        Code.IMAGE_INVALID, Code.IMAGE_TRUNCATED, Code.AUDIO_FORMAT, Code.AUDIO_INVALID,
    ),
    403: (Code.FORBIDDEN,),
    404: (
        Code.ROUTE_NOT_FOUND, Code.PIPELINE_NOT_FOUND, Code.VERSION_NOT_FOUND, Code.RECEIPT_NOT_FOUND,
        Code.SEQUENCE_NOT_FOUND,
    ),
    405: (Code.METHOD_NOT_ALLOWED,),
    408: (Code.BODY_TOO_SLOW, Code.HEADER_TIMEOUT),
    409: (Code.CONFLICT, Code.FOLDER_CHANGED),
    410: (Code.SEQUENCE_LOST,),  # not 503: the same request sent again would be refused
    413: (Code.BODY_TOO_LARGE, Code.INPUT_TOO_LARGE, Code.OUTPUT_TOO_LARGE),
    414: (Code.URL_TOO_LONG,),
    415: (Code.UNSUPPORTED_MEDIA_TYPE,),
    417: (Code.EXPECTATION_FAILED,),
    421: (Code.MISDIRECTED,),
    422: (
        Code.QUARANTINED, Code.DEFINITION_INVALID, Code.MODEL_INVALID, Code.DIGEST_MISMATCH, Code.NOT_TRUSTED,
        Code.GOLDEN_MISMATCH, Code.LOAD_FAILED, Code.RULE_REFUSED,
    ),
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
        Code.SHUTTING_DOWN, Code.MODEL_UNAVAILABLE, Code.SEQUENCES_FULL,
    ),
    504: (Code.DEADLINE_EXCEEDED,),
}  # fmt: skip

STATUSES: dict[Code, int] = {code: status for status, codes in _CODES.items() for code in codes}


def error_answer(failure: Failure, dialect: Dialect, request_id: str) -> HttpAnswer:
    """The answer that tells a client of a failure, in the shape its dialect's clients read."""
    status = STATUSES[failure.code]
    if dialect == "v2":  # its clients want a string under "error"
        body: dict[str, object] = {"error": failure.text, "code": failure.code, "request_id": request_id}
    else:
        body = {"error": {**error_body(failure), "request_id": request_id}}
    headers = [(b"X-Request-Id", request_id.encode()), (b"X-Error-Code", failure.code.encode())]
    if failure.retry_after_s is not None or status in (429, 503):
        headers.append((b"Retry-After", b"%d" % max(1, math.ceil(failure.retry_after_s or 1))))
    return HttpAnswer(status, orjson.dumps(body), headers=headers)


def error_body(failure: Failure) -> dict[str, object]:
    """What the predict dialect says of a failure, of a whole request or of one of its rows."""
    return {"code": failure.code, "message": failure.text, "field": failure.field}
