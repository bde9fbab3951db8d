"""What a limit's account allows: functions of what is used and the time, the same for every place accounts are kept in.

A bucket's state is how much of it is used and when that was so; of a day's budget, what is used and which day.
"""

import math
from typing import NamedTuple

from forwardpass.admit.rules import Limit

DAY_S = 86_400.0
CONCURRENT_RETRY_S = 1.0
"""When somebody else's request ends nobody knows."""
_ROUNDING = 1e-9  # of the capacity: what sums of binary fractions may be off by


class State(NamedTuple):
    """``at``: seconds, of a day's budget the number of the day."""

    used: float
    at: float


def state_at(limit: Limit, state: State | None, now_s: float) -> State:
    """What is used at that time. A clock that was set back refills nothing, and locks nobody out."""
    if limit.kind == "day":
        today = now_s // DAY_S
        if state is None or not today <= state.at <= today + 1:
            return State(0.0, today)
        return state
    if state is None:
        return State(0.0, now_s)
    if limit.kind == "concurrent":
        return State(state.used, now_s)
    return State(max(0.0, state.used - max(0.0, now_s - state.at) * limit.rate), now_s)


def fits(limit: Limit, used: float, amount: float) -> bool:
    return used + amount <= limit.capacity * (1 + _ROUNDING)


def wait_s(limit: Limit, used: float, amount: float, wall_s: float) -> float:
    """Until there is room for so much more; 0 when there is. ``amount`` must fit into an empty account."""
    if fits(limit, used, amount):
        return 0.0
    match limit.kind:
        case "rate":
            return max(0.0, (used + amount - limit.capacity) / limit.rate)
        case "day":
            return DAY_S - wall_s % DAY_S
        case "concurrent":
            return CONCURRENT_RETRY_S


def given_back(limit: Limit, state: State, amount: float, taken: float, now_s: float) -> State:
    """After giving back so much of what was taken at ``taken``, in the state's unit of time; less than 0: it took more.

    A bucket may have been refilled since then what comes back now. That is not credited twice: it would let more
    through than the limit. A budget of a day that is over stays as it is.
    """
    if limit.kind == "rate":
        refilled = max(0.0, now_s - taken) * limit.rate if amount > 0 else 0.0
        amount = max(0.0, amount - refilled) if amount > 0 else amount
    elif limit.kind == "day" and state.at != taken:
        return state
    return State(max(0.0, state.used - amount), state.at)


def left(limit: Limit, used: float) -> int:
    """How much may be taken now, in whole units."""
    return max(0, math.floor(limit.capacity - used + _ROUNDING * limit.capacity))


def full_s(limit: Limit, used: float, wall_s: float) -> float:
    """Seconds until nothing of it is used; of requests that run nobody knows."""
    match limit.kind:
        case "rate":
            return used / limit.rate
        case "day":
            return DAY_S - wall_s % DAY_S
        case "concurrent":
            return 0.0
