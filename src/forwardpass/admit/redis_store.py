"""Accounts in a Redis that several servers share; while it does not answer, this server's own do.

A server that dies gives back what it ran: its leases end by themselves. No request waits for Redis longer than ANSWER_S.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from forwardpass.admit.memory import MemoryStore
from forwardpass.admit.policy import DAY_S, State, settled
from forwardpass.admit.redis_line import Line, connected
from forwardpass.admit.redis_scripts import RENEW, SETTLE, TAKE
from forwardpass.admit.rules import Account
from forwardpass.admit.store import Taken, Wanted
from forwardpass.core.clock import Clock, RandomIds

if TYPE_CHECKING:
    from redis.asyncio import ConnectionPool

ANSWER_S = 0.05
AWAY_S = 1.0
"""While it is away it is asked once in so long whether it is back."""
GIVEN_UP_S = 5.0
"""A connection on which nothing was answered for so long is made anew."""
LEASE_S = 30.0
RENEWALS = 3
"""While a request runs its lease is renewed so often in the time that it holds."""
TOLD_AT_ONCE_MAX = 200
STARTING_S = 1.0
CLOSING_S = 1.0
PREFIX = "forwardpass:{quota}:"
"""One hash slot for all, so that a script may see them together."""
_log = logging.getLogger("forwardpass.admit")


class Owed(NamedTuple):
    """What Redis is still to be told of an account; what is ``settled`` may be told twice."""

    account: Account
    act: str
    amount: float
    lease: str
    more: float


class RedisStore:
    """``async with`` it: what connects to Redis and what tells it of ends and of requests that still run is in there.

    ``away`` says that quotas are this server's own at the moment; ``failures`` counts how often Redis did not answer.
    What Redis grants is booked here, too: when it is gone, its accounts go on from where they stood.
    """

    waits = True

    def __init__(
        self, pool: "ConnectionPool", clock: Clock, *, answer_s: float = ANSWER_S, lease_s: float = LEASE_S
    ) -> None:
        self.local = MemoryStore(clock)
        self.away = False
        self.failures = 0
        self._pool = pool
        self._answer_s = answer_s
        self._lease_s = lease_s
        self._ids = RandomIds()
        self._owed: deque[Owed] = deque()
        self._booked: dict[tuple[str, float], Owed] = {}  # by account and day
        self._running: dict[str, list[tuple[Account, str]]] = {}  # lease -> of which accounts who holds what
        self._telling = 0  # times that it is being told something
        self._something = asyncio.Event()  # is owed
        self._told = asyncio.Event()  # everything that was
        self._missed = asyncio.Event()  # an answer
        self._met = asyncio.Event()  # Redis, or known to be away
        self._closing = False
        self._line: Line | None = None
        self._following: asyncio.Task[None] | None = None

    def open(self) -> Self:
        return self

    def status(self) -> dict[str, object]:
        away = self.away or self._line is None
        return {"accounts": len(self.local), "redis": {"away": away, "failures": self.failures}}

    async def __aenter__(self) -> Self:
        self._closing = False
        self._following = asyncio.create_task(self._follow())
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTING_S):
                await self._met.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is owed is told once more, if Redis answers soon; the rest ends with its leases."""
        assert self._following is not None, "left without having been entered"
        if (self._owed or self._booked or self._telling) and not self.away:
            self._told.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_S):
                    await self._told.wait()
        self._closing = True
        while not self._following.done():  # a cancellation is lost where its group of tasks fails at the same time
            self._following.cancel()
            await asyncio.wait((self._following,), timeout=CLOSING_S)

    async def take(self, wanted: Sequence[Wanted]) -> Taken:
        line = self._line
        if line is None or self.away:
            return self._taken_here(wanted)
        if self._owed:
            self._tell_some(line)
        lease = self._ids.next()
        arguments = [repr(self._lease_s), lease]
        for account, amount in wanted:
            limit = account.limit
            arguments += (limit.kind, repr(limit.capacity), repr(limit.rate), repr(amount), "1" if limit.held else "0")
        answer = line.ask(TAKE, _keys(account for account, _ in wanted), arguments)
        try:
            for _ in range(2):  # in halves: where this server itself stood still, the answer may be here all the same
                if not answer.done():
                    await asyncio.wait((answer,), timeout=self._answer_s / 2)
        except asyncio.CancelledError:  # the answer may be here already, and nobody looks at it
            answer.add_done_callback(lambda late: self._undo(late, wanted, lease))
            raise
        if not answer.done():
            answer.add_done_callback(lambda late: self._undo(late, wanted, lease))
            self._missing("no answer in time")
            return self._taken_here(wanted)
        if answer.exception() is not None:
            self._owe_settled(wanted, lease, [0.0] * len(wanted))  # perhaps it was taken
            return self._taken_here(wanted)
        return self._taken_there(answer.result(), wanted, lease)

    def settle(self, taken: Taken, used: Sequence[float]) -> None:
        assert taken.here is not None, "every taking is booked here"
        taken.here.settle(used)
        if not taken.lease:
            taken.states = taken.here.states
            self._book(taken, used)
            return
        self._running.pop(taken.lease, None)
        self._owe_settled(taken.wanted, taken.lease, used)
        self._owe_refunds(taken.wanted, used, taken.now_s)
        for place, ((account, amount), more) in enumerate(zip(taken.wanted, used, strict=True)):
            state = taken.states[place]
            taken.states[place] = settled(account.limit, state, amount, more, state.at)

    def _book(self, taken: Taken, used: Sequence[float]) -> None:
        """What was used of budgets without Redis: of buckets it is refilled before long."""
        day = taken.wall_s // DAY_S
        for (account, _), more in zip(taken.wanted, used, strict=True):
            if account.limit.kind == "day" and more:
                before = self._booked.get((account.name, day))
                amount = more + (before.amount if before else 0.0)
                self._booked[account.name, day] = Owed(account, "book", amount, "", day)
                self._something.set()

    def _taken_here(self, wanted: Sequence[Wanted]) -> Taken:
        here = self.local.take_now(wanted)
        return Taken(self, wanted, here.states, here.granted, here.now_s, here.wall_s, here=here)

    def _taken_there(self, answer: Sequence[Any], wanted: Sequence[Wanted], lease: str) -> Taken:
        granted, now_s = bool(answer[0]), float(answer[1])
        numbers = [float(each) for each in answer[2:]]
        states = [
            State(used, now_s // DAY_S if account.limit.kind == "day" else now_s, held)
            for (account, _), used, held in zip(wanted, numbers[::2], numbers[1::2], strict=True)
        ]
        here = self.local.book(wanted if granted else [(account, 0.0) for account, _ in wanted], states)
        if granted:
            held = [(account, _held(lease, amount)) for account, amount in wanted if account.limit.held]
            if held:
                self._running[lease] = held
        return Taken(self, wanted, states, granted, now_s, now_s, lease, here)

    def _undo(self, late: "asyncio.Future[Any]", wanted: Sequence[Wanted], lease: str) -> None:
        """Nobody waits any more for what was taken, if it was."""
        nothing = [0.0] * len(wanted)
        if late.cancelled() or late.exception() is not None:
            self._owe_settled(wanted, lease, nothing)
        elif late.result()[0]:
            self._owe_settled(wanted, lease, nothing)
            self._owe_refunds(wanted, nothing, float(late.result()[1]))

    def _owe_settled(self, wanted: Sequence[Wanted], lease: str, used: Sequence[float]) -> None:
        settled = zip(wanted, used, strict=True)
        self._owe(
            [
                Owed(account, "settle", amount, _held(lease, amount), more)
                for (account, amount), more in settled
                if account.limit.held
            ]
        )

    def _owe_refunds(self, wanted: Sequence[Wanted], used: Sequence[float], since_s: float) -> None:
        back = [(account, amount - more) for (account, amount), more in zip(wanted, used, strict=True)]
        self._owe(
            [Owed(each, "refund", amount, "", since_s) for each, amount in back if amount and not each.limit.held]
        )

    def _owe(self, owed: Sequence[Owed]) -> None:
        if owed:
            self._owed.extend(owed)
            self._told.clear()
            self._something.set()

    async def _follow(self) -> None:
        """Connects, and again whenever the connection is lost, for as long as the store is open."""
        from redis.exceptions import RedisError

        while not self._closing:
            try:
                await self._connected()
            except* (RedisError, OSError, TimeoutError) as lost:
                self._missing(type(_first(lost)).__name__)
            except* Exception:  # a defect here must not end quotas: it is logged and begun anew
                self._missing("a defect")
                _log.exception("what follows Redis failed")
            finally:
                self._line = None
                self._met.set()
            if not self._closing:
                await asyncio.sleep(AWAY_S)

    async def _connected(self) -> None:
        """Over one connection, in order: nobody waits on it for the answer to anybody else."""
        line = await connected(self._pool, (TAKE, SETTLE, RENEW))
        async with asyncio.TaskGroup() as group:
            for work in (line.run(), self._watch(line), self._tell(line), self._renew(line)):
                group.create_task(work)
            self._line = line
            self._answered()
            self._met.set()

    async def _watch(self, line: Line) -> None:
        """Once an answer was missed: ask until one comes in time. Raises TimeoutError where none comes at all."""
        loop = asyncio.get_running_loop()
        while True:
            await self._missed.wait()
            await asyncio.sleep(AWAY_S)
            asked_s = loop.time()
            async with asyncio.timeout(GIVEN_UP_S):
                await line.ask(TAKE, (), (repr(self._lease_s), ""))
            if loop.time() - asked_s <= self._answer_s:
                self._answered()

    def _missing(self, reason: str) -> None:
        self.failures += not self.away
        self._missed.set()
        if not self.away:
            self.away = True
            _log.warning(
                "Redis does not answer; each server limits by itself until it does", extra={"event": {"reason": reason}}
            )

    def _answered(self) -> None:
        self._missed.clear()
        if self.away:
            self.away = False
            _log.info("Redis answers again; quotas are shared")
        if self._booked:
            self._something.set()

    async def _tell(self, line: Line) -> None:
        while True:
            await self._something.wait()
            self._tell_some(line)
            await asyncio.sleep(0)

    def _tell_some(self, line: Line) -> None:
        """Many together, and before whoever takes next: those who end are never behind those who come."""
        if not self.away:  # what is booked may not be told twice, so not to one that may never say that it heard
            self._owed.extend(self._booked.values())
            self._booked.clear()
        told = [self._owed.popleft() for _ in range(min(len(self._owed), TOLD_AT_ONCE_MAX))]
        if not self._owed:
            self._something.clear()
        if not told:
            return
        arguments = [repr(self._lease_s)]
        for account, act, amount, lease, more in told:
            limit = account.limit
            arguments += (act, limit.kind, repr(limit.rate), repr(amount), lease, repr(more))
        self._telling += 1
        answer = line.ask(SETTLE, _keys(each.account for each in told), arguments)
        answer.add_done_callback(partial(self._said, told))

    def _said(self, told: Sequence[Owed], answer: "asyncio.Future[Any]") -> None:
        self._telling -= 1
        if answer.cancelled() or answer.exception() is not None:  # whether it was told nobody knows
            self._owe([each for each in told if each.act == "settle"])
        if not (self._owed or self._booked or self._telling):
            self._told.set()

    async def _renew(self, line: Line) -> None:
        while True:  # first what was held over another connection
            held = [each for leases in self._running.values() for each in leases]
            for start in range(0, max(1, len(held)), TOLD_AT_ONCE_MAX):  # once at least: it shows that the line lives
                some = held[start : start + TOLD_AT_ONCE_MAX]
                arguments = [repr(self._lease_s), *[lease for _, lease in some]]
                await _answer_to(line.ask(RENEW, _keys(account for account, _ in some), arguments))
            await asyncio.sleep(self._lease_s / RENEWALS)


async def _answer_to(asked: Awaitable[Any]) -> Any:
    async with asyncio.timeout(GIVEN_UP_S):
        return await asked


def _keys(accounts: Iterable[Account]) -> list[str]:
    return [key for account in accounts for key in (PREFIX + account.name, f"{PREFIX}held/{account.name}")]


def _held(lease: str, amount: float) -> str:
    """Who holds how much, as the scripts write it."""
    return f"{lease}|{amount!r}"


def _first(error: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of those that are in it, however deep."""
    first = error.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
