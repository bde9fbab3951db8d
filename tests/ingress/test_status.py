"""Every code has a status; errors have the shape their dialect's clients read."""

import json

import pytest

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.ingress.status import STATUSES, error_answer


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_a_status(code: Code) -> None:
    assert 400 <= STATUSES[code] <= 599


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.JSON_INVALID, 400), (Code.PIPELINE_NOT_FOUND, 404), (Code.METHOD_NOT_ALLOWED, 405),
        (Code.BODY_TOO_SLOW, 408), (Code.CONFLICT, 409), (Code.BODY_TOO_LARGE, 413), (Code.URL_TOO_LONG, 414),
        (Code.UNSUPPORTED_MEDIA_TYPE, 415), (Code.EXPECTATION_FAILED, 417), (Code.QUARANTINED, 422),
        (Code.HEADERS_TOO_LARGE, 431), (Code.CANCELLED, 499), (Code.WORKER_CRASHED, 500), (Code.NOT_IMPLEMENTED, 501),
        (Code.QUEUE_FULL, 503), (Code.NOT_READY, 503), (Code.DEADLINE_EXCEEDED, 504),
    ],
)  # fmt: skip
def test_the_status_is_the_documented_one(code: Code, status: int) -> None:
    assert STATUSES[code] == status


def test_a_v2_error_is_a_string_with_code_and_id_beside_it() -> None:
    answer = error_answer(Refused(Code.WRONG_TYPE, "/x: no", field="/x", detail="secret"), "v2", "r1")
    assert isinstance(answer.body, bytes)
    assert json.loads(answer.body) == {"error": "/x: no", "code": "wrong_type", "request_id": "r1"}
    assert answer.headers == [(b"X-Request-Id", b"r1"), (b"X-Error-Code", b"wrong_type")]
    assert (answer.status, answer.content_type) == (400, b"application/json")


def test_a_predict_error_is_an_object() -> None:
    answer = error_answer(Refused(Code.WRONG_TYPE, "/x: no", field="/x", detail="secret"), "predict", "r1")
    assert isinstance(answer.body, bytes)
    assert json.loads(answer.body) == {
        "error": {"code": "wrong_type", "message": "/x: no", "field": "/x", "request_id": "r1"}
    }


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (Failed(Code.QUEUE_FULL, "full"), b"1"),
        (Failed(Code.QUEUE_FULL, "full", retry_after_s=0.01), b"1"),
        (Failed(Code.WORKER_CRASHED, "gone", retry_after_s=2.1), b"3"),
        (Failed(Code.INTERNAL, "no"), None),
    ],
)
def test_retry_after_is_whole_seconds_of_at_least_one(failure: Failed, seconds: bytes | None) -> None:
    assert dict(error_answer(failure, "v2", "r").headers).get(b"Retry-After") == seconds


@pytest.mark.parametrize("code", [Code.BYTES_IN_FLIGHT_FULL, Code.MEMORY_FULL, Code.SHED, Code.QUEUE_FULL])
def test_what_is_refused_for_want_of_room_is_overload_to_clients_of_tei(code: Code) -> None:
    body = error_answer(Failed(code, "no"), "tei", "r1").body
    assert isinstance(body, bytes) and json.loads(body)["error_type"] == "overloaded"
