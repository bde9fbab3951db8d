"""Who leaves when the queue is full, and who does not."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.batching.making import item
from tests.batching.test_queue import in_loop, one_a_second, queue, taken

from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Item, Ticket
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Queue as Limits


def filled(limits: Limits, *requests: Item) -> Queue:
    waiting = queue(limits)
    for request in requests:
        waiting.put([request])
    return waiting


async def shed(items: Sequence[Item]) -> list[bool]:
    """Which of these were; who was waits no more."""
    await asyncio.sleep(0)
    gone = []
    for each in items:
        error = each.ticket.ended.exception() if each.ticket.done else None
        assert error is None or (isinstance(error, Failed) and error.code is Code.SHED)
        assert each.waiting == (error is None)
        gone.append(error is not None)
    return gone


@in_loop
async def test_of_the_lowest_class_the_last_deadline_leaves_for_what_is_more_urgent() -> None:
    items = [item(priority=9, deadline=3000.0), item(priority=9, deadline=4000.0), item(priority=5, deadline=5000.0)]
    waiting = filled(Limits(rows_max=3), *items)
    waiting.put([item(priority=1)])
    assert await shed(items) == [False, True, False]
    waiting.put([item(priority=1)])
    waiting.put([item(priority=1)])
    assert await shed(items) == [True, True, True]
    assert waiting.by_class() == {"critical": 3, "standard": 0, "sheddable": 0}


@pytest.mark.parametrize("priority", [5, 6, 9])
@in_loop
async def test_nobody_leaves_for_what_is_no_more_urgent(priority: int) -> None:
    items = [item(priority=5) for _ in range(3)]
    waiting = filled(Limits(rows_max=3), *items)
    with pytest.raises(Failed) as refused:
        waiting.put([item(priority=priority)])
    assert refused.value.code is Code.QUEUE_FULL
    assert await shed(items) == [False, False, False]


@in_loop
async def test_in_a_class_the_tenant_that_holds_the_most_leaves_until_all_hold_as_much() -> None:
    noisy = [item(tenant="noisy", deadline=2000.0 + number) for number in range(4)]
    waiting = filled(Limits(rows_max=4), *noisy)
    quiet = [item(tenant="quiet") for _ in range(3)]
    waiting.put([quiet[0]])
    waiting.put([quiet[1]])
    assert await shed(noisy) == [False, False, True, True]
    with pytest.raises(Failed) as refused:
        waiting.put([quiet[2]])
    assert refused.value.code is Code.QUEUE_FULL


@in_loop
async def test_bytes_make_room_as_rows_do() -> None:
    items = [item(priority=9, data=b"x" * 100), item(priority=9, data=b"x" * 10, deadline=2000.0)]
    waiting = filled(Limits(bytes_max=110), *items)
    waiting.put([item(data=b"x" * 50)])
    assert await shed(items) == [True, False]
    with pytest.raises(Failed) as refused:
        waiting.put([item(data=b"x" * 80)])
    assert refused.value.code is Code.QUEUE_BYTES_FULL
    assert await shed(items) == [True, False]


@in_loop
async def test_a_request_leaves_as_a_whole_and_not_once_a_part_of_it_was_taken() -> None:
    def cut(parts: int) -> list[Item]:
        ticket, made = Ticket(parts, 3000.0), [item(priority=9) for _ in range(parts)]
        for each in made:
            each.ticket = ticket
        return made

    begun, whole = cut(2), cut(2)
    waiting = queue(Limits(rows_max=3))
    waiting.put(begun)
    assert taken(waiting, 1) == begun[:1]
    waiting.put(whole)
    waiting.put([item(priority=1)])
    assert await shed(whole) == [True, True]
    assert begun[1].waiting and not begun[1].ticket.done
    waiting.put([item(priority=1)])  # there is room for this one
    with pytest.raises(Failed):
        waiting.put([item(priority=1)])
    assert not begun[1].ticket.done


@in_loop
async def test_nobody_leaves_where_that_would_not_be_enough() -> None:
    items = [item(2, priority=9), item(2, priority=1)]
    waiting = filled(Limits(rows_max=4), *items)
    with pytest.raises(Failed):
        waiting.put([item(3, priority=1)])
    assert await shed(items) == [False, False]


@in_loop
async def test_nobody_leaves_for_a_request_that_is_refused_all_the_same() -> None:
    waiting = Queue(Limits(rows_max=2), one_a_second(), lambda: 1000.0)
    items = [item(priority=1), item(priority=9)]
    for each in items:
        waiting.put([each])
    with pytest.raises(Failed) as refused:
        waiting.put([item(priority=5, deadline=1001.0)])
    assert refused.value.code is Code.QUEUE_WAIT_TOO_LONG
    assert await shed(items) == [False, False]


@in_loop
async def test_a_request_whose_leaving_would_take_its_tenant_below_the_newcomer_stays() -> None:
    large, small = item(10, tenant="a"), item(1, tenant="a", deadline=2000.0)
    waiting = filled(Limits(rows_max=12), large, small)
    waiting.put([item(2, tenant="b")])
    assert await shed([large, small]) == [False, True]
    with pytest.raises(Failed) as refused:
        waiting.put([item(tenant="c")])
    assert refused.value.code is Code.QUEUE_FULL
    assert await shed([large]) == [False]


@in_loop
async def test_all_that_can_be_shed_makes_room_for_what_an_empty_queue_would_take() -> None:
    items = [item(priority=9) for _ in range(3)]
    waiting = filled(Limits(rows_max=4), *items)
    waiting.put([item(7, priority=1)])
    assert await shed(items) == [True, True, True]
    assert waiting.rows == 7


@in_loop
async def test_the_rest_of_a_large_request_that_has_begun_does_not_fill_the_queue_for_others() -> None:
    waiting = queue(Limits(rows_max=10))
    ticket, parts = Ticket(100, 5000.0), [item() for _ in range(100)]
    for part in parts:
        part.ticket = ticket
    waiting.put(parts)
    assert len(taken(waiting, 1)) == 1
    others = [item() for _ in range(5)]
    for other in others:
        waiting.put([other])
    with pytest.raises(Failed) as refused:
        waiting.put([item()])
    assert refused.value.code is Code.QUEUE_FULL
