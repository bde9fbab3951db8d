"""Accounts in this process: the quotas of one server."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice

from forwardpass.admit.policy import State, fits, settled, state_at, taken
from forwardpass.admit.rules import Account, Limit
from forwardpass.admit.store import Taken, Wanted
from forwardpass.core.clock import Clock, wall_s

ACCOUNTS_MAX = 100_000
LOOKED_AT = 64
"""Of the accounts that were used longest ago so many are looked at for one of which nothing is used any more."""


class MemoryStore:
    """What nobody has taken from is full. Of more than ``accounts_max`` accounts one is forgotten that is full again, or,
    if none of the oldest is, the oldest bucket, then the oldest day's budget; never one that a request holds."""

    waits = False

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
            granted = granted and fits(limit, state, amount)
        if granted:
            self._keep(wanted, states)
        return Taken(self, wanted, states, granted, now_s, wall)

    def look(self, accounts: Sequence[Account]) -> Taken:
        """How they stand; nothing is taken, and what is not known is not kept."""
        now_s, wall = self._clock(), self._wall()
        states = []
        for account in accounts:
            known = self._states.get(account.name)
            at = wall if account.limit.kind == "day" else now_s
            states.append(state_at(account.limit, known and known[1], at))
        return Taken(self, [(account, 0.0) for account in accounts], states, True, now_s, wall)

    def book(self, wanted: Sequence[Wanted], known: Sequence[State]) -> Taken:
        """Take what was granted elsewhere, where so much is ``used`` in ``known`` by all that take there."""
        now_s, wall = self._clock(), self._wall()
        states: list[State] = []
        for (account, amount), elsewhere in zip(wanted, known, strict=True):
            limit, own = account.limit, self._states.get(account.name)
            at = wall if limit.kind == "day" else now_s
            state = state_at(limit, own and own[1], at)
            states.append(state._replace(used=elsewhere.used - (0.0 if limit.held else amount)))
        self._keep(wanted, states)
        return Taken(self, wanted, states, True, now_s, wall)

    def settle(self, taken: Taken, used: Sequence[float]) -> None:
        now_s, wall = self._clock(), self._wall()
        for place, ((account, amount), spent) in enumerate(zip(taken.wanted, used, strict=True)):
            limit = account.limit
            known = self._states.get(account.name) if limit.held or spent != amount else None
            if known is None:
                continue
            day = limit.kind == "day"
            state = state_at(limit, known[1], wall if day else now_s)
            since = taken.states[place].at if day else taken.now_s  # not today, where the clock was set back
            state = settled(limit, state, amount, spent, since)
            taken.states[place] = state
            if limit.kind == "concurrent" and not state.held:
                del self._states[account.name]
            else:
                self._states[account.name] = (limit, state)
        taken.now_s, taken.wall_s = now_s, wall

    def _keep(self, wanted: Sequence[Wanted], states: list[State]) -> None:
        for place, (account, amount) in enumerate(wanted):
            states[place] = taken(account.limit, states[place], amount)
            self._states.pop(account.name, None)
            self._states[account.name] = (account.limit, states[place])
        if len(self._states) > self._accounts_max:
            self._forget()

    def _forget(self) -> None:
        now_s, wall = self._clock(), self._wall()
        oldest = [
            (name, limit, state_at(limit, state, wall if limit.kind == "day" else now_s))
            for name, (limit, state) in islice(self._states.items(), LOOKED_AT)
        ]
        free = [(name, limit, state.used) for name, limit, state in oldest if not state.held]
        full = [name for name, _, used in free if not used]
        buckets = [name for name, limit, _ in free if limit.kind == "rate"]
        days = [name for name, limit, _ in free if limit.kind == "day"]
        for name in (full or buckets or days)[:1]:
            del self._states[name]
