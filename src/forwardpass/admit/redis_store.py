"""Accounts in a Redis that several servers share; while it does not answer, this server's own do.

A server that dies gives back what it ran: its leases end by themselves. Nothing waits for Redis longer than ANSWER_S.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from forwardpass.admit.memory import MemoryStore
from forwardpass.admit.redis_scripts import GIVE, RENEW, TAKE
from forwardpass.admit.store import Taken, Wanted
from forwardpass.core.clock import Clock, RandomIds
from forwardpass.core.errors import Code, Misconfigured, Problem

if TYPE_CHECKING:
    from redis.asyncio import Redis

ANSWER_S = 0.05
AWAY_S = 1.0
"""After a failure nobody asks Redis for so long; then one request does, and if it is answered, all do."""
LEASE_S = 30.0
RENEWALS = 3
"""While a request runs its lease is renewed so often in the time that it holds."""
OWED_MAX = 10_000
"""Settlements that wait to be told to Redis; of more the oldest are dropped, and what they give back stays charged."""
TOLD_AT_ONCE_MAX = 200
CONNECTIONS_MAX = 8  # a script takes Redis some 50 us: more would only wait there instead of here
PREFIX = "forwardpass:{quota}:"
"""One hash slot for all, so that a script may see them together."""
_log = logging.getLogger("forwardpass.admit")


class Script(NamedTuple):
    text: str
    keys: Sequence[str]
    arguments: Sequence[str]
    repeatable: bool = False  # to run it again changes nothing


class RedisStore:
    """``async with`` it for what is told to Redis afterwards: settlements, and that requests still run.

    ``away`` says that quotas are this server's own at the moment; ``failures`` counts how often Redis did not answer.
    """

    def __init__(self, client: "Redis", clock: Clock, *, answer_s: float = ANSWER_S, lease_s: float = LEASE_S) -> None:
        self.local = MemoryStore(clock)
        self.away = False
        self.failures = 0
        self._client = client
        self._clock = clock
        self._answer_s = answer_s
        self._lease_s = lease_s
        self._ask_at_s = 0.0  # while it is away, not before that
        self._ids = RandomIds()
        self._owed: deque[Script] = deque(maxlen=OWED_MAX)
        self._running: dict[str, Sequence[str]] = {}  # lease -> the keys that have it
        self._something = asyncio.Event()
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        self._digests: dict[str, str] = {}
        self._closing = False
        self._telling: asyncio.Task[None] | None = None

    def open(self) -> Self:
        return self

    def status(self) -> dict[str, object]:
        return {"accounts": len(self.local), "redis": {"away": self.away, "failures": self.failures}}

    async def __aenter__(self) -> Self:
        self._telling = asyncio.create_task(self._tell())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is owed is told once more, if Redis answers; the rest ends with its leases."""
        assert self._telling is not None, "left without having been entered"
        self._closing = True
        self._something.set()
        await self._telling
        if not self.away:
            await self._tell_owed()
        from redis.exceptions import RedisError

        with suppress(RedisError, OSError):  # one that does not answer does not say goodbye either
            await self._client.aclose()

    async def take(self, wanted: Sequence[Wanted]) -> Taken:
        now_s = self._clock()
        if self.away and now_s < self._ask_at_s:
            return self.local.take_now(wanted)
        self._ask_at_s = now_s + AWAY_S  # nobody else tries while this one does, if it is away
        tries = self.away
        lease = self._ids.next()
        keys = [PREFIX + account.name for account, _ in wanted]
        held = [key for key, (account, _) in zip(keys, wanted, strict=True) if account.limit.kind == "concurrent"]
        arguments = [lease, repr(self._lease_s), *_arguments(wanted)]
        answer: Any = None
        try:
            answer = await self._ask(Script(TAKE, keys, arguments), tries=tries)
        finally:
            if answer is None:  # whether it was taken nobody knows; a lease can be let go either way
                self._let_go(lease, held)
        if answer is None:
            return self.local.take_now(wanted)
        granted, at, *used = answer
        if granted and held:
            self._running[lease] = held
        return Taken(self, wanted, [float(each) for each in used], bool(granted), float(at), float(at), lease)

    def give(self, taken: Taken, back: Sequence[float]) -> None:
        given = [(account, amount) for (account, _), amount in zip(taken.wanted, back, strict=True) if amount]
        self._let_go(taken.lease, self._running.pop(taken.lease, ()))
        counted = [(account, amount) for account, amount in given if account.limit.kind != "concurrent"]
        if counted:
            keys = [PREFIX + account.name for account, _ in counted]
            self._owe(Script(GIVE, keys, [taken.lease, repr(taken.now_s), *_arguments(counted)]))

    def _let_go(self, lease: str, keys: Sequence[str]) -> None:
        if keys:
            none = ["concurrent", "0", "0", "0"]
            self._owe(Script(GIVE, keys, [lease, "0", *none * len(keys)], repeatable=True))

    def _owe(self, script: Script) -> None:
        self._owed.append(script)
        self._something.set()

    async def _ask(self, script: Script, *, tries: bool = False) -> Any:
        """What Redis answers; None when it does not, or not in time. ``tries``: although it is away.

        Waiting for a turn is no sign that Redis is slow; whoever still waits when it is found to be away is let go.
        """
        from redis.exceptions import RedisError

        async with self._turns:
            if self.away and not tries:
                return None
            try:
                async with asyncio.timeout(self._answer_s):
                    answer = await self._run_anew(script)
            except (RedisError, OSError, TimeoutError) as error:
                self._failed(error)
                return None
        self._answered()
        return answer

    async def _run_anew(self, script: Script) -> Any:
        """A connection of before Redis was started anew is no sign that it is away: once more over another one."""
        from redis.exceptions import ConnectionError as ConnectionLost

        try:
            return await self._run(script)
        except ConnectionLost:
            await self._client.connection_pool.disconnect(inuse_connections=False)
            if script.text is GIVE and not script.repeatable:
                raise
            return await self._run(script)

    async def _run(self, script: Script) -> Any:
        from redis.exceptions import NoScriptError

        text, keys, arguments, _ = script
        digest = self._digests.get(text)
        if digest is not None:
            try:
                return await self._client.evalsha(digest, len(keys), *keys, *arguments)
            except NoScriptError:  # it was started anew
                pass
        self._digests[text] = await self._client.script_load(text)
        return await self._client.evalsha(self._digests[text], len(keys), *keys, *arguments)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._ask_at_s = self._clock() + AWAY_S
        if not self.away:
            self.away = True
            event = {"reason": type(error).__name__}
            _log.warning("Redis does not answer; each server limits by itself until it does", extra={"event": event})

    def _answered(self) -> None:
        if self.away:
            self.away = False
            _log.info("Redis answers again; quotas are shared")

    async def _tell(self) -> None:
        """Until it is closed: settle what is owed as it comes, and renew the leases of what runs."""
        renew_at_s = self._clock() + self._lease_s / RENEWALS
        while not self._closing:
            try:
                async with asyncio.timeout(max(0.05, renew_at_s - self._clock())):
                    await self._something.wait()
            except TimeoutError:
                pass
            if self.away:  # whoever asks next finds out whether it is back
                await asyncio.sleep(AWAY_S / 4)
                continue
            if self._clock() >= renew_at_s:
                renew_at_s = self._clock() + self._lease_s / RENEWALS
                await self._renew()
            await self._tell_owed()

    async def _tell_owed(self) -> None:
        self._something.clear()
        while self._owed and not self.away:
            script = self._owed.popleft()
            if await self._ask(script) is None and script.repeatable:
                self._owe(script)  # another one might credit twice what it did before its answer was lost

    async def _renew(self) -> None:
        held = [(key, lease) for lease, keys in self._running.items() for key in keys]
        for start in range(0, len(held), TOLD_AT_ONCE_MAX):
            some = held[start : start + TOLD_AT_ONCE_MAX]
            await self._ask(
                Script(RENEW, [key for key, _ in some], [repr(self._lease_s), *[lease for _, lease in some]])
            )


def redis_client(url: str, password: str = "", *, answer_s: float = ANSWER_S) -> "Redis":
    """Raises Misconfigured for an address that is none, or when the library is not installed."""
    try:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        problem = Problem("settings", "run.redis", "redis is not installed", "pip install 'forwardpass[redis]'")
        raise Misconfigured(Code.RUNTIME_MISSING, (problem,)) from None
    options: Mapping[str, Any] = {
        "socket_timeout": answer_s,
        "socket_connect_timeout": answer_s,
        "timeout": answer_s,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": CONNECTIONS_MAX,
        **({"password": password} if password else {}),
    }
    try:
        pool = BlockingConnectionPool.from_url(url, **options)
    except ValueError as error:
        problem = Problem("settings", "run.redis", "not the address of a Redis", "redis://HOST:PORT/NUMBER")
        raise Misconfigured(Code.SETTINGS_INVALID, (problem,)) from error
    return Redis.from_pool(pool)


def _arguments(wanted: Sequence[Wanted]) -> list[str]:
    """Four of each account, as the scripts read them."""
    arguments: list[str] = []
    for account, amount in wanted:
        limit = account.limit
        arguments += (limit.kind, repr(limit.capacity), repr(limit.rate), repr(amount))
    return arguments
