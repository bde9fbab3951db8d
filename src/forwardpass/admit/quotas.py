"""A request's way through the quotas: in at the door, charged once it is decoded, settled when it has ended."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from forwardpass.admit.policy import wait_s
from forwardpass.admit.rules import AT_ENTRY, Account, QuotaRule, accounts_of, limits_of
from forwardpass.admit.standing import Standings
from forwardpass.admit.store import Store, Taken, Wanted
from forwardpass.core.caller import Caller
from forwardpass.core.clock import jitter
from forwardpass.core.errors import Code, Refused

KNOWN_MAX = 10_000
"""Callers whose accounts are remembered rather than found again."""
SPREAD_SHARE, SPREAD_S_MAX = 0.4, 10.0
"""Who waits for the same thing comes back spread over this share of the wait, but no later than so long after it."""


class Use(NamedTuple):
    """What a request's work comes to; reserved before it as the most it can be, settled after it."""

    rows: float = 0.0
    tokens: float = 0.0
    cost: float = 0.0


NOTHING = Use()
NONE: frozenset[str] = frozenset()
_UNITS = {"rows_per_minute": "rows", "tokens_per_minute": "tokens", "cost_per_day": "cost"}


class _Accounts(NamedTuple):
    entry: tuple[Account, ...]
    work: tuple[Account, ...]
    units: frozenset[str]  # of a Use that these are about


class Quotas:
    """The rules that are in force and where their accounts are kept. One per server.

    ``serves`` tells whether there is such a pipeline: one that only a client has heard of has no account. ``charges``:
    a limit depends on what a request's work comes to.
    """

    def __init__(
        self, rules: Sequence[QuotaRule], store: Store, serves: Callable[[str], bool] = lambda pipeline: False
    ) -> None:
        self.serves = serves
        self.charges = any(limit.name not in AT_ENTRY for rule in rules for limit in limits_of(rule))
        self.store = store
        self._rules = rules
        self._known: dict[tuple[str, str, str], _Accounts] = {}

    def admission(self, caller: Caller, body_bytes: int, requests: int = 1) -> "Admission":
        """Of a request with a body of that many bytes, or of several at once; it has taken nothing yet, ``enter`` does."""
        return Admission(self, self.store, caller, body_bytes, requests)

    def by_work(self, caller: Caller, pipeline: str) -> bool:
        """Whether a limit of this caller depends on what the work of such a request comes to."""
        return self.charges and bool(self.accounts(caller, "").units or self.accounts(caller, pipeline).units)

    def accounts(self, caller: Caller, pipeline: str) -> _Accounts:
        """Without a pipeline those of the caller alone, with one those that are about it."""
        name = (caller.id, caller.tenant, pipeline)
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            rules = [rule for rule in self._rules if bool(rule.pipeline) == bool(pipeline)]
            every = [account for rule in rules for account in accounts_of(rule, caller, pipeline)]
            entry = tuple(account for account in every if account.limit.name in AT_ENTRY)
            work = tuple(account for account in every if account.limit.name not in AT_ENTRY)
            units = frozenset(_UNITS[account.limit.name] for account in work)
            known = self._known[name] = _Accounts(entry, work, units)
        return known


class Admission:
    """One request. ``leave`` ends it, whatever became of it, and may be called again."""

    __slots__ = (
        "_body_bytes",
        "_caller",
        "_entered",
        "_pipeline",
        "_quotas",
        "_requests",
        "_reserved",
        "_store",
        "_work",
        "standings",
    )

    def __init__(self, quotas: Quotas, store: Store, caller: Caller, body_bytes: int, requests: int = 1) -> None:
        self.standings = Standings()
        self._quotas = quotas
        self._store = store
        self._caller = caller
        self._body_bytes = body_bytes
        self._requests = requests
        self._pipeline: str | None = None  # None: it has not entered
        self._entered: list[Taken] = []
        self._work: Taken | None = None
        self._reserved = NOTHING

    async def enter(self, pipeline: str = "") -> None:
        """Count the request and its bytes; again, once it is known which pipeline it is for, by the rules about that.
        A pipeline that is not served here is as if it were not known.

        Raises Refused rate_limited, concurrency_limited, input_too_large; then all that was taken is given back.
        """
        accounts: tuple[Account, ...] = ()
        if self._pipeline is None:
            accounts = self._quotas.accounts(self._caller, "").entry
            self._pipeline = ""
        if pipeline and not self._pipeline and self._quotas.serves(pipeline):
            accounts += self._quotas.accounts(self._caller, pipeline).entry
            self._pipeline = pipeline
        wanted = [
            (account, float(self._body_bytes if account.limit.name == "bytes_per_minute" else self._requests))
            for account in accounts
        ]
        if wanted:
            self._entered.append(await self._take(wanted))

    @property
    def charges(self) -> frozenset[str]:
        """What of a Use ``charge`` would take; it depends on who asks which pipeline."""
        if not self._quotas.charges:
            return NONE
        units = self._quotas.accounts(self._caller, "").units
        return units | self._quotas.accounts(self._caller, self._pipeline).units if self._pipeline else units

    async def charge(self, reserved: Use) -> None:
        """Reserve what its work comes to at most.

        Raises Refused rate_limited, budget_exhausted, input_too_large; then all that was taken is given back.
        """
        accounts = self._work_accounts()
        if accounts:
            wanted = [(account, float(getattr(reserved, _UNITS[account.limit.name]))) for account in accounts]
            self._work = await self._take(wanted)
            self._reserved = reserved

    @property
    def reserved(self) -> Use:
        """What it comes to at most, as far as a limit depends on that."""
        return self._reserved

    def settle(self, used: Use) -> None:
        """So much was used of what is reserved. Only the first call counts."""
        work, self._work = self._work, None
        if work is not None:
            work.settle([float(getattr(used, _UNITS[account.limit.name])) for account, _ in work.wanted])

    def leave(self) -> None:
        """The request has ended. What was reserved and never settled is charged: its work may have been done."""
        self.settle(self._reserved)
        entered, self._entered = self._entered, []
        for taken in entered:
            if any(account.limit.held for account, _ in taken.wanted):
                taken.settle([amount for _, amount in taken.wanted])

    def _work_accounts(self) -> tuple[Account, ...]:
        every = self._quotas.accounts(self._caller, "").work
        return every + self._quotas.accounts(self._caller, self._pipeline).work if self._pipeline else every

    async def _take(self, wanted: Sequence[Wanted]) -> Taken:
        granted = False
        try:
            for account, amount in wanted:
                if amount > account.limit.capacity:
                    raise _never_fits(account, amount)
            taken = await self._store.take(wanted)
            self.standings.add(taken)
            if not taken.granted:
                raise _refused(taken)
            granted = True
            return taken
        finally:
            if not granted:  # a request that is refused, or given up here, costs nothing
                self.undo()

    def undo(self) -> None:
        """Give back what entering took."""
        entered, self._entered = self._entered, []
        for before in entered:
            before.settle([0.0] * len(before.wanted))


def _never_fits(account: Account, amount: float) -> Refused:
    limit = account.limit
    text = f"{limit.name} of {account.owner}: {limit.quantity:.15g}; this request alone is {amount:.15g}"
    return Refused(Code.INPUT_TOO_LARGE, text)


def _refused(taken: Taken) -> Refused:
    """By the account that is without room for the longest."""
    waits = [
        wait_s(account.limit, state, amount, taken.wall_s)
        for (account, amount), state in zip(taken.wanted, taken.states, strict=True)
    ]
    place = waits.index(max(waits))
    account, amount = taken.wanted[place]
    limit = account.limit
    room = math.floor(max(0.0, min(limit.capacity, limit.capacity - taken.states[place].total)) * 1000 + 1e-6) / 1000
    asked = "" if account.shared else f"; asked {amount:.15g}, {room:.15g} left"
    text = f"{limit.name} of {account.owner}: {limit.quantity:.15g}{asked}"
    codes = {"rate": Code.RATE_LIMITED, "concurrent": Code.CONCURRENCY_LIMITED, "day": Code.BUDGET_EXHAUSTED}
    return Refused(codes[limit.kind], text, retry_after_s=_spread(waits[place]))


def _spread(wait_s: float) -> float:
    """Never sooner than there is room."""
    least, most = 0.8, 1.2  # of a jitter
    return wait_s + min(SPREAD_SHARE * wait_s, SPREAD_S_MAX) * (jitter() - least) / (most - least)
