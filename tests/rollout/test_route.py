import pytest

from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failure
from forwardpass.core.pipeline import Pipeline, Step, Version
from forwardpass.rollout.lifecycle import MOVES, Stage, move
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant


def variant(number: int, stage: Stage = Stage.READY, pipeline: str = "p") -> Variant:
    made = Variant(Version(pipeline, number, "d", "/", Pipeline((Step("model"),))), threads=1, clock=FakeClock())
    made.stage = stage
    return made


def routes(*variants: Variant) -> Routes:
    made = Routes()
    for one in variants:
        made.add(one)
        made.refresh(one.version.pipeline)
    return made


def refusal(made: Routes, pipeline: str, number: int | None) -> Code:
    with pytest.raises(Failure) as refused:
        made.find(pipeline, number)
    return refused.value.code


def test_the_newest_ready_version_answers_unpinned_requests() -> None:
    one, two, three = variant(1), variant(2), variant(3, Stage.LOADING)
    assert routes(one, two, three).find("p", None) is two


def test_a_pinned_version_answers_as_long_as_it_is_ready() -> None:
    one, two = variant(1), variant(2)
    made = routes(one, two)
    assert made.find("p", 1) is one
    one.stage = Stage.DRAINING
    assert refusal(made, "p", 1) is Code.NOT_READY


def test_a_version_that_is_not_ready_never_answers_even_if_nobody_said_so() -> None:
    one, two = variant(1), variant(2)
    made = routes(one, two)
    two.begin_leaving()
    assert two.stage is Stage.DRAINING
    assert made.find("p", None) is one
    one.stage = Stage.UNLOADED
    assert refusal(made, "p", None) is Code.NOT_READY


def test_the_current_ones_are_those_that_answer_unpinned_requests() -> None:
    one, two, other = variant(1), variant(2), variant(1, pipeline="o")
    made = routes(one, two, variant(3, Stage.LOADING), other, variant(1, Stage.VERIFYING, "q"))
    assert made.current() == [other, two]
    two.begin_leaving()
    assert made.current() == [other, one]
    one.stage = Stage.UNLOADED
    assert made.current() == [other]


def test_what_is_not_there_is_told_from_what_is_not_ready() -> None:
    made = routes(variant(1, Stage.LOADING))
    assert refusal(made, "q", None) is Code.PIPELINE_NOT_FOUND
    assert refusal(made, "p", 9) is Code.VERSION_NOT_FOUND
    assert refusal(made, "p", None) is Code.NOT_READY


def test_when_the_newest_goes_the_one_before_answers() -> None:
    one, two = variant(1), variant(2)
    made = routes(one, two)
    made.remove(two)
    assert made.find("p", None) is one
    made.remove(one)
    assert refusal(made, "p", None) is Code.PIPELINE_NOT_FOUND
    assert made.variants() == []


@pytest.mark.parametrize("current", list(Stage))
@pytest.mark.parametrize("wanted", list(Stage))
def test_only_the_listed_moves_are_made(current: Stage, wanted: Stage) -> None:
    if wanted in MOVES[current]:
        assert move(current, wanted) is wanted
    else:
        with pytest.raises(Failure) as refused:
            move(current, wanted)
        assert refused.value.code is Code.CONFLICT


def test_only_a_verified_version_ever_becomes_ready() -> None:
    assert [stage for stage, moves in MOVES.items() if Stage.READY in moves] == [Stage.VERIFYING]
