"""Quotas that servers share in a real Redis, and what holds while it is away."""

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from tests.admit.redis_process import RedisProcess, redis_process
from tests.admit.replicas import PATIENT_S, both, charged, comes_true, entered, replicas

from forwardpass.admit.quotas import NOTHING, Admission, Quotas, Use
from forwardpass.admit.redis_line import redis_at
from forwardpass.admit.redis_store import ANSWER_S, PREFIX, RedisStore
from forwardpass.admit.rules import QuotaRule
from forwardpass.core.caller import Caller
from forwardpass.core.clock import FakeClock, monotonic_s
from forwardpass.core.errors import Code, Refused


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with redis_process(tmp_path_factory.mktemp("redis")) as running:
        yield running


def test_two_servers_share_a_limit(redis: RedisProcess) -> None:
    async def run() -> None:
        async with replicas(redis, QuotaRule(tenant="*", requests_per_minute=10)) as (one, two):
            admissions = [await entered(quotas) for quotas in (one, two) * 10]
            assert sum(each is not None for each in admissions) == 10
            assert await entered(one, "other") is not None

    asyncio.run(run())


def test_requests_that_run_at_the_same_time_are_counted_over_all_servers(redis: RedisProcess) -> None:
    async def run() -> None:
        async with replicas(redis, QuotaRule(tenant="*", concurrent=3)) as (one, two):
            admissions = await asyncio.gather(*[entered(quotas) for quotas in (one, two) * 8])
            running = [each for each in admissions if each is not None]
            assert len(running) == 3
            running[0].leave()

            async def room() -> bool:
                return await entered(two) is not None

            await comes_true(room)
            assert await entered(one) is None

    asyncio.run(run())


def test_a_budget_is_reserved_and_settled_over_all_servers(redis: RedisProcess) -> None:
    async def run() -> None:
        async with replicas(redis, QuotaRule(tenant="*", cost_per_day=100.0)) as (one, two):
            first = await charged(one, Use(cost=80))
            assert first is not None and await charged(two, Use(cost=30)) is None
            first.settle(Use(cost=60))

            async def room() -> bool:
                return await charged(two, Use(cost=30)) is not None

            await comes_true(room)
            assert await charged(one, Use(cost=11)) is None
            assert await charged(one, Use(cost=10)) is not None

    asyncio.run(run())


def test_all_rules_of_a_request_are_taken_or_none(redis: RedisProcess) -> None:
    async def run() -> None:
        rules = (QuotaRule(tenant="*", requests_per_minute=3), QuotaRule(key="*", bytes_per_minute=10))
        async with replicas(redis, *rules) as (one, two):
            assert await entered(one, body_bytes=8) is not None
            assert [await entered(two, body_bytes=8) for _ in range(9)] == [None] * 9
            assert await entered(two, body_bytes=1) is not None
            assert await entered(two, body_bytes=0) is not None
            assert await entered(two, body_bytes=0) is None

    asyncio.run(run())


def test_no_two_servers_overshoot_a_budget_however_they_meet(redis: RedisProcess) -> None:
    async def spend(quotas: Quotas, cost: int) -> float:
        admission = await charged(quotas, Use(cost=cost))
        if admission is None:
            return 0.0
        await asyncio.sleep(0)
        admission.settle(Use(cost=cost / 2))
        return cost / 2

    async def run() -> None:
        async with replicas(redis, QuotaRule(tenant="*", cost_per_day=50.0)) as servers:
            spent = await asyncio.gather(*[spend(servers[n % 2], n % 7 + 1) for n in range(150)])
            assert 25 <= sum(spent) <= 50

    asyncio.run(run())


def test_a_refusal_says_what_is_left_and_when_to_come_again(redis: RedisProcess) -> None:
    async def run() -> None:
        async with replicas(redis, QuotaRule(tenant="*", bytes_per_minute=600)) as (one, two):
            await entered(one, body_bytes=500)
            refused = two.admission(Caller("acme"), 200)
            with pytest.raises(Refused, match="bytes_per_minute of tenant acme: 600; asked 200") as refusal:
                await refused.enter()
            assert refusal.value.code is Code.RATE_LIMITED
            assert refusal.value.retry_after_s is not None and 0 < refusal.value.retry_after_s <= 14
            assert (b"RateLimit-Policy", b'"tenant-bytes_per_minute";q=600;qu="content-bytes";w=60') in (
                refused.standings.headers(openai=False)
            )

    asyncio.run(run())


def test_what_is_kept_in_redis_ends_by_itself(redis: RedisProcess) -> None:
    async def run() -> None:
        rule = QuotaRule(tenant="*", requests_per_minute=10, concurrent=3, cost_per_day=5.0)
        async with replicas(redis, rule, count=1) as (one,), Redis.from_url(redis.url) as client:
            assert await charged(one, Use(cost=1)) is not None
            keys = await client.keys(f"{PREFIX}*")
            assert len(keys) == 4  # of a budget what is used and who holds of it
            assert all([0 < await client.ttl(key) <= 2 * 86_400 for key in keys])

    asyncio.run(run())


def test_a_server_that_died_gives_back_what_it_ran(redis: RedisProcess) -> None:
    async def run() -> None:
        async with (
            replicas(redis, QuotaRule(tenant="*", concurrent=1), count=1) as (one,),
            Redis.from_url(redis.url) as client,
        ):
            key = f"{PREFIX}held/concurrent/tenant*4:acme"
            await client.zadd(key, {"of a server that is gone|1.0": time.time() + 0.3})
            assert await entered(one) is None

            async def room() -> bool:
                return await entered(one) is not None

            await comes_true(room)

    asyncio.run(run())


def test_a_request_that_runs_for_long_keeps_its_place(redis: RedisProcess) -> None:
    async def run() -> None:
        rule = QuotaRule(tenant="*", concurrent=1)
        async with (
            replicas(redis, rule, count=1) as (other,),
            Redis.from_url(redis.url) as client,
            RedisStore(redis_at(redis.url), monotonic_s, answer_s=PATIENT_S, lease_s=6.0) as store,
        ):
            assert await entered(Quotas((rule,), store)) is not None
            (key,) = await client.keys(f"{PREFIX}held/concurrent*")
            left_ms = [await client.pttl(key)]

            async def renewed() -> bool:
                left_ms.append(await client.pttl(key))
                return left_ms[-1] > min(left_ms) + 500

            await comes_true(renewed)
            assert await entered(other) is None

    asyncio.run(run())


def test_a_redis_that_was_killed_is_done_without_and_shared_again_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(redis: RedisProcess) -> None:
        clock = FakeClock()
        rule = QuotaRule(tenant="*", requests_per_minute=2)
        async with replicas(redis, rule, clock=clock) as (one, two):
            assert [await entered(quotas) is not None for quotas in (one, two, one)] == [True, True, False]
            redis.kill()
            await comes_true(lambda: both(one, two, away=True))
            assert await entered(one) is None  # it goes on from where Redis stood
            clock.advance(60)
            assert [await entered(one) is not None for _ in range(3)] == [True, True, False]  # its own limit
            redis.start()
            await comes_true(lambda: both(one, two, away=False))
            assert [await entered(quotas) is not None for quotas in (one, two, one)] == [True, True, False]
            assert one.store.status()["redis"] == {"away": False, "failures": 1}

    with redis_process(tmp_path) as redis, caplog.at_level(logging.INFO, "forwardpass.admit"):
        asyncio.run(run(redis))
    assert [record.levelname for record in caplog.records].count("WARNING") == 2  # one of each server
    assert "127.0.0.1" not in caplog.text


@pytest.mark.alone
def test_a_redis_that_does_not_answer_costs_one_request_its_patience_and_the_others_nothing(tmp_path: Path) -> None:
    async def run(redis: RedisProcess) -> None:
        rule = QuotaRule(tenant="*", requests_per_minute=1000)
        async with replicas(redis, rule, count=1, answer_s=ANSWER_S) as (one,):
            assert await entered(one) is not None
            redis.stop()
            try:
                took_s = []
                for _ in range(50):
                    started = time.monotonic()
                    assert await entered(one) is not None
                    took_s.append(time.monotonic() - started)
            finally:
                redis.go_on()
            took_s.sort()
            assert took_s[-2] < ANSWER_S / 2
            assert ANSWER_S * 0.9 <= took_s[-1] < ANSWER_S * 4

    with redis_process(tmp_path) as redis:
        asyncio.run(run(redis))


def test_a_request_given_up_while_redis_is_asked_leaves_no_lease(tmp_path: Path) -> None:
    async def run(redis: RedisProcess) -> None:
        async with replicas(redis, QuotaRule(tenant="*", concurrent=1), count=1) as (one,):
            first = await entered(one)
            assert first is not None
            first.leave()
            redis.stop()
            asking = asyncio.create_task(entered(one))
            await asyncio.sleep(0.05)
            asking.cancel()
            await asyncio.wait((asking,))
            redis.go_on()

            async def room() -> bool:
                return await entered(one) is not None

            await comes_true(room)

    with redis_process(tmp_path) as redis:
        asyncio.run(run(redis))


def test_a_request_given_up_as_its_answer_comes_leaves_no_lease(redis: RedisProcess) -> None:
    async def run() -> None:
        async with (
            replicas(redis, QuotaRule(tenant="*", concurrent=1000, cost_per_day=1e6), count=1) as (one,),
            Redis.from_url(redis.url) as client,
        ):
            for turns in range(300):
                asking = asyncio.create_task(charged(one, Use(cost=1)))
                for _ in range(turns % 20):
                    await asyncio.sleep(0)
                asking.cancel()
                for admission in await asyncio.gather(asking, return_exceptions=True):
                    if isinstance(admission, Admission):
                        admission.settle(NOTHING)
                        admission.leave()

            async def nothing() -> bool:
                return await client.keys(f"{PREFIX}held/*") == []

            await comes_true(nothing)

    asyncio.run(run())


def test_what_was_given_back_while_redis_is_left_is_told_to_it(redis: RedisProcess) -> None:
    async def run() -> None:
        rule = QuotaRule(tenant="*", cost_per_day=10.0)
        async with replicas(redis, rule, count=1) as (one,):
            admission = await charged(one, Use(cost=10))
            assert admission is not None
            admission.settle(NOTHING)
        async with Redis.from_url(redis.url) as client:
            (key,) = await client.keys(f"{PREFIX}cost_per_day*")
            assert await client.hmget(key, "used", "held") == [b"0", b"0"]

    asyncio.run(run())


def test_the_password_of_a_redis_is_in_no_refusal() -> None:
    with pytest.raises(Exception, match="not the address of a Redis") as refusal:
        redis_at("redis://user:hidden@localhost:notaport")
    assert "hidden" not in str(refusal.value)
