import asyncio
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batching.making import item

from forwardpass.batching.forecast import HEADROOM, Forecast
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Ticket
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Tickets need a loop; nothing here waits on real time."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def queue(limits: Limits | None = None, forecast: Forecast | None = None, clock: FakeClock | None = None) -> Queue:
    return Queue(limits or Limits(), forecast or Forecast(Batch()), clock or FakeClock())


def one_a_second() -> Forecast:
    """Batches of one row, a second each, learnt."""
    made = Forecast(Batch(rows_max=1))
    for _ in range(2):
        made.model.observe(1.0, 1.0)
    return made


def taken(waiting: Queue, rows_max: int = 32, cost_max: float | None = None, *, together: bool = True) -> list[Any]:
    view = waiting.view(1000.0)
    assert view is not None
    return waiting.take(view.key, rows_max, cost_max, together=together)


@in_loop
async def test_items_leave_in_the_order_of_priority_then_deadline_then_arrival() -> None:
    waiting = queue()
    low, soon, late, same = item(priority=9), item(deadline=2000.0), item(deadline=3000.0), item(deadline=3000.0)
    waiting.put([low, late, same, soon])
    assert taken(waiting) == [soon, late, same, low]


@in_loop
async def test_only_items_of_one_key_are_taken_together() -> None:
    waiting = queue()
    first, other, second = item(key="a"), item(key="b"), item(key="a")
    waiting.put([first, other, second])
    assert taken(waiting) == [first, second]
    assert taken(waiting) == [other]


@in_loop
async def test_a_batch_never_holds_more_than_rows_max() -> None:
    waiting = queue()
    waiting.put([item(20), item(20), item(12)])
    assert [[i.rows for i in taken(waiting)] for _ in range(2)] == [[20], [20, 12]]


@in_loop
async def test_one_item_dearer_than_the_whole_batch_budget_runs_alone_at_once() -> None:
    waiting = queue()
    dear, cheap = item(cost=500.0), item(cost=1.0)
    waiting.put([dear, cheap])
    assert taken(waiting, cost_max=100.0) == [dear]
    assert taken(waiting, cost_max=100.0) == [cheap]


@in_loop
async def test_abandoned_items_are_never_taken_and_leave_the_counts() -> None:
    waiting = queue()
    gone, stays = item(), item()
    waiting.put([gone, stays])
    gone.ticket.finish(Failed(Code.CANCELLED, "gone"))
    waiting.discard([gone])
    assert (waiting.items, waiting.rows) == (1, 1)
    assert taken(waiting) == [stays]
    assert waiting.view(1000.0) is None


@in_loop
async def test_an_item_that_ended_unnoticed_is_dropped_when_it_surfaces() -> None:
    waiting = queue()
    expired = item()
    waiting.put([expired])
    expired.ticket.finish(Failed(Code.DEADLINE_EXCEEDED, "late"))
    assert taken(waiting) == []
    assert (waiting.items, waiting.rows, waiting.bytes) == (0, 0, 0)
    with pytest.raises(Failed):
        await expired.ticket.ended


@pytest.mark.parametrize(
    ("limits", "code", "bound"),
    [
        (Limits(rows_max=3), Code.QUEUE_FULL, "queue.rows_max"),
        (Limits(bytes_max=3), Code.QUEUE_BYTES_FULL, "queue.bytes_max"),
    ],
)
@in_loop
async def test_a_full_queue_refuses_with_the_bounds_name(limits: Limits, code: Code, bound: str) -> None:
    waiting = queue(limits)
    waiting.put([item(), item(), item()])
    with pytest.raises(Failed) as refused:
        waiting.put([item()])
    assert refused.value.code is code
    assert bound in refused.value.text
    assert refused.value.retry_after_s is not None
    assert waiting.items == 3


@in_loop
async def test_a_wait_longer_than_the_deadline_is_refused_at_the_door() -> None:
    """Three wait, so the answer would come after four seconds."""
    waiting = queue(forecast=one_a_second())
    waiting.put([item(deadline=1004.0) for _ in range(3)])
    with pytest.raises(Failed, match=r"deadline: .* 4\.000 s; 4\.000 s are left") as refused:
        waiting.put([item(deadline=1004.0)])
    assert refused.value.code is Code.QUEUE_WAIT_TOO_LONG
    assert refused.value.retry_after_s is not None and 2.4 <= refused.value.retry_after_s <= 3.6
    waiting.put([item(deadline=1000.0 + 4.0 * HEADROOM)])


@in_loop
async def test_a_wait_longer_than_the_pipeline_allows_is_refused_at_the_door() -> None:
    waiting = queue(Limits(wait_max_s=2.5), one_a_second())
    waiting.put([item(), item(), item()])
    with pytest.raises(Failed, match=r"queue\.wait_max_s: the predicted wait is 3\.000 s") as refused:
        waiting.put([item()])
    assert refused.value.code is Code.QUEUE_WAIT_TOO_LONG


@in_loop
async def test_a_version_that_has_nothing_to_do_tries_what_it_would_be_late_with() -> None:
    forecast, clock = one_a_second(), FakeClock()
    waiting = queue(forecast=forecast, clock=clock)
    waiting.put([item(deadline=1000.5)])
    assert len(taken(waiting, 1)) == 1
    forecast.workers.begin(0, clock(), 1.0)
    with pytest.raises(Failed):
        waiting.put([item(deadline=1000.5)])


@in_loop
async def test_what_is_more_urgent_does_not_wait_for_what_is_less() -> None:
    waiting = queue(forecast=one_a_second())
    waiting.put([item(priority=5) for _ in range(9)])
    waiting.put([item(priority=1, deadline=1002.0)])
    with pytest.raises(Failed):
        waiting.put([item(priority=5, deadline=1002.0)])


@in_loop
async def test_what_must_be_ready_sooner_does_not_wait_for_what_has_time() -> None:
    waiting = queue(forecast=one_a_second())
    waiting.put([item(deadline=1030.0) for _ in range(9)])
    waiting.put([item(deadline=1002.0)])
    with pytest.raises(Failed, match=r"in 2\.000 s"):
        waiting.put([item(deadline=1002.1)])


@in_loop
async def test_a_tenant_does_not_wait_for_what_another_has_more_than_its_share() -> None:
    """Two of its own, so two of the other's before each: a third is ready after five seconds, a stranger's after one."""
    waiting = queue(forecast=one_a_second())
    waiting.put([item(tenant="noisy") for _ in range(20)])
    waiting.put([item(tenant="quiet", deadline=1005.0) for _ in range(2)])
    waiting.put([item(tenant="quiet", deadline=1000.0 + 5.0 * HEADROOM)])
    with pytest.raises(Failed, match=r"in 7\.000 s"):
        waiting.put([item(tenant="quiet", deadline=1007.0)])
    waiting.put([item(tenant="third", deadline=1000.0 + 1.0 * HEADROOM)])


@in_loop
async def test_what_would_be_over_before_the_worker_is_free_waits_on_and_what_is_over_is_never_taken() -> None:
    clock = FakeClock()
    waiting = queue(clock=clock)
    over, soon, far = item(deadline=1000.5), item(deadline=1003.0), item()
    waiting.put([over])
    waiting.put([soon])
    waiting.put([far])
    clock.advance(1.0)
    assert waiting.take(None, 32, None, together=True, starts_in_s=2.0) == [far]
    assert (soon.waiting, over.waiting) == (True, False)
    with pytest.raises(Failed) as ended:
        await over.ticket.ended
    assert ended.value.code is Code.DEADLINE_EXCEEDED
    assert waiting.take(None, 32, None, together=True, starts_in_s=2.0) == []
    assert taken(waiting) == [soon]


@in_loop
async def test_under_pressure_what_would_be_late_makes_place_for_what_is_in_time() -> None:
    """A batch takes a second, and two batches wait: the first would be ready for nobody."""
    clock = FakeClock()
    forecast = one_a_second()
    waiting = queue(forecast=forecast, clock=clock)
    late, good = item(deadline=1009.0), item(deadline=1020.0)
    waiting.put([late])
    waiting.put([good])
    clock.advance(8.5)
    assert taken(waiting, 1) == [good]
    with pytest.raises(Failed) as ended:
        await late.ticket.ended
    assert ended.value.code is Code.SHED
    waiting.put([alone := item(deadline=1009.0)])
    assert taken(waiting, 1) == [alone]  # nobody else is there


@in_loop
async def test_all_of_a_request_comes_in_or_none_of_it() -> None:
    waiting = queue(Limits(rows_max=3))
    waiting.put([item(2)])
    with pytest.raises(Failed):
        waiting.put([item(1), item(1)])
    assert waiting.rows == 2


@in_loop
async def test_one_arrival_wakes_one_waiter_and_the_next_is_told_when_more_came() -> None:
    waiting = queue()
    woken: list[int] = []

    async def wait(name: int) -> None:
        await waiting.arrival()
        woken.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in range(2)]
    await asyncio.sleep(0)
    waiting.put([item(), item()])
    await asyncio.gather(*tasks)
    assert woken == [0, 1]


@in_loop
async def test_arrival_ends_when_its_time_is_over() -> None:
    waiting = queue()
    await asyncio.wait_for(waiting.arrival(0.001), 5.0)
    waiting.put([item()])
    assert waiting.items == 1  # nobody is left waiting who could swallow the wake-up


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from("abc"), st.integers(1, 9), st.booleans()), max_size=40))
@settings(max_examples=60, deadline=None)
def test_every_live_item_leaves_exactly_once_and_the_books_balance(script: list[tuple[int, str, int, bool]]) -> None:
    async def run() -> None:
        waiting = queue()
        alive = []
        for rows, key, priority, abandoned in script:
            one = item(rows, key=key, priority=priority)
            waiting.put([one])
            if abandoned:
                one.ticket.finish(Failed(Code.CANCELLED, "gone"))
                waiting.discard([one])
                with pytest.raises(Failed):
                    await one.ticket.ended
            else:
                alive.append(one)
        left = []
        while waiting.view(1000.0) is not None:
            left += taken(waiting, 8)
        assert sorted(map(id, left)) == sorted(map(id, alive))
        assert (waiting.items, waiting.rows, waiting.bytes) == (0, 0, 0)

    asyncio.run(run())


class Data(bytearray):
    """Bytes that say when they are gone."""


@pytest.mark.parametrize("leave", ["discard", "take"])
@in_loop
async def test_nothing_holds_the_bytes_of_a_request_that_has_left(leave: str) -> None:
    waiting = queue()
    waiting.put([item(priority=1 if leave == "discard" else 9)])  # so that the queue is never empty
    gone = []
    for _ in range(100):
        one = item()
        one.columns = [data := Data(b"x")]
        gone.append(weakref.ref(data))
        del data
        waiting.put([one])
        if leave == "take":
            assert taken(waiting, 1) == [one]
        else:
            waiting.discard([one])
        del one
    assert not any(data() for data in gone)


@in_loop
async def test_when_nobody_is_in_time_a_batch_is_filled_all_the_same() -> None:
    """The prediction may be wrong; and no more are ended than a full batch displaces."""
    forecast, clock = Forecast(Batch(rows_max=4)), FakeClock()
    for _ in range(2):
        forecast.model.observe(4.0, 10.0)
    waiting = queue(forecast=forecast, clock=clock)
    late = [item(deadline=1002.0 + number) for number in range(6)]
    waiting.put(late)
    assert taken(waiting, 4) == late[:4]
    assert not any(one.ticket.done for one in late)


@pytest.mark.parametrize("in_time", [1, 3, 4])
@in_loop
async def test_who_is_late_has_the_places_that_are_left_and_only_who_had_to_make_way_ends(in_time: int) -> None:
    forecast = Forecast(Batch(rows_max=4))
    for _ in range(2):
        forecast.model.observe(4.0, 10.0)
    waiting = queue(forecast=forecast)
    late, good = [item(deadline=1002.0) for _ in range(10)], [item() for _ in range(in_time)]
    waiting.put([*late, *good])
    batch = taken(waiting, 4)
    assert (batch[:in_time], len(batch)) == (good, 4)
    assert sum(one.ticket.done for one in late) == in_time
    assert waiting.items == 10 - 4


@in_loop
async def test_a_lone_request_is_taken_while_some_worker_is_free() -> None:
    forecast = Forecast(Batch(rows_max=1), 4)
    for _ in range(2):
        forecast.model.observe(1.0, 60.0)
    forecast.workers.begin(0, 1000.0, 60.0)
    waiting = queue(forecast=forecast)
    waiting.put([item(deadline=1000.5)])
    with pytest.raises(Failed):
        waiting.put([item(deadline=1000.5)])


@in_loop
async def test_other_shapes_that_would_be_served_later_do_not_count() -> None:
    """A batch takes 10 ms and 1 ms a row; of 60 shapes that another tenant asks, sheddable ones and its own wait."""
    forecast = Forecast(Batch(rows_max=32))
    for cost in (1, 8, 32) * 4:
        forecast.model.observe(cost, 0.010 + 0.001 * cost)
    waiting = queue(forecast=forecast)
    for number in range(60):
        waiting.put([item(priority=9 if number % 2 else 5, key=number, tenant="noisy")])
    waiting.put([item(priority=5, key="k", tenant="quiet", deadline=1000.2)])
    waiting.put([item(priority=1, key="k", tenant="quiet", deadline=1000.05)])


@in_loop
async def test_a_requests_own_batches_are_no_wait() -> None:
    forecast = one_a_second()
    forecast.workers.begin(0, 1000.0, 0.01)
    waiting = queue(Limits(wait_max_s=5.0), forecast)
    ticket, parts = Ticket(8, 1300.0), [item() for _ in range(8)]
    for one in parts:
        one.ticket = ticket
    waiting.put(parts)
    with pytest.raises(Failed, match=r"queue\.wait_max_s"):
        waiting.put([item()])


@in_loop
async def test_what_comes_back_from_a_lost_worker_is_not_charged_again() -> None:
    waiting = queue()
    waiting.put([item(10, tenant="unlucky")])
    for tenant in ("lucky", "unlucky"):
        waiting.put([item(10, tenant=tenant) for _ in range(2)])
    lost = taken(waiting, 1)
    assert [one.tenant for one in lost] == ["unlucky"]
    waiting.put_back(lost)
    assert [taken(waiting, 1)[0].tenant for _ in range(4)] == ["unlucky", "lucky", "unlucky", "lucky"]


@in_loop
async def test_waiting_for_company_ends_in_time_for_the_deadline() -> None:
    forecast = Forecast(Batch(rows_max=8, wait_ms=250))
    for _ in range(2):
        forecast.model.observe(1.0, 0.04)
    waiting = queue(forecast=forecast)
    waiting.put([item(deadline=1000.2)])
    view = waiting.view(1000.0)
    assert view is not None and view.spare_s == pytest.approx(0.2 - HEADROOM * 0.04)
    assert waiting.predicted_wait_s() == pytest.approx(0.25)


@in_loop
async def test_who_is_told_at_once_that_its_deadline_passed_may_forget_what_waits() -> None:
    clock = FakeClock()
    waiting = queue(clock=clock)
    late, other = item(deadline=1001.0), item()
    late.ticket.then = lambda ticket: waiting.discard([late])
    waiting.put([late])
    waiting.put([other])
    clock.advance(2.0)
    assert taken(waiting) == [other]
    assert late.ticket.failure is not None and waiting.items == 0


@in_loop
async def test_who_is_told_at_once_that_it_made_room_may_forget_what_waits() -> None:
    waiting = queue(Limits(rows_max=1))
    low, urgent = item(priority=9), item(priority=1)
    low.ticket.then = lambda ticket: waiting.discard([low])
    waiting.put([low])
    waiting.put([urgent])
    assert low.ticket.failure is not None and low.ticket.failure.code is Code.SHED
    assert taken(waiting) == [urgent]
