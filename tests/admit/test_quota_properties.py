"""Whatever is asked, in whatever order and at whatever time: no limit lets through more than it says."""

import heapq
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.admit.ledger import Ledger, at_once

from forwardpass.admit.quotas import Admission, Use
from forwardpass.admit.rules import QuotaRule
from forwardpass.core.caller import Caller
from forwardpass.core.errors import Refused

ACME = Caller("acme")
PAUSES = st.floats(0, 90) | st.sampled_from([0.0, 1e-9, 1e6])
ASKED = st.lists(st.tuples(PAUSES, st.integers(0, 120), st.floats(0, 1), PAUSES), max_size=40)


def within_every_window(used: Sequence[tuple[float, float]], capacity: float, rate: float) -> bool:
    """Between any two takings, these included: at most a full bucket and what was refilled meanwhile."""
    return all(
        sum(amount for _, amount in used[first : last + 1])
        <= capacity + rate * (used[last][0] - used[first][0]) + 1e-6 * capacity
        for first in range(len(used))
        for last in range(first, len(used))
    )


@given(ASKED, st.integers(1, 200))
@settings(max_examples=150, deadline=None)
def test_a_bucket_never_lets_more_through_in_any_window(
    asked: Sequence[tuple[float, int, float, float]], limit: int
) -> None:
    ledger = Ledger((QuotaRule(tenant="*", tokens_per_minute=limit),))
    used: list[tuple[float, float]] = []
    for pause, tokens, share, work in asked:
        ledger.advance(pause)
        admission = ledger.entered(ACME)
        try:
            at_once(admission.charge(Use(tokens=tokens)))
        except Refused as refusal:
            assert refusal.retry_after_s is None or math.isfinite(refusal.retry_after_s)
            continue
        used.append((ledger.clock(), tokens * share))
        ledger.advance(work)
        admission.settle(Use(tokens=tokens * share))
    assert within_every_window(used, limit, limit / 60)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 60)), min_size=1, max_size=40), st.integers(60, 200))
@settings(max_examples=100, deadline=None)
def test_whoever_waits_as_long_as_told_is_let_in(asked: Sequence[tuple[float, int]], limit: int) -> None:
    ledger = Ledger((QuotaRule(tenant="*", bytes_per_minute=limit, requests_per_s=1.0),))
    for pause, size in asked:
        ledger.advance(pause)
        try:
            ledger.entered(ACME, size)
        except Refused as refusal:
            assert refusal.retry_after_s is not None
            ledger.advance(refusal.retry_after_s)
            ledger.entered(ACME, size)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "charge", "settle", "leave"]),
            st.integers(0, 7),
            st.integers(0, 40),
            st.floats(0, 1),
        ),
        max_size=80,
    )
)
@settings(max_examples=150, deadline=None)
def test_no_order_of_steps_of_many_requests_overshoots(steps: Sequence[tuple[str, int, int, float]]) -> None:
    ledger = Ledger((QuotaRule(tenant="*", concurrent=3, cost_per_day=100.0),))
    running: dict[int, Admission] = {}
    reserved: dict[int, float] = {}
    spent = 0.0
    for step, who, cost, share in steps:
        admission = running.get(who)
        try:
            if step == "enter" and admission is None:
                running[who] = ledger.entered(ACME)
            elif step == "charge" and admission is not None and who not in reserved:
                at_once(admission.charge(Use(cost=cost)))
                reserved[who] = cost
            elif step == "settle" and admission is not None and who in reserved:
                admission.settle(Use(cost=reserved[who] * share))
                reserved[who] *= share
            elif step == "leave" and admission is not None:
                admission.leave()
                spent += reserved.pop(who, 0.0)
                del running[who]
        except Refused:
            if step == "charge":  # all of it is given back
                del running[who]
        assert len(running) <= 3
        assert spent + sum(reserved.values()) <= 100 * (1 + 1e-6)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), max_size=20))
@settings(max_examples=100, deadline=None)
def test_clocks_that_jump_lock_nobody_out_for_longer_than_a_window(jumps: Sequence[tuple[float, float]]) -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_minute=1, cost_per_day=5.0),))
    latest_s = ledger.wall()
    for monotonic, wall in jumps:
        ledger.clock.advance(monotonic)
        ledger.wall.advance(wall)
        latest_s = max(latest_s, ledger.wall())
        try:
            at_once(ledger.entered(ACME).charge(Use(cost=3)))
        except Refused as refusal:
            assert refusal.retry_after_s is not None and 0 < refusal.retry_after_s <= 86_400 + 10
    ledger.clock.advance(60)
    ledger.wall.now_s = latest_s + 86_400  # a day that no clock has shown
    at_once(ledger.entered(ACME).charge(Use(cost=5)))


@pytest.mark.parametrize("lasting_s", [0.01, 0.5, 1.0, 2.0, 5.0])
def test_a_busy_caller_gets_all_of_its_limit_whatever_it_reserves(lasting_s: float) -> None:
    """20 clients that ask again at once, or when they are told: 2,500 tokens reserved, 500 used, 60,000 a minute."""
    ledger = Ledger((QuotaRule(tenant="*", tokens_per_minute=60_000),))
    events: list[tuple[float, int, Admission | None]] = [(ledger.clock(), client, None) for client in range(20)]
    used, end_s = 0, ledger.clock() + 600
    while events[0][0] < end_s:
        at_s, client, admission = heapq.heappop(events)
        ledger.advance(at_s - ledger.clock())
        if admission is not None:
            admission.settle(Use(tokens=500))
            used += 500
        admission = ledger.entered(ACME)
        try:
            at_once(admission.charge(Use(tokens=2500)))
            heapq.heappush(events, (at_s + lasting_s, client, admission))
        except Refused as refusal:
            assert refusal.retry_after_s is not None
            heapq.heappush(events, (at_s + refusal.retry_after_s, client, None))
    assert 0.95 * 600_000 <= used <= 660_000


def test_takings_at_just_the_limit_for_half_an_hour_do_not_drift() -> None:
    ledger = Ledger((QuotaRule(tenant="*", bytes_per_minute=6_000_000),))
    let_in = 0
    for _ in range(20_000):  # 0.1 s of each 0.1 s refilled
        ledger.advance(0.1)
        try:
            ledger.entered(ACME, 10_000)
            let_in += 1
        except Refused:
            pass
    assert let_in == 20_000
