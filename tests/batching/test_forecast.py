"""When something would run: by hand, for a version whose batches take 10 ms and 1 ms a row, 10 rows each."""

import pytest

from forwardpass.batching.forecast import RETRY_MAX_S, RETRY_MIN_S, Forecast, Work, retry_after_s
from forwardpass.core.pipeline import Batch

ONE = Work(1, 1.0, 1)


def rows(count: int) -> Work:
    return Work(count, float(count), count)


def forecast(workers: int = 1, batch: Batch | None = None) -> Forecast:
    made = Forecast(batch or Batch(rows_max=10), workers)
    for cost in (1, 5, 10) * 3:
        made.model.observe(cost, 0.010 + 0.001 * cost)
    return made


@pytest.mark.parametrize(
    ("ahead", "workers", "wait_s", "run_s"),
    [
        (0, 1, 0.0, 0.011),  # alone, at once
        (9, 1, 0.0, 0.020),  # with the others in one full batch
        (19, 1, 0.020, 0.020),  # the second of two full batches
        (99, 1, 0.180, 0.020),
        (99, 2, 0.090, 0.020),
        (99, 3, 0.060, 0.020),
    ],
)
def test_who_comes_last_waits_for_the_batches_before_its_own(
    ahead: int, workers: int, wait_s: float, run_s: float
) -> None:
    found = forecast(workers).wait_and_run_s(0.0, rows(ahead + 1))
    assert list(found) == pytest.approx([wait_s, run_s])


def test_what_runs_now_counts_with_what_is_left_of_it() -> None:
    made = forecast()
    made.workers.begin(0, 100.0, 0.5)
    made.workers.begin(0, 100.1, 0.3)
    assert made.wait_and_run_s(100.2, ONE)[0] == pytest.approx(0.3 + 0.3)


def test_a_batch_sent_ahead_begins_when_the_one_before_it_has_ended() -> None:
    made = forecast()
    first = made.workers.begin(0, 100.0, 0.5)
    second = made.workers.begin(0, 100.4, 0.3)
    assert made.workers.end(first, 100.6) == pytest.approx(0.6)
    assert made.workers.left_s(0, 100.7) == pytest.approx(0.2)
    assert made.workers.end(second, 100.9) == pytest.approx(0.3)
    assert made.workers.idle


def test_a_batch_that_is_overdue_is_expected_to_need_as_long_again() -> None:
    made = forecast()
    made.workers.begin(0, 100.0, 0.5)
    assert made.workers.left_s(0, 102.5) == pytest.approx(2.0)


def test_the_worker_that_is_free_first_takes_it() -> None:
    made = forecast(2)
    made.workers.begin(0, 100.0, 0.5)
    assert made.wait_and_run_s(100.0, ONE)[0] == 0.0
    assert made.wait_and_run_s(100.0, rows(20))[0] == pytest.approx(0.020)  # all at the other


def test_a_worker_that_starts_again_is_not_counted_on() -> None:
    made = forecast(2)
    made.workers.await_worker(1)
    assert made.wait_and_run_s(0.0, rows(100))[0] == pytest.approx(0.180)
    made.workers.await_worker(0)  # none is there: as if one were
    assert made.wait_and_run_s(0.0, rows(100))[0] == pytest.approx(0.180)


def test_batches_end_at_their_cost_too_and_none_forms_where_batching_is_off() -> None:
    dear = forecast(batch=Batch(rows_max=10, cost_max=20.0))
    assert dear.wait_and_run_s(0.0, Work(10, 100.0, 10))[0] == pytest.approx(4 * 0.030)
    single = forecast(batch=Batch(enabled=False))
    assert single.wait_and_run_s(0.0, rows(10))[0] == pytest.approx(9 * 0.011)


def test_items_that_share_no_batch_take_a_batch_each() -> None:
    assert forecast().wait_and_run_s(0.0, Work(4, 4.0, 4, 4))[0] == pytest.approx(3 * 0.011)


def test_clients_come_back_in_one_to_five_seconds_and_not_at_once() -> None:
    for wait_s in (0.0, 0.3, 2.0, 1e9):
        told = {retry_after_s(wait_s) for _ in range(50)}
        assert RETRY_MIN_S <= min(told) < max(told) <= RETRY_MAX_S
        assert len(told) > 1


def test_what_one_worker_alone_may_run_waits_for_that_one() -> None:
    made = forecast(2)
    made.workers.begin(0, 100.0, 20.0)
    assert made.wait_and_run_s(100.0, ONE, 1)[0] == 0.0
    assert made.wait_and_run_s(100.0, ONE, 0)[0] == pytest.approx(20.0)
