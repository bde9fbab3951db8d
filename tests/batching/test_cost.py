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
