"""Accounts in this process: the quotas of one server."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice

from forwardpass.admit.policy import DAY_S, State, fits, given_back, state_at
from forwardpass.admit.rules import Limit
from forwardpass.admit.store import Taken, Wanted
from forwardpass.core.clock import Clock, wall_s

ACCOUNTS_MAX = 100_000
LOOKED_AT = 64
"""Of the accounts that were used longest ago so many are looked at for one of which nothing is used any more."""


class MemoryStore:
    """What nobody has taken from is full. Of more than ``accounts_max`` accounts one is forgotten that is full again, or,
    if none of the oldest is, the oldest bucket, then the oldest day's budget; never one of requests that run."""

    def __init__(self, clock: Clock, wall: Callable[[], float] = wall_s, accounts_max: int = ACCOUNTS_MAX) -> None:
        self._clock = clock
        self._wall = wall
        self._accounts_max = accounts_max
        self._states: dict[str, tuple[Limit, State]] = {}  # who was used last at the end

    def __len__(self) -> int:
        return len(self._states)

    def open(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def status(self) -> dict[str, object]:
        return {"accounts": len(self), "redis": None}

    async def take(self, wanted: Sequence[Wanted]) -> Taken:
        return self.take_now(wanted)

    def take_now(self, wanted: Sequence[Wanted]) -> Taken:
        """What ``take`` does; nobody can come between."""
        now_s, wall = self._clock(), self._wall()
        states: list[State] = []
        granted = True
        for account, amount in wanted:
            known = self._states.get(account.name)
            limit = account.limit
            state = state_at(limit, known and known[1], wall if limit.kind == "day" else now_s)
            if known is not None and state.at < known[1].at:  # the clock was set back: from now on it counts anew
                self._states[account.name] = (limit, state)
            states.append(state)
            granted = granted and fits(limit, state.used, amount)
        if granted:
            for place, (account, amount) in enumerate(wanted):
                states[place] = state = State(states[place].used + amount, states[place].at)
                self._states.pop(account.name, None)
                self._states[account.name] = (account.limit, state)
            if len(self._states) > self._accounts_max:
                self._forget(now_s, wall)
        return Taken(self, wanted, [state.used for state in states], granted, now_s, wall)

    def give(self, taken: Taken, back: Sequence[float]) -> None:
        now_s, wall = self._clock(), self._wall()
        for (account, _), amount in zip(taken.wanted, back, strict=True):
            known = self._states.get(account.name) if amount else None
            if known is None:
                continue
            limit = account.limit
            day = limit.kind == "day"
            state = state_at(limit, known[1], wall if day else now_s)
            since = taken.wall_s // DAY_S if day else taken.now_s
            state = given_back(limit, state, amount, since, now_s)
            if limit.kind == "concurrent" and not state.used:
                del self._states[account.name]
            else:
                self._states[account.name] = (limit, state)

    def _forget(self, now_s: float, wall: float) -> None:
        oldest = [
            (name, limit, state_at(limit, state, wall if limit.kind == "day" else now_s).used)
            for name, (limit, state) in islice(self._states.items(), LOOKED_AT)
        ]
        full = [name for name, _, used in oldest if not used]
        buckets = [name for name, limit, _ in oldest if limit.kind == "rate"]
        days = [name for name, limit, _ in oldest if limit.kind == "day"]
        for name in (full or buckets or days)[:1]:
            del self._states[name]
