"""Kept answers in a Redis that servers share. A Redis that is away, slow or full costs a look, never a request.

One connection reads and one writes, each for all requests that ask at the same time. While Redis does not answer nobody
waits for it: it is asked once in AWAY_S whether it is back.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from forwardpass.cache.kept import Kept
from forwardpass.cache.packed import packed, unpacked
from forwardpass.core.errors import Code, Misconfigured, Problem

if TYPE_CHECKING:
    from redis.asyncio import Redis

ANSWER_S = 0.05
"""So long a request waits for what may be known; then it runs."""
GIVEN_UP_S = 2.0
AWAY_S = 1.0
PURGE_S = 60.0
ASKED_AT_ONCE_MAX = 512
WAITING_BYTES_MAX = 16 * 1024 * 1024
"""That are still to be written; what comes then is not shared."""
VALUE_BYTES_MAX = 4 * 1024 * 1024
"""Of one answer; a larger one is kept here only."""
PREFIX = "forwardpass:cache:"
_log = logging.getLogger("forwardpass.cache")


class _Write(NamedTuple):
    name: str
    value: bytes
    ttl_ms: int


class RedisTier:
    """``opened`` it, or it is away. ``failures`` counts how often Redis did not answer, ``dropped`` what was not written."""

    def __init__(self, client: "Redis", *, answer_s: float = ANSWER_S) -> None:
        self.failures = 0
        self.dropped = 0
        self._client = client
        self._answer_s = answer_s
        self._here = False
        self._asked: dict[str, asyncio.Future[bytes | None]] = {}
        self._writes: deque[_Write] = deque()
        self._writing_bytes = 0
        self._ask = asyncio.Event()
        self._write = asyncio.Event()

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
        asked: dict[bytes, asyncio.Future[bytes | None]] = {}
        for key in keys:
            name = _name(pipeline, key)
            asked[key] = self._asked.get(name) or self._asked.setdefault(name, loop.create_future())
        self._ask.set()
        _, late = await asyncio.wait(set(asked.values()), timeout=self._answer_s)
        if late:
            self._missed("no answer in time")
        found = {key: value for key, future in asked.items() if future.done() and (value := future.result())}
        kept = {key: unpacked(key, value, now) for key, value in found.items()}
        return {key: each for key, each in kept.items() if each is not None}

    def keep(self, pipeline: str, key: bytes, kept: Kept, now: float, ttl_s: float) -> None:
        size = kept.bytes_total
        if self.away or size > VALUE_BYTES_MAX or self._writing_bytes + size > WAITING_BYTES_MAX:
            self.dropped += 1
            return
        value = packed(key, kept, now)
        self._writing_bytes += len(value)
        self._writes.append(_Write(_name(pipeline, key), value, max(1, int(1000 * (ttl_s - (now - kept.made_s))))))
        self._write.set()

    async def purge(self, pipeline: str) -> int | None:
        from redis.exceptions import RedisError

        pattern = f"{PREFIX}{pipeline}:*" if pipeline else f"{PREFIX}*"
        self._writes = deque(each for each in self._writes if pipeline and not each.name.startswith(pattern[:-1]))
        self._writing_bytes = sum([len(each.value) for each in self._writes])
        gone = cursor = 0
        try:
            async with asyncio.timeout(PURGE_S):
                while True:
                    cursor, names = await self._client.scan(cursor, match=pattern, count=1000)
                    if names:
                        gone += await self._client.unlink(*names)
                    if not cursor:
                        return gone
        except (RedisError, OSError, TimeoutError) as error:
            self._missed(type(error).__name__)
            return None

    async def _look(self) -> None:
        """Whether it is there."""
        from redis.exceptions import RedisError

        while True:
            try:
                async with asyncio.timeout(GIVEN_UP_S):
                    await self._client.ping()
                if self.away:
                    _log.info("Redis answers; kept answers are shared")
                self._here = True
            except (RedisError, OSError, TimeoutError) as error:
                self._missed(type(error).__name__)
            await asyncio.sleep(AWAY_S)

    async def _read(self) -> None:
        """All that is asked at the same time in one question."""
        from redis.exceptions import RedisError

        while True:
            await self._ask.wait()
            self._ask.clear()
            asked, self._asked = self._asked, {}
            names = list(asked)
            for start in range(0, len(names), ASKED_AT_ONCE_MAX):
                some = names[start : start + ASKED_AT_ONCE_MAX]
                values: Sequence[Any] = [None] * len(some)
                try:
                    if not self.away:
                        async with asyncio.timeout(GIVEN_UP_S):
                            values = await self._client.mget(some)
                except (RedisError, OSError, TimeoutError) as error:
                    self._missed(type(error).__name__)
                finally:
                    for name, value in zip(some, values, strict=True):
                        if not asked[name].done():
                            asked[name].set_result(value)

    async def _put(self) -> None:
        from redis.exceptions import RedisError

        while True:
            await self._write.wait()
            self._write.clear()
            while self._writes:
                some = [self._writes.popleft() for _ in range(min(len(self._writes), ASKED_AT_ONCE_MAX))]
                self._writing_bytes -= sum([len(each.value) for each in some])
                try:
                    async with asyncio.timeout(GIVEN_UP_S), self._client.pipeline(transaction=False) as line:
                        for each in some:
                            line.set(each.name, each.value, px=each.ttl_ms)
                        await line.execute()
                except (RedisError, OSError, TimeoutError) as error:
                    self.dropped += len(some)
                    self._missed(type(error).__name__)

    def _missed(self, reason: str) -> None:
        if self._here:
            _log.warning("Redis does not answer; kept answers are not shared", extra={"event": {"reason": reason}})
        self.failures += 1
        self._here = False


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
