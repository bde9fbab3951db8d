import msgspec
import pytest

from forwardpass.batching.executed import EXACT_ROWS_MAX, Executed, Runs
from forwardpass.core.timeline import BatchReport


def report(rows: int, execute_s: float = 0.0) -> BatchReport:
    return BatchReport(1, 0.0, rows, 1, "worker_free", 0, 0.0, 0, 0.25, execute_s, 0.5)


def test_batches_of_one_size_are_counted_and_timed_together() -> None:
    executed = Executed()
    for rows, execute_s in ((2, 1.0), (3, 4.0), (2, 2.0)):
        executed.add(report(rows, execute_s))
    assert (executed.executions, executed.rows) == (3, 7)
    assert executed.by_rows == {2: Runs(2, 0.5, 3.0, 1.0), 3: Runs(1, 0.25, 4.0, 0.5)}


def test_padding_of_all_batches_is_added_up() -> None:
    executed = Executed()
    for _ in range(2):
        executed.add(msgspec.structs.replace(report(2), elements=7, padding=3))
    assert (executed.elements, executed.padding) == (14, 6)


@pytest.mark.parametrize(
    ("rows", "counted_as"), [(1, 1), (1000, 1000), (1024, 1024), (1025, 2048), (2048, 2048), (2049, 4096)]
)
def test_sizes_beyond_a_bound_count_with_the_next_power_of_two(rows: int, counted_as: int) -> None:
    executed = Executed()
    executed.add(report(rows))
    assert list(executed.by_rows) == [counted_as]


def test_any_number_of_sizes_takes_a_bounded_number_of_lines() -> None:
    executed = Executed()
    for rows in range(1, 50_000):
        executed.add(report(rows))
    assert len(executed.by_rows) <= EXACT_ROWS_MAX + 31
    assert sum(runs.count for runs in executed.by_rows.values()) == executed.executions == 49_999
