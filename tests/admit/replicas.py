"""Several servers with one Redis, as replicas that share their quotas, and what tests ask of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from redis.asyncio import Redis
from tests.admit.redis_process import RedisProcess

from forwardpass.admit.quotas import Admission, Quotas, Use
from forwardpass.admit.redis_line import redis_at
from forwardpass.admit.redis_store import LEASE_S, RedisStore
from forwardpass.admit.rules import QuotaRule
from forwardpass.core.caller import Caller
from forwardpass.core.clock import FakeClock, monotonic_s
from forwardpass.core.errors import Refused

PATIENT_S = 10.0  # so that a busy machine is no failure of Redis


@asynccontextmanager
async def replicas(
    redis: RedisProcess,
    *rules: QuotaRule,
    count: int = 2,
    answer_s: float = PATIENT_S,
    clock: FakeClock | None = None,
    lease_s: float = LEASE_S,
) -> AsyncIterator[list[Quotas]]:
    """As many servers, with the same rules and one Redis; what it knew is forgotten."""
    async with Redis.from_url(redis.url) as client:
        await client.flushall()
    async with AsyncExitStack() as stack:
        stores = [
            RedisStore(redis_at(redis.url), clock or monotonic_s, answer_s=answer_s, lease_s=lease_s)
            for _ in range(count)
        ]
        for store in stores:
            await stack.enter_async_context(store.open())
        yield [Quotas(rules, store, lambda pipeline: True) for store in stores]


async def entered(quotas: Quotas, tenant: str = "acme", body_bytes: int = 0) -> Admission | None:
    """None: refused."""
    admission = quotas.admission(Caller(tenant), body_bytes)
    try:
        await admission.enter()
    except Refused:
        return None
    return admission


async def charged(quotas: Quotas, use: Use) -> Admission | None:
    admission = await entered(quotas)
    assert admission is not None
    try:
        await admission.charge(use)
    except Refused:
        return None
    return admission


async def comes_true(true: Callable[[], Awaitable[bool]], limit_s: float = 10.0) -> None:
    async with asyncio.timeout(limit_s):
        while not await true():
            await asyncio.sleep(0.02)


async def both(*servers: Quotas, away: bool) -> bool:
    return all(store.away is away for quotas in servers if isinstance(store := quotas.store, RedisStore))
