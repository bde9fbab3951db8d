"""Who answers a request that names no pipeline, while versions come and go."""

import pytest

from forwardpass.core.caller import Caller
from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failure
from forwardpass.core.pipeline import Pipeline, Signature, Step, Task, TaskKind, Version
from forwardpass.ingress.dialect import Target
from forwardpass.ingress.inference import Inference
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant

EMBEDS, RANKS = Target("", None, ("embed",)), Target("", None, ("rank", "embed"))


def variant(pipeline: str, number: int = 1, stage: Stage = Stage.READY, kind: TaskKind | None = None) -> Variant:
    """What it does is known once it is loaded, as of a real one."""
    made = Variant(Version(pipeline, number, "d", "/", Pipeline((Step("model"),))), threads=1, clock=monotonic_s)
    made.stage = stage
    if kind is not None and stage is not Stage.LOADING:
        made.signature = Signature((), (), task=Task(kind, "text", output="vector"))
    return made


def inference(*variants: Variant, default: str = "", starting: bool = False) -> Inference:
    routes = Routes()
    for one in variants:
        routes.add(one)
        routes.refresh(one.version.pipeline)
    handle = Handle(routes, 30.0, monotonic_s, receipts=Receipts(), metrics=Metrics())
    return Inference(handle, monotonic_s, default, lambda: starting)


def refusal(made: Inference, target: Target) -> Code:
    with pytest.raises(Failure) as refused:
        made.route(target)
    return refused.value.code


def test_a_newer_version_that_loads_changes_nothing_for_requests_without_a_name() -> None:
    one = variant("vectors", 1, kind="embed")
    made = inference(one, variant("vectors", 2, Stage.LOADING))
    assert made.route(EMBEDS) is one
    assert made.route(Target("")) is one


def test_the_current_version_says_what_a_pipeline_does() -> None:
    two = variant("it", 2, kind="embed")
    made = inference(variant("it", 1, kind="rank"), two)
    assert made.route(RANKS) is two


def test_what_is_not_ready_may_be_the_one_that_is_asked_for() -> None:
    other = variant("mood", kind="classify")
    assert refusal(inference(other), EMBEDS) is Code.PIPELINE_NOT_FOUND
    assert refusal(inference(other, variant("vectors", 1, Stage.LOADING)), EMBEDS) is Code.NOT_READY
    assert refusal(inference(other, variant("vectors", 1, Stage.DRAINING)), EMBEDS) is Code.NOT_READY


def test_no_other_answers_for_the_pipeline_of_the_settings_while_that_loads() -> None:
    made = inference(variant("other", kind="embed"), variant("own", 1, Stage.VERIFYING), default="own")
    assert refusal(made, EMBEDS) is Code.NOT_READY


@pytest.mark.parametrize("target", [EMBEDS, Target(""), Target("vectors"), Target("vectors", 1), Target("mood", 2)])
def test_while_the_server_starts_nothing_is_said_not_to_be_there(target: Target) -> None:
    mood = variant("mood", kind="classify")
    assert refusal(inference(mood, variant("plain"), starting=True), target) is Code.NOT_READY
    assert inference(mood, starting=True).route(Target("mood")) is mood


def test_a_request_that_names_none_is_for_what_its_caller_may_ask() -> None:
    one, two = variant("one", kind="embed"), variant("two", kind="embed")
    asks = {name: Caller("acme", scopes=frozenset({f"infer:{name}"})) for name in ("one", "two", "three")}
    for made in (inference(one, two), inference(one, two, default="two")):
        for target in (EMBEDS, Target("")):
            assert made.route(target, asks["one"]) is one
            assert made.route(target, asks["two"]) is two
        with pytest.raises(Failure) as refused:
            made.route(EMBEDS, asks["three"])
        assert refused.value.code is Code.PIPELINE_NOT_FOUND
