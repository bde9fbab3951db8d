"""Kept answers in a Redis that servers share. A Redis that is away, slow or full costs a look, never a request.

One connection reads and one writes, each for all requests that ask at the same time. While Redis does not answer nobody
waits for it: it is asked once in AWAY_S whether it is back.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from forwardpass.cache.kept import Kept
from forwardpass.cache.packed import packed, unpacked
from forwardpass.core.clock import wall_s
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.off_loop import off_loop

if TYPE_CHECKING:
    from redis.asyncio import Redis

ANSWER_S = 0.05
"""So long a request waits for what may be known; then it runs."""
GIVEN_UP_S = 2.0
AWAY_S = 1.0
PURGE_S = 60.0
ASKED_AT_ONCE_MAX = 128
READ_BYTES_MAX = 64 * 1024 * 1024
"""Of all that is asked at the same time; the rest is as if it were not known."""
WAITING_BYTES_MAX = 16 * 1024 * 1024
"""That are still to be written; what comes then is not shared."""
VALUE_BYTES_MAX = 512 * 1024
"""Of one answer; a larger one is kept here only."""
PREFIX = "forwardpass:cache:"
Said = TypeVar("Said")
_log = logging.getLogger("forwardpass.cache")


class _Write(NamedTuple):
    name: str
    key: bytes
    kept: Kept
    made_at_s: float
    ttl_ms: int


class RedisTier:
    """``opened`` it, or it is away. ``failures`` counts how often Redis did not answer, ``dropped`` what was not written."""

    def __init__(self, client: "Redis", *, answer_s: float = ANSWER_S) -> None:
        self.failures = 0
        self.dropped = 0
        self._client = client
        self._answer_s = answer_s
        self._here = False
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._writes: deque[_Write] = deque()
        self._waiting_bytes = 0
        self._ask = asyncio.Event()
        self._write = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def away(self) -> bool:
        return not self._here

    def status(self) -> dict[str, Any]:
        return {"away": self.away, "failures": self.failures, "dropped": self.dropped}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """What reads, writes and looks whether Redis is there is in here."""
        works = [asyncio.create_task(work) for work in (self._look(), self._read(), self._put())]
        try:
            yield
        finally:
            self._here = False
            for work in works:
                work.cancel()
            await asyncio.wait(works)
            await self._client.aclose()

    async def find(self, pipeline: str, keys: Sequence[bytes], now: float) -> Mapping[bytes, Kept]:
        if self.away:
            return {}
        loop = asyncio.get_running_loop()
        asked: dict[bytes, asyncio.Future[Any]] = {}
        for key in keys:
            name = _name(pipeline, key)
            asked[key] = self._asked.get(name) or self._asked.setdefault(name, loop.create_future())
        self._ask.set()
        _, late = await asyncio.wait(set(asked.values()), timeout=self._answer_s)
        if late:
            self._missed("no answer in time")
        found = {key: value for key, each in asked.items() if each.done() and isinstance(value := each.result(), bytes)}
        return await off_loop(sum(map(len, found.values())), _unpacked, found, now)

    def keep(self, pipeline: str, key: bytes, kept: Kept, now: float, ttl_s: float) -> None:
        size, age_s = kept.bytes_total, now - kept.made_s
        if self.away or size > VALUE_BYTES_MAX or self._waiting_bytes + size > WAITING_BYTES_MAX:
            self.dropped += 1
            return
        self._waiting_bytes += size
        ttl_ms = max(1, int(1000 * (ttl_s - age_s)))
        self._writes.append(_Write(_name(pipeline, key), key, kept, wall_s() - age_s, ttl_ms))
        self._write.set()

    async def purge(self, pipeline: str) -> int | None:
        ahead = f"{PREFIX}{pipeline}:" if pipeline else PREFIX
        waiting, self._writes = self._writes, deque()
        for each in waiting:
            if each.name.startswith(ahead):
                self._waiting_bytes -= each.kept.bytes_total
            else:
                self._writes.append(each)
        async with self._writing:  # what is being written is there before it is looked for
            pass
        return await self._said(self._unlinked(ahead), PURGE_S)

    async def _unlinked(self, ahead: str) -> int:
        pattern = "".join([f"\\{each}" if each in "*?[]\\^" else each for each in ahead]) + "*"
        gone = cursor = 0
        while True:
            cursor, names = await self._client.scan(cursor, match=pattern, count=1000)
            if names:
                gone += await self._client.unlink(*names)
            if not cursor:
                return gone

    async def _look(self) -> None:
        """Whether it is there."""
        while True:
            if await self._said(self._client.ping()) is not None:
                if self.away:
                    _log.info("Redis answers; kept answers are shared")
                self._here = True
            await asyncio.sleep(AWAY_S)

    async def _read(self) -> None:
        """All that is asked at the same time in one question."""
        while True:
            await self._ask.wait()
            self._ask.clear()
            asked, self._asked = self._asked, {}
            names, left = list(asked), READ_BYTES_MAX
            for start in range(0, len(names), ASKED_AT_ONCE_MAX):
                some = names[start : start + ASKED_AT_ONCE_MAX]
                values = None if self.away or left <= 0 else await self._said(self._client.mget(some))
                if values is not None and not (isinstance(values, list) and len(values) == len(some)):
                    self._missed("another number of values than was asked for")
                    values = None
                for name, value in zip(some, values or repeat(None), strict=False):
                    left -= len(value) if isinstance(value, bytes) else 0
                    future = asked.pop(name)
                    if not future.done():
                        future.set_result(value)

    async def _put(self) -> None:
        while True:
            await self._write.wait()
            self._write.clear()
            while self._writes:
                some = [self._writes.popleft() for _ in range(min(len(self._writes), ASKED_AT_ONCE_MAX))]
                size = sum([each.kept.bytes_total for each in some])
                async with self._writing:
                    said = None if self.away else await self._said(self._written(some, size))
                self._waiting_bytes -= size
                # One that is full says so of each, and still answers what it is asked.
                self.dropped += len(some) if said is None else sum([isinstance(each, Exception) for each in said])

    async def _written(self, some: Sequence[_Write], size: int) -> list[Any]:
        values = await off_loop(size, _packed, some)
        async with self._client.pipeline(transaction=False) as line:
            for each, value in zip(some, values, strict=True):
                line.set(each.name, value, px=each.ttl_ms)
            return await line.execute(raise_on_error=False)

    async def _said(self, asked: Awaitable[Said], limit_s: float = GIVEN_UP_S) -> Said | None:
        """What it answers, or None: too late, not at all, or nothing that Redis says."""
        try:
            async with asyncio.timeout(limit_s):
                return await asked
        except Exception as error:  # a border: whatever is at the other end makes its library raise
            self._missed(type(error).__name__)
            return None

    def _missed(self, reason: str) -> None:
        if self._here:
            _log.warning("Redis does not answer; kept answers are not shared", extra={"event": {"reason": reason}})
        self.failures += 1
        self._here = False


def _unpacked(found: Mapping[bytes, bytes], now: float) -> dict[bytes, Kept]:
    answers = {key: unpacked(key, value, now) for key, value in found.items() if len(value) <= 2 * VALUE_BYTES_MAX}
    return {key: each for key, each in answers.items() if each is not None}


def _packed(some: Sequence[_Write]) -> list[bytes]:
    return [packed(each.key, each.kept, each.made_at_s) for each in some]


def _name(pipeline: str, key: bytes) -> str:
    return f"{PREFIX}{pipeline}:{key.hex()}"


def redis_client(url: str) -> "Redis":
    """Raises Misconfigured for an address that is none, or when the library is not installed."""
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        problem = Problem("settings", "cache.redis", "redis is not installed", "pip install 'forwardpass[redis]'")
        raise Misconfigured(Code.RUNTIME_MISSING, (problem,)) from None
    try:
        client: Redis = Redis.from_url(
            url, protocol=2, socket_timeout=GIVEN_UP_S, socket_connect_timeout=GIVEN_UP_S, retry=Retry(NoBackoff(), 0)
        )
    except ValueError as error:
        problem = Problem("settings", "cache.redis", "not the address of a Redis", "redis://HOST:PORT/NUMBER")
        raise Misconfigured(Code.SETTINGS_INVALID, (problem,)) from error
    return client
