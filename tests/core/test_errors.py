"""Failures get through whatever they are made of."""

import msgspec
import pytest

from forwardpass.core.errors import Code, Failed, Failure, Misconfigured, Problem, Refused

HALF = "\ud800 caf\u00e9"  # half a surrogate pair, which UTF-8 has no form for


@pytest.mark.parametrize("kind", [Refused, Failed])
def test_what_is_kept_of_any_text_can_be_encoded(kind: type[Failure]) -> None:
    failure = kind(Code.INTERNAL, HALF, field=HALF, detail=HALF)
    assert (failure.text, failure.detail) == ("\\ud800 caf\u00e9",) * 2
    assert msgspec.msgpack.encode([str(failure), failure.text, failure.field, failure.detail])


def test_a_detail_that_comes_later_can_be_encoded_too() -> None:
    failure = Failed(Code.INTERNAL, "no")
    failure.detail = HALF
    assert failure.detail == "\\ud800 caf\u00e9"


def test_what_an_operator_is_told_can_be_encoded() -> None:
    refusal = Misconfigured(Code.LOAD_FAILED, (Problem(HALF, HALF, HALF, HALF, 3),), detail=HALF)
    assert msgspec.msgpack.encode([str(refusal), refusal.text, refusal.problems, refusal.detail])
