"""V2 request parameters: ours are checked, reserved ones refused, all others without effect."""

from typing import Any

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.core.request import Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.v2_parameters import apply_parameters


def applied(parameters: dict[str, Any]) -> Request:
    request = Request("id-1", [], 0, Timeline())
    apply_parameters(request, parameters)
    return request


def refused(parameters: dict[str, Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        applied(parameters)
    return caught.value


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"timeout": -1}, Code.OUT_OF_RANGE), ({"timeout": "1"}, Code.WRONG_TYPE), ({"timeout": 1.5}, Code.WRONG_TYPE),
        ({"timeout": True}, Code.WRONG_TYPE), ({"priority": -5}, Code.OUT_OF_RANGE), ({"priority": 2**32}, Code.OUT_OF_RANGE),
        ({"receipt": "no"}, Code.OUT_OF_RANGE), ({"binary_data_output": 1}, Code.WRONG_TYPE),
        ({"binary_data_ouput": True}, Code.UNKNOWN_FIELD), ({"__proto__": 1}, Code.UNKNOWN_FIELD),
        ({"__class__": 1}, Code.UNKNOWN_FIELD), ({"constructor": 1}, Code.UNKNOWN_FIELD),
        ({"classification": 1}, Code.UNKNOWN_FIELD), ({"a b": 1}, Code.UNKNOWN_FIELD),
        ({"a": "x" * 1025}, Code.OUT_OF_RANGE), ({f"p{i}": 1 for i in range(65)}, Code.OUT_OF_RANGE),
    ],
)  # fmt: skip
def test_a_parameter_without_sense_is_refused(parameters: dict[str, Any], code: Code) -> None:
    assert refused(parameters).code == code


def test_parameters_set_the_request_and_others_are_without_effect() -> None:
    parameters = {"timeout": 500_000, "priority": 3, "receipt": "full", "sequence_id": 0, "my_own": "x", "k": 1.5}
    request = applied(parameters)
    assert (request.deadline_s, request.priority, request.receipt) == (0.5, 3, True)
    assert request == applied({"timeout": 500_000, "priority": 3, "receipt": "full"})


@pytest.mark.parametrize(("timeout", "deadline"), [(0, None), (1, 1e-6), (10**12, 300.0), (10**30, 300.0)])
def test_a_timeout_is_cut_to_the_longest_deadline(timeout: int, deadline: float | None) -> None:
    assert applied({"timeout": timeout}).deadline_s == deadline
