"""Rows that are filled up to the longest of their batch: who shares one, what that saves, and that nobody starves."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batching.making import FAR, item

from forwardpass.batching.alike import PASSED_MAX, alike
from forwardpass.batching.forecast import Forecast
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import FakeClock
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits

NOBODY_S = 0.0


def text(length: int, *, deadline: float = FAR, priority: int = 5, tenant: str = "", rows: int = 1) -> Item:
    made = item(rows, key="text", deadline=deadline, priority=priority, tenant=tenant)
    made.length = length
    return made


def queue(*items: Item, clock: FakeClock | None = None) -> Queue:
    made = Queue(Limits(), Forecast(Batch(rows_max=4)), clock or FakeClock())
    made.put(items)
    return made


def lengths(items: list[Item]) -> list[int]:
    return [each.length for each in items]


def filled_up(batches: list[list[Item]]) -> int:
    """By the definition: every row of a batch up to its longest."""
    return sum(max(lengths(batch)) * len(batch) - sum(lengths(batch)) for batch in batches)


def emptied(waiting: Queue, rows_max: int) -> list[list[Item]]:
    batches = []
    while waiting.rows:
        batches.append(waiting.take("text", rows_max, None, together=True))
    return batches


def test_the_first_goes_with_those_nearest_in_length() -> None:
    waiting = queue(*map(text, (10, 90, 11, 95, 12, 99, 13, 50)))
    assert lengths(waiting.take("text", 4, None, together=True)) == [10, 11, 12, 13]
    assert lengths(waiting.take("text", 4, None, together=True)) == [90, 95, 99, 50]
    assert waiting.rows == 0


def test_where_all_fit_nobody_is_passed_over() -> None:
    waiting = queue(*map(text, (10, 90, 11)))
    assert lengths(waiting.take("text", 4, None, together=True)) == [10, 90, 11]


def test_rows_that_are_not_filled_up_leave_in_their_order() -> None:
    waiting = queue(*map(text, (0, 0, 0, 0, 0, 0)))
    numbers = [each.number for each in waiting.waiting()]
    assert [each.rows for each in waiting.take("text", 4, None, together=True)] == [1, 1, 1, 1]
    assert [each.number for each in waiting.waiting()] == numbers[4:]


def test_who_was_passed_over_often_enough_goes_whatever_its_length() -> None:
    items = [text(10), text(1000), *[text(10) for _ in range(8)]]
    for times in range(PASSED_MAX + 1):
        chosen, passed = alike(items, 4, None, NOBODY_S)
        assert (items[1] in chosen, items[1] in passed) == (times == PASSED_MAX, times < PASSED_MAX)


def test_who_would_have_no_time_for_one_batch_more_is_not_passed_over() -> None:
    urgent, patient = text(90, deadline=5.0), text(95)
    chosen, passed = alike([text(10), patient, text(11), urgent, text(12)], 3, None, urgent_s=6.0)
    assert urgent in chosen
    assert patient in passed


def test_more_urgent_classes_go_first_whatever_their_length() -> None:
    waiting = queue(*[text(10) for _ in range(8)], text(500, priority=1))
    assert lengths(waiting.take("text", 4, None, together=True))[0] == 500


def test_a_batch_ends_at_its_cost() -> None:
    waiting = queue(*map(text, (10, 90, 11, 95)))
    assert lengths(waiting.take("text", 64, 2.0, together=True)) == [10, 11]


def test_mixed_lengths_are_filled_up_with_about_half_of_what_their_order_would_take() -> None:
    chance = random.Random(3)
    items = [text(chance.randint(33, 64)) for _ in range(512)]
    in_order = [items[start : start + 16] for start in range(0, 512, 16)]
    batches = emptied(queue(*items), 16)
    assert sum(map(len, batches)) == 512
    assert filled_up(batches) < 0.55 * filled_up(in_order)


ITEMS = st.lists(
    st.tuples(st.integers(1, 100), st.integers(1, 3), st.sampled_from("ab"), st.sampled_from([1, 5])),
    min_size=1,
    max_size=60,
)


@given(ITEMS, st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_each_leaves_once_and_within_its_bound(given_items: list[tuple[int, int, str, int]], rows_max: int) -> None:
    items = [
        text(length, rows=rows, tenant=tenant, priority=priority) for length, rows, tenant, priority in given_items
    ]
    waiting = queue(*items)
    left: list[Item] = []
    while waiting.rows:
        batch = waiting.take("text", rows_max, None, together=True)
        assert batch
        assert len(batch) == 1 or sum(each.rows for each in batch) <= rows_max
        left += batch
    assert sorted(map(id, left)) == sorted(map(id, items))
    assert all(each.passed <= PASSED_MAX + len(items) // max(1, rows_max) for each in items)
