"""A request's way through the quotas: in at the door, charged once it is decoded, settled when it has ended."""

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
RETRY_FACTOR_LEAST = 0.2  # added to a jitter of 0.8 and more, as nobody is to come back before there is room


class Use(NamedTuple):
    """What a request's work comes to; reserved before it as the most it can be, settled after it."""

    rows: float = 0.0
    tokens: float = 0.0
    cost: float = 0.0


NOTHING = Use()
_UNITS = {"rows_per_minute": "rows", "tokens_per_minute": "tokens", "cost_per_day": "cost"}


class _Accounts(NamedTuple):
    entry: tuple[Account, ...]
    work: tuple[Account, ...]


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

    def admission(self, caller: Caller, body_bytes: int) -> "Admission":
        """Of a request with a body of that many bytes; it has taken nothing yet, ``enter`` does."""
        return Admission(self, self.store, caller, body_bytes)

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
            known = self._known[name] = _Accounts(entry, tuple(account for account in every if account not in entry))
        return known


class Admission:
    """One request. ``leave`` ends it, whatever became of it, and may be called again."""

    __slots__ = (
        "_body_bytes",
        "_caller",
        "_entered",
        "_pipeline",
        "_quotas",
        "_reserved",
        "_store",
        "_work",
        "standings",
    )

    def __init__(self, quotas: Quotas, store: Store, caller: Caller, body_bytes: int) -> None:
        self.standings = Standings()
        self._quotas = quotas
        self._store = store
        self._caller = caller
        self._body_bytes = body_bytes
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
            (account, float(self._body_bytes) if account.limit.name == "bytes_per_minute" else 1.0)
            for account in accounts
        ]
        if wanted:
            self._entered.append(await self._take(wanted))

    async def weigh(self, body_bytes: int) -> None:
        """Count the bytes of a body that came after the request had entered. Raises Refused as ``enter`` does."""
        self._body_bytes = body_bytes
        every = self._quotas.accounts(self._caller, "").entry
        if self._pipeline:
            every += self._quotas.accounts(self._caller, self._pipeline).entry
        wanted = [(account, float(body_bytes)) for account in every if account.limit.name == "bytes_per_minute"]
        if wanted:
            self._entered.append(await self._take(wanted))

    @property
    def charges(self) -> bool:
        """Whether ``charge`` may take anything."""
        return self._quotas.charges

    async def charge(self, reserved: Use) -> None:
        """Reserve what its work comes to at most.

        Raises Refused rate_limited, budget_exhausted, input_too_large; then all that was taken is given back.
        """
        accounts = self._quotas.accounts(self._caller, "").work
        if self._pipeline:
            accounts += self._quotas.accounts(self._caller, self._pipeline).work
        if accounts:
            wanted = [(account, float(getattr(reserved, _UNITS[account.limit.name]))) for account in accounts]
            self._work = await self._take(wanted)
            self._reserved = reserved

    def settle(self, used: Use) -> None:
        """Give back what was reserved and not used. Only the first call counts."""
        work, self._work = self._work, None
        if work is not None:
            back = [getattr(self._reserved, unit) - getattr(used, unit) for unit in map(_unit, work.wanted)]
            self._give(work, back)

    def leave(self) -> None:
        """The request has ended. What was reserved and never settled stays charged: its work may have been done."""
        self._work = None
        entered, self._entered = self._entered, []
        for taken in entered:
            self._give(taken, [float(account.limit.kind == "concurrent") for account, _ in taken.wanted])

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
                entered, self._entered = self._entered, []
                for before in entered:
                    self._give(before, [amount for _, amount in before.wanted])

    def _give(self, taken: Taken, back: Sequence[float]) -> None:
        if any(back):
            taken.give(back)
            taken.used = [max(0.0, used - amount) for used, amount in zip(taken.used, back, strict=True)]


def _unit(wanted: Wanted) -> str:
    return _UNITS[wanted[0].limit.name]


def _never_fits(account: Account, amount: float) -> Refused:
    limit = account.limit
    text = f"{limit.name} of {account.owner}: {limit.quantity:.15g}; this request alone is {amount:.15g}"
    return Refused(Code.INPUT_TOO_LARGE, text)


def _refused(taken: Taken) -> Refused:
    """By the account that is without room for the longest."""
    waits = [
        wait_s(account.limit, used, amount, taken.wall_s)
        for (account, amount), used in zip(taken.wanted, taken.used, strict=True)
    ]
    place = waits.index(max(waits))
    account, amount = taken.wanted[place]
    limit, used = account.limit, taken.used[place]
    left = max(0.0, limit.capacity - used)
    asked = "" if account.shared else f"; asked {amount:.15g}, {left:.6g} left"
    text = f"{limit.name} of {account.owner}: {limit.quantity:.15g}{asked}"
    codes = {"rate": Code.RATE_LIMITED, "concurrent": Code.CONCURRENCY_LIMITED, "day": Code.BUDGET_EXHAUSTED}
    return Refused(codes[limit.kind], text, retry_after_s=waits[place] * (jitter() + RETRY_FACTOR_LEAST))
