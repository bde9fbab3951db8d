import pytest

from forwardpass.batching.cost import CostModel, predicted_wait_s


def learnt(*pairs: tuple[int, float], rows_max: int = 32) -> CostModel:
    model = CostModel(rows_max)
    for rows, seconds in pairs:
        model.observe(rows, seconds)
    return model


def test_nothing_seen_predicts_nothing() -> None:
    assert CostModel(32).predict_s(8) == 0.0


def test_a_line_is_learnt_from_batches_of_different_size() -> None:
    model = learnt(*[(rows, 0.002 + 0.001 * rows) for rows in (1, 4, 8, 16, 32)] * 5)
    assert model.predict_s(20) == pytest.approx(0.022, rel=1e-3)


def test_one_size_only_is_taken_as_proportional() -> None:
    assert learnt((8, 0.8), (8, 0.8)).predict_s(16) == pytest.approx(1.6)


def test_noise_never_makes_more_rows_cheaper() -> None:
    model = learnt((1, 0.5), (32, 0.1))
    assert model.predict_s(32) >= model.predict_s(1) > 0.0


def test_what_was_long_ago_counts_less() -> None:
    model = learnt(*[(1, 1.0)] * 50, *[(1, 0.1)] * 300)
    assert model.predict_s(1) == pytest.approx(0.1, rel=0.2)


def test_the_predicted_wait_counts_full_batches_over_all_workers() -> None:
    model = learnt(*[(rows, 0.01 * rows) for rows in (1, 16, 32)] * 5)
    one = predicted_wait_s(64, 64, model, 1)
    assert one == pytest.approx(0.64, rel=1e-3)
    assert predicted_wait_s(64, 64, model, 2) == pytest.approx(one / 2)
    assert predicted_wait_s(0, 0, model, 1) == 0.0
