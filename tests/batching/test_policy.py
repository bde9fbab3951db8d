import pytest

from forwardpass.batching.policy import Release, Wait, Waiting, linger_s, prefetch_at, release, shared_rows
from forwardpass.core.pipeline import Batch


def waiting(
    rows: int = 1, *, cost: float = 1.0, age_s: float = 0.0, alone: bool = False, spare_s: float = 1.0
) -> Waiting:
    return Waiting("key", rows, cost, age_s, alone, spare_s)


@pytest.mark.parametrize(
    ("batch", "seen", "decision"),
    [
        (Batch(), waiting(), Release("worker_free")),
        (Batch(rows_max=4), waiting(4), Release("rows_max")),
        (Batch(rows_max=4), waiting(9), Release("rows_max")),
        (Batch(wait_ms=10), waiting(1, age_s=0.004), Wait(0.006)),
        (Batch(wait_ms=10), waiting(1, age_s=0.010), Release("wait_over")),
        (Batch(wait_ms=10), waiting(1, age_s=0.001, spare_s=0.004), Wait(0.004)),
        (Batch(wait_ms=10), waiting(1, age_s=0.001, spare_s=0.0), Release("deadline_near")),
        (Batch(wait_ms=10, rows_max=2), waiting(2), Release("rows_max")),
        (Batch(wait_ms=10, cost="bytes", cost_max=100), waiting(1, cost=100), Release("cost_max")),
        (Batch(enabled=False, wait_ms=10), waiting(5), Release("batching_off")),
        (Batch(wait_ms=10), waiting(1, alone=True), Release("rerun_alone")),
    ],
)
def test_a_batch_is_released_for_the_reason_that_holds(batch: Batch, seen: Waiting, decision: Release | Wait) -> None:
    found = release(seen, batch, batch.rows_cut)
    if isinstance(decision, Wait):
        assert isinstance(found, Wait)
        assert found.seconds == pytest.approx(decision.seconds)
    else:
        assert found == decision


def test_a_batch_is_sent_ahead_only_when_preprocessing_is_worth_hiding() -> None:
    assert prefetch_at(10.0, 0.100, 0.001) is None
    assert prefetch_at(10.0, 0.0, 0.0) is None


def test_a_batch_is_sent_ahead_as_late_as_it_can_still_be_hidden() -> None:
    assert prefetch_at(10.0, 0.100, 0.020) == pytest.approx(10.0 + 0.100 - 1.3 * 0.020)


def test_preprocessing_longer_than_execution_is_sent_ahead_at_once() -> None:
    assert prefetch_at(10.0, 0.100, 0.090) == 10.0


@pytest.mark.parametrize(
    ("waiting_rows", "last_rows", "last_s", "seconds"),
    [
        (1, 32, 0.3, 0.009),  # after a large batch: wait a little for the clients that were just answered
        (16, 32, 0.3, 0.0),  # enough is there
        (1, 1, 0.3, 0.0),  # a lone client is never kept waiting
        (1, 32, 0.001, 0.0),  # too short to matter
        (1, 32, 60.0, 0.02),  # never longer than the bound
    ],
)
def test_a_worker_lingers_for_the_clients_it_just_answered(
    waiting_rows: int, last_rows: int, last_s: float, seconds: float
) -> None:
    assert linger_s(waiting_rows, last_rows, last_s) == pytest.approx(seconds)


def test_preprocessing_under_a_millisecond_is_never_sent_ahead() -> None:
    assert prefetch_at(10.0, 0.002, 0.0009) is None


@pytest.mark.parametrize(
    ("rows", "free_in_s", "fixed_s", "per_row_s", "taken"),
    [
        (16, [0.0], 0.001, 0.010, 16),  # nobody else
        (16, [0.0, 0.0], 0.0, 0.010, 8),  # two that are idle: half each
        (16, [0.0, 0.0, 0.0, 0.0], 0.0, 0.010, 4),
        (16, [0.0, 0.04], 0.0, 0.010, 10),  # the other is free when four more have run: ten here, six there
        (16, [0.0, 0.2], 0.0, 0.010, 16),  # later than all would be done
        (16, [0.0, 0.0], 0.010, 0.0001, 16),  # half of it takes nearly as long as all
        (16, [0.0, 0.0], 0.001, 0.0, 16),
        (1, [0.0, 0.0], 0.0, 0.010, 1),
        (16, [0.05, 0.0], 0.0, 0.010, 6),  # sent ahead: it begins when the other has run five
    ],
)
def test_what_waits_is_shared_with_a_worker_that_is_free_soon_where_all_is_done_sooner_so(
    rows: int, free_in_s: list[float], fixed_s: float, per_row_s: float, taken: int
) -> None:
    """Expected by hand: both end at the same time."""
    assert shared_rows(rows, free_in_s, fixed_s, per_row_s) == taken
