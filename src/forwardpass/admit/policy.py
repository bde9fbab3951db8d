"""What a limit's account allows: functions of what is used and held and the time, the same wherever accounts are kept.

What a request reserves is *held* until it ends, and held as it was: only what was used is refilled. So a busy caller
gets all of its limit, however much more than it uses each request must reserve, and however long it takes.
"""

import math
from typing import NamedTuple

from forwardpass.admit.rules import Limit

DAY_S = 86_400.0
UNKNOWN_RETRY_S = 1.0
"""When somebody else's request ends nobody knows."""
_ROUNDING = 1e-9  # of the capacity: what sums of binary fractions may be off by


class State(NamedTuple):
    """``used``, when that was so, of a day's budget which day that was, and ``held`` by requests that have not ended."""

    used: float = 0.0
    at: float = 0.0
    held: float = 0.0

    @property
    def total(self) -> float:
        return self.used + self.held


def state_at(limit: Limit, state: State | None, now_s: float) -> State:
    """What it is at that time; ``now_s`` is the wall clock's for a day's budget.

    A clock that was set back refills nothing, and locks nobody out. What was held for a day that is over is let go.
    """
    if limit.kind == "day":
        today = now_s // DAY_S
        return state if state is not None and today <= state.at <= today + 1 else State(at=today)
    if state is None:
        return State(at=now_s)
    refilled = max(0.0, now_s - state.at) * limit.rate
    return State(max(0.0, state.used - refilled), now_s, state.held)


def fits(limit: Limit, state: State, amount: float) -> bool:
    """Nothing always fits: who owes of a limit may ask what does not touch it."""
    return not amount or state.used + state.held + amount <= limit.capacity * (1 + _ROUNDING)


def taken(limit: Limit, state: State, amount: float) -> State:
    if limit.held:
        return State(state.used, state.at, state.held + amount)
    return State(state.used + amount, state.at, state.held)


def settled(limit: Limit, state: State, amount: float, used: float, taken_at: float) -> State:
    """After ``used`` of the ``amount`` that was taken at ``taken_at``, in the state's unit of time, was used in the end.

    What was held for a day that is over changes nothing of another. What was not held, a bucket may have been refilled
    with since: that is not credited twice, it would let more through than the limit.
    """
    if limit.kind == "day" and state.at != taken_at:
        return state
    if limit.held:
        more = used if limit.kind != "concurrent" else 0.0
        return State(state.used + more, state.at, max(0.0, state.held - amount))
    back = max(0.0, amount - used - max(0.0, state.at - taken_at) * limit.rate)
    return state._replace(used=max(0.0, state.used - back))


def wait_s(limit: Limit, state: State, amount: float, wall_s: float) -> float:
    """Until there may be room for so much more; 0 when there is. ``amount`` must fit into an empty account."""
    if fits(limit, state, amount):
        return 0.0
    match limit.kind:
        case "rate":
            missing = state.total + amount - limit.capacity
            refilled = missing <= state.used * (1 + _ROUNDING)  # else somebody's request must end before
            return missing / limit.rate if refilled else min(missing / limit.rate, UNKNOWN_RETRY_S)
        case "day":
            return DAY_S - wall_s % DAY_S if state.used + amount > limit.capacity else UNKNOWN_RETRY_S
        case "concurrent":
            return UNKNOWN_RETRY_S


def left(limit: Limit, total: float) -> int:
    """How much may be taken now, in whole units."""
    return max(0, math.floor(min(limit.capacity, limit.capacity - total + _ROUNDING * limit.capacity)))


def full_s(limit: Limit, total: float, wall_s: float) -> float:
    """Seconds until nothing of it is used; of requests that run nobody knows."""
    match limit.kind:
        case "rate":
            return max(0.0, total) / limit.rate
        case "day":
            return DAY_S - wall_s % DAY_S
        case "concurrent":
            return 0.0
