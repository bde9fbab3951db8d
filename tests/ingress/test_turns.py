"""Which sequence a request belongs to: V2's parameters, the predict dialect's headers, and the id in the answer."""

from typing import Any

import pytest
from tests.ingress.test_predict import call as predict
from tests.ingress.test_predict import refused as predict_refused
from tests.ingress.test_v2_parameters import applied, refused

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Pipeline, Version
from forwardpass.core.request import Turn
from forwardpass.ingress.dialects.envelope import answer_headers

VERSION = Version("p", 1, "d", "/", Pipeline(()))


@pytest.mark.parametrize(
    ("parameters", "turn"),
    [
        ({"sequence_id": 7}, Turn("7")),
        ({"sequence_end": True, "sequence_id": "call-7", "sequence_start": True}, Turn("call-7", True, True)),
        ({"sequence_id": 2**64 - 1, "sequence_start": False, "sequence_end": True}, Turn("18446744073709551615", False, True)),
        ({"sequence_id": 0, "sequence_start": False}, None),
        ({"sequence_id": ""}, None),
        ({"sequence_end": False}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_v2_parameters_name_a_turn(parameters: dict[str, Any], turn: Turn | None) -> None:
    request = applied(parameters)
    assert request.sequence == turn


@pytest.mark.parametrize(
    ("parameters", "code", "field"),
    [
        ({"sequence_id": -1}, Code.OUT_OF_RANGE, "/parameters/sequence_id"),
        ({"sequence_id": 2**64}, Code.OUT_OF_RANGE, "/parameters/sequence_id"),
        ({"sequence_id": 1.0}, Code.WRONG_TYPE, "/parameters/sequence_id"),
        ({"sequence_id": True}, Code.WRONG_TYPE, "/parameters/sequence_id"),
        ({"sequence_id": "a b"}, Code.OUT_OF_RANGE, "/parameters/sequence_id"),
        ({"sequence_id": "ü"}, Code.OUT_OF_RANGE, "/parameters/sequence_id"),
        ({"sequence_id": "a\r\nX: y"}, Code.OUT_OF_RANGE, "/parameters/sequence_id"),
        ({"sequence_id": "a" * 129}, Code.OUT_OF_RANGE, "/parameters/sequence_id"),
        ({"sequence_id": 1, "sequence_start": 1}, Code.WRONG_TYPE, "/parameters/sequence_start"),
        ({"sequence_id": 1, "sequence_end": "true"}, Code.WRONG_TYPE, "/parameters/sequence_end"),
        ({"sequence_start": True}, Code.MISSING_FIELD, "/parameters/sequence_id"),
        ({"sequence_id": 0, "sequence_end": True}, Code.MISSING_FIELD, "/parameters/sequence_id"),
        ({"sequence_stat": True}, Code.UNKNOWN_FIELD, ""),
    ],
)
def test_v2_parameters_without_sense_are_refused(parameters: dict[str, Any], code: Code, field: str) -> None:
    failure = refused(parameters)
    assert failure.code is code
    if code is not Code.UNKNOWN_FIELD:
        assert failure.field == field


def test_headers_name_a_turn_of_a_predict_call() -> None:
    assert predict({"text": "a"}).sequence is None
    assert predict({"text": "a"}, x_sequence_id="call-7").sequence == Turn("call-7")
    started = predict({"text": "a"}, x_sequence_id="7", x_sequence_start="true", x_sequence_end="False")
    assert started.sequence == Turn("7", start=True)


@pytest.mark.parametrize(
    ("headers", "code", "field"),
    [
        ({"x_sequence_id": "a b"}, Code.OUT_OF_RANGE, "X-Sequence-Id"),
        ({"x_sequence_id": "7", "x_sequence_start": "1"}, Code.WRONG_TYPE, "X-Sequence-Start"),
        ({"x_sequence_end": "true"}, Code.MISSING_FIELD, "X-Sequence-Id"),
    ],
)
def test_headers_without_sense_are_refused(headers: dict[str, str], code: Code, field: str) -> None:
    failure = predict_refused({"text": "a"}, **headers)
    assert (failure.code, failure.field) == (code, field)


def test_the_answer_says_of_which_sequence_it_is() -> None:
    assert answer_headers("r", VERSION, Turn("call-7"))[-1] == (b"X-Sequence-Id", b"call-7")
    assert b"X-Sequence-Id" not in dict(answer_headers("r", VERSION))
