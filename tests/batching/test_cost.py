import random

import pytest

from forwardpass.batching.cost import CONFIDENT_BATCHES, STRANGE_BATCHES, CostModel


def learnt(*pairs: tuple[float, float]) -> CostModel:
    model = CostModel()
    for cost, seconds in pairs:
        model.observe(cost, seconds)
    return model


LINE = [(cost, 0.002 + 0.001 * cost) for cost in (1, 4, 8, 16, 32)]


def test_nothing_seen_predicts_nothing_and_nobody_is_refused_on_the_word_of_the_first() -> None:
    assert CostModel().predict_s(8) == 0.0
    confident = [learnt(*LINE[:count]).confident for count in range(4)]
    assert confident == [False, False, True, True]
    assert CONFIDENT_BATCHES == 2


def test_a_line_is_learnt_from_batches_of_different_cost() -> None:
    assert learnt(*LINE * 5).predict_s(20) == pytest.approx(0.022, rel=1e-3)


def test_costs_are_of_any_unit() -> None:
    """A duration of 1 ms and 2 ns a byte; and of a cost that is nothing."""
    assert learnt(*[(size, 0.001 + 2e-9 * size) for size in (1e6, 2e6, 5e6)]).predict_s(3e6) == pytest.approx(0.007)
    assert learnt((0.0, 0.5), (0.0, 0.5)).predict_s(0.0) == pytest.approx(0.5)


def test_one_size_only_is_taken_as_proportional() -> None:
    assert learnt((8, 0.8), (8, 0.8)).predict_s(16) == pytest.approx(1.6)


def test_noise_never_makes_more_cost_cheaper() -> None:
    model = learnt((1, 0.5), (32, 0.4))
    assert model.predict_s(32) >= model.predict_s(1) > 0.0


def test_what_was_long_ago_counts_less() -> None:
    model = learnt(*[(1, 1.0)] * 50, *[(1, 0.6)] * 300)
    assert model.predict_s(1) == pytest.approx(0.6, rel=0.05)


@pytest.mark.parametrize("pace", [0.01, 20.0])
def test_a_version_that_became_faster_or_slower_is_known_after_a_few_batches(pace: float) -> None:
    model = learnt(*LINE * 20, *[(cost, seconds * pace) for cost, seconds in LINE * 2][: 2 * STRANGE_BATCHES])
    assert model.predict_s(20) == pytest.approx(0.022 * pace, rel=0.6)


def test_one_batch_that_was_slow_once_is_forgotten_soon() -> None:
    model = learnt(*LINE * 20, (8, 10.0), *LINE * 2)
    assert model.predict_s(20) < 2 * 0.022


@pytest.mark.parametrize("seed", range(10))
def test_noise_among_batches_of_nearly_one_cost_is_no_line(seed: int) -> None:
    """10 ms each, a fifth more or less."""
    chance = random.Random(seed)
    model = CostModel()
    for _ in range(100):
        model.observe(100_000 * (1 + chance.uniform(-0.001, 0.001)), 0.010 * chance.uniform(0.8, 1.2))
        assert model.predict_s(100_000) <= 0.0121
        assert model.predict_s(50_000) <= 0.0121


def test_one_cost_that_was_made_up_does_not_spoil_what_was_learnt() -> None:
    honest = [(cost, 0.001 * cost) for cost in (1.0, 20.0, 50.0, 100.0)]
    model = learnt(*honest * 50, (1e12, 0.05))
    assert 0.0 < model.predict_s(1e12) < 10.0
    for cost, seconds in honest * 50:
        model.observe(cost, seconds)
    assert model.predict_s(100.0) == pytest.approx(0.1, rel=0.3)


def test_one_batch_that_took_a_minute_is_no_new_pace() -> None:
    model = learnt(*[(32, 0.010)] * 200, (32, 60.0))
    assert model.predict_s(32) <= 0.011
