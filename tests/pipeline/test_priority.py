import pytest

from forwardpass.batching.shares import NAMES, rank_of
from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.errors import Code, Refused
from forwardpass.core.request import Request
from forwardpass.core.timeline import Timeline
from forwardpass.pipeline.priority import priority_of


def asked(priority: int, caller: Caller) -> Request:
    return Request("id-1", [], 1, Timeline(), priority=priority, caller=caller)


@pytest.mark.parametrize(
    ("number", "name"),
    [(1, "critical"), (4, "critical"), (5, "standard"), (8, "standard"), (9, "sheddable"), (2**32 - 1, "sheddable")],
)
def test_a_number_is_of_the_class_that_begins_at_it_or_before(number: int, name: str) -> None:
    assert NAMES[rank_of(number) - 1] == name


def test_a_request_that_names_none_has_its_callers_class() -> None:
    assert priority_of(asked(0, Caller("a", priority="critical"))) == 1
    assert priority_of(asked(0, Caller("a", priority="sheddable"))) == 9
    assert priority_of(asked(0, ANONYMOUS)) == 5


@pytest.mark.parametrize("number", [5, 8, 9, 100])
def test_a_caller_may_ask_for_its_class_and_lower_ones(number: int) -> None:
    assert priority_of(asked(number, Caller("a"))) == number


@pytest.mark.parametrize(("number", "caller"), [(4, Caller("a")), (8, Caller("a", priority="sheddable"))])
def test_a_higher_class_than_the_callers_is_refused(number: int, caller: Caller) -> None:
    with pytest.raises(Refused) as caught:
        priority_of(asked(number, caller))
    assert (caught.value.code, caught.value.field) == (Code.FORBIDDEN, "priority")


def test_where_nobody_need_say_who_they_are_everybody_may_ask_for_any() -> None:
    assert priority_of(asked(1, ANONYMOUS)) == 1
