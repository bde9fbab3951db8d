"""Whose turn it is, in plain steps: items come and leave one by one, and there is no time."""

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batching.making import item
from tests.batching.test_queue import in_loop, queue, taken

from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Held, Item
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Queue as Limits


def order(waiting: Queue, count: int) -> list[Item]:
    return [one for _ in range(count) for one in taken(waiting, 1)]


@in_loop
async def test_tenants_are_served_in_turn_and_each_in_the_order_of_its_deadlines() -> None:
    waiting = queue()
    for number in range(6):
        waiting.put([item(tenant="noisy", deadline=3000.0 - number)])
    for number in range(2):
        waiting.put([item(tenant="quiet", deadline=9000.0 + number)])
    left = order(waiting, 8)
    assert [one.tenant[0] for one in left] == list("nqnqnnnn")
    assert [one.ticket.deadline for one in left if one.tenant == "noisy"] == [2995.0 + number for number in range(6)]


@in_loop
async def test_a_turn_is_as_long_as_its_cost() -> None:
    waiting = queue()
    waiting.put([item(tenant="dear", cost=30.0) for _ in range(3)])
    waiting.put([item(tenant="cheap", cost=10.0) for _ in range(9)])
    first = Counter(one.tenant for one in order(waiting, 8))
    assert first == {"cheap": 6, "dear": 2}


@in_loop
async def test_nobody_gets_more_by_declaring_their_rows_to_cost_nothing() -> None:
    waiting = queue()
    waiting.put([item(tenant="liar", cost=0.0) for _ in range(4)])
    waiting.put([item(tenant="honest") for _ in range(4)])
    assert Counter(one.tenant for one in order(waiting, 4)) == {"liar": 2, "honest": 2}


@in_loop
async def test_a_tenant_that_was_away_is_not_given_what_it_missed() -> None:
    waiting = queue()
    waiting.put([item(tenant="busy") for _ in range(20)])
    order(waiting, 10)
    waiting.put([item(tenant="back") for _ in range(5)])
    assert Counter(one.tenant for one in order(waiting, 6)) == {"busy": 3, "back": 3}


@in_loop
async def test_a_tenant_cannot_begin_anew_by_leaving_for_a_moment() -> None:
    waiting = queue()
    waiting.put([item(tenant="patient") for _ in range(20)])
    served: Counter[str] = Counter()
    for _ in range(10):
        waiting.put([item(20, tenant="clever")])
        served += Counter({one.tenant: one.rows for one in order(waiting, 1)})
    assert served["patient"] >= 9  # in front of the second of those 20 rows


@in_loop
async def test_more_urgent_classes_go_first_whoever_asks() -> None:
    waiting = queue()
    waiting.put([item(tenant="one", priority=5), item(tenant="one", priority=9)])
    waiting.put([item(tenant="two", priority=9), item(tenant="two", priority=1), item(tenant="two", priority=4)])
    assert [one.priority for one in order(waiting, 5)] == [1, 4, 5, 9, 9]


@in_loop
async def test_a_batch_holds_items_of_several_tenants_in_turn() -> None:
    waiting = queue()
    waiting.put([item(tenant="noisy") for _ in range(9)])
    waiting.put([item(tenant="quiet") for _ in range(2)])
    assert Counter(one.tenant for one in taken(waiting, 4)) == {"noisy": 2, "quiet": 2}


@in_loop
async def test_a_worker_is_given_what_only_it_may_run_when_that_tenants_turn_comes() -> None:
    waiting = queue()
    pinned = item(tenant="one", key=(1, None))
    pinned.held = Held(1, 1, False, False)
    waiting.put([pinned])
    waiting.put([item(tenant="two")])
    views = [waiting.view(1000.0, worker) for worker in (0, 1)]
    assert [view and view.key for view in views] == [None, (1, None)]


STEP = st.tuples(
    st.sampled_from(["put", "put", "take", "leave"]),
    st.sampled_from("abc"),
    st.sampled_from([1, 4, 5, 9]),
    st.integers(1, 4),
    st.sampled_from("xy"),
)


@given(st.lists(STEP, max_size=80))
@settings(max_examples=150, deadline=None)
def test_whatever_comes_and_leaves_bounds_hold_tickets_end_once_and_the_books_balance(
    script: list[tuple[str, str, int, int, str]],
) -> None:
    async def run() -> None:
        waiting, inside, done = queue(Limits(rows_max=8, bytes_max=6)), list[Item](), list[Item]()
        for step, tenant, priority, rows, key in script:
            if step == "put":
                one = item(rows, tenant=tenant, priority=priority, key=key, deadline=2000.0 + rows)
                try:
                    waiting.put([one])
                    inside.append(one)
                except Failed as failure:
                    assert failure.code in (Code.QUEUE_FULL, Code.QUEUE_BYTES_FULL)
                    assert waiting.items  # an empty queue takes anything
            elif inside and step == "take":
                now = taken(waiting, 8) if waiting.items else []
                done += now
                assert now or not waiting.items  # work conserving
            elif inside:
                waiting.discard([inside[rows % len(inside)]])
            shed = [one for one in inside if one.ticket.done]
            assert all(isinstance(one.ticket.ended.exception(), Failed) and not one.waiting for one in shed)
            inside = [one for one in inside if one.waiting]
            assert (waiting.items, waiting.rows) == (len(inside), sum(one.rows for one in inside))
            assert waiting.bytes == sum(one.bytes_total for one in inside)
            assert len(inside) == 1 or (waiting.rows <= 8 and waiting.bytes <= 6)
            assert not any(one.ticket.done for one in done)

    asyncio.run(run())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), min_size=30, max_size=60))
@settings(max_examples=100, deadline=None)
def test_as_long_as_tenants_have_something_waiting_none_gets_more_than_another(script: list[tuple[str, int]]) -> None:
    """By at most one item of each: the bound of start-time fair queueing (Goyal, Vin, Cheng, theorem 1)."""

    async def run() -> None:
        waiting, served = queue(), Counter[str]()
        for tenant, rows in script:
            waiting.put([item(rows, tenant=tenant)])
        left = Counter(tenant for tenant, _ in script)
        while min(left.values()) > 0:
            for one in taken(waiting, 1):
                served[one.tenant] += one.rows
                left[one.tenant] -= 1
            counts = [served[tenant] for tenant in left]
            assert max(counts) - min(counts) <= 5 + 5

    asyncio.run(run())
