"""Quotas in a real Redis under load, over a slow network, and while it stands still."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from tests.admit.redis_process import RedisProcess, redis_process
from tests.admit.replicas import PATIENT_S, both, charged, comes_true, entered, replicas

from forwardpass.admit.quotas import Quotas, Use
from forwardpass.admit.redis_line import redis_at
from forwardpass.admit.redis_store import ANSWER_S, CLOSING_S, PREFIX, RedisStore
from forwardpass.admit.rules import QuotaRule
from forwardpass.core.clock import monotonic_s


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with redis_process(tmp_path_factory.mktemp("redis")) as running:
        yield running


@asynccontextmanager
async def far_away(redis: RedisProcess, delay_s: float) -> AsyncIterator[str]:
    """The address of the same Redis, with so long a way there and as long a way back."""
    loop = asyncio.get_running_loop()
    writers: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            loop.call_later(delay_s, writer.write, data)
        loop.call_later(delay_s, writer.close)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", redis.port)
        writers.extend((writer, back))
        await asyncio.gather(carry(reader, back), carry(there, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        await asyncio.sleep(2 * delay_s)
        for writer in writers:
            writer.close()
        await asyncio.gather(*[writer.wait_closed() for writer in writers], return_exceptions=True)


def test_requests_that_end_make_room_as_fast_as_others_come(redis: RedisProcess) -> None:
    async def ask(quotas: Quotas) -> int:
        """Again and again; how often it was let in, of 60 times."""
        let_in = 0
        for _ in range(60):
            admission = await entered(quotas)
            let_in += admission is not None
            await asyncio.sleep(0)
            if admission is not None:
                admission.leave()
        return let_in

    async def run() -> None:
        async with replicas(redis, QuotaRule(tenant="*", concurrent=64), count=1) as (one,):
            assert sum(await asyncio.gather(*[ask(one) for _ in range(30)])) == 30 * 60

    asyncio.run(run())


def test_a_loud_tenant_does_not_cost_a_quiet_one_its_place(redis: RedisProcess) -> None:
    async def run() -> None:
        async with replicas(redis, QuotaRule(tenant="*", concurrent=8), count=1) as (one,):
            quiet: list[bool] = []

            async def loud() -> None:
                while len(quiet) < 60:
                    admission = await entered(one, "loud")
                    await asyncio.sleep(0.005)
                    if admission is not None:
                        admission.leave()

            async def ask() -> None:
                while len(quiet) < 60:
                    admission = await entered(one, "quiet")
                    quiet.append(admission is not None)
                    if admission is not None:
                        admission.leave()

            await asyncio.gather(*[loud() for _ in range(60)], ask(), ask())
            assert all(quiet)

    asyncio.run(run())


def test_what_runs_keeps_its_place_while_others_come_and_go(redis: RedisProcess) -> None:
    async def run() -> None:
        rules = (QuotaRule(tenant="long", concurrent=1), QuotaRule(tenant="busy", concurrent=1000))
        async with (
            replicas(redis, *rules, count=2, lease_s=1.5) as (one, two),
            asyncio.timeout(30),
        ):
            held = await entered(one, "long")
            assert held is not None
            end_s = asyncio.get_running_loop().time() + 3.5

            async def busy() -> None:
                while asyncio.get_running_loop().time() < end_s:
                    admission = await entered(one, "busy")
                    await asyncio.sleep(0.01)
                    if admission is not None:
                        admission.leave()

            await asyncio.gather(*[busy() for _ in range(20)])
            assert await entered(two, "long") is None

    asyncio.run(run())


@pytest.mark.alone
def test_a_redis_that_is_far_away_but_in_time_is_asked(redis: RedisProcess) -> None:
    async def run() -> None:
        rule = QuotaRule(tenant="*", requests_per_minute=100_000)
        async with (
            far_away(redis, 0.06) as url,  # to connect takes longer than an answer may
            RedisStore(redis_at(url), monotonic_s, answer_s=0.5) as store,
            Redis.from_url(redis.url) as client,
        ):
            await client.flushall()
            quotas = Quotas((rule,), store)

            async def asked() -> bool:
                assert await entered(quotas) is not None
                return bool(await client.keys(f"{PREFIX}requests*"))

            await comes_true(asked)
            assert None not in await asyncio.gather(*[entered(quotas) for _ in range(200)])
            assert store.status()["redis"] == {"away": False, "failures": 0}

    asyncio.run(run())


def test_what_was_granted_too_late_holds_nothing(tmp_path: Path) -> None:
    async def run(redis: RedisProcess) -> None:
        rules = (QuotaRule(tenant="*", concurrent=1, requests_per_minute=2),)
        async with replicas(redis, *rules, count=1, answer_s=ANSWER_S) as (one,), Redis.from_url(redis.url) as client:
            redis.stop()
            assert await entered(one) is not None  # by this server's own account
            assert await both(one, away=True)
            redis.go_on()
            await comes_true(lambda: both(one, away=False))

            async def nothing() -> bool:
                return await client.keys(f"{PREFIX}held/*") == []

            await comes_true(nothing)
            (key,) = await client.keys(f"{PREFIX}requests*")
            assert float(await client.hget(key, "used") or 1) < 0.1

    with redis_process(tmp_path) as redis:
        asyncio.run(run(redis))


def test_what_was_used_of_a_budget_without_redis_is_told_when_it_is_back(tmp_path: Path) -> None:
    async def run(redis: RedisProcess) -> None:
        rule = QuotaRule(tenant="*", cost_per_day=100.0)
        async with replicas(redis, rule, count=2, answer_s=ANSWER_S) as (one, two):
            for cost in (50, 30):
                admission = await charged(one, Use(cost=cost))
                assert admission is not None
                if cost == 50:
                    redis.stop()
                admission.settle(Use(cost=cost))
            assert await charged(one, Use(cost=21)) is None  # it knows of the 50
            redis.go_on()
            await comes_true(lambda: both(one, two, away=False))

            async def told() -> bool:
                return await charged(two, Use(cost=21)) is None

            await comes_true(told)
            assert await charged(two, Use(cost=20)) is not None

    with redis_process(tmp_path) as redis:
        asyncio.run(run(redis))


def test_a_redis_that_answers_nothing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async def run(redis: RedisProcess) -> None:
        async with (
            asyncio.timeout(5),
            replicas(redis, QuotaRule(tenant="*", concurrent=9), count=1, answer_s=PATIENT_S) as (one,),
        ):
            admission = await entered(one)
            assert admission is not None
            redis.stop()
            admission.leave()
        redis.go_on()

    with redis_process(tmp_path) as redis:
        asyncio.run(run(redis))


@pytest.mark.alone
def test_a_connection_that_is_cut_under_load_loses_no_end(redis: RedisProcess) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with Redis.from_url(redis.url) as client:
            async with replicas(redis, QuotaRule(tenant="*", concurrent=1000), count=1) as (one,):
                busy_until_s = loop.time() + 4

                async def busy() -> None:
                    while loop.time() < busy_until_s:
                        admission = await entered(one)
                        await asyncio.sleep(0)
                        if admission is not None:
                            admission.leave()

                async def cut() -> None:
                    while loop.time() < busy_until_s - 1.5:
                        await asyncio.sleep(0.5)
                        await client.client_kill_filter(_type="normal", skipme=True)

                await asyncio.gather(*[busy() for _ in range(20)], cut())

                async def nothing() -> bool:
                    return await client.keys(f"{PREFIX}held/*") == []

                await comes_true(nothing)
                left_s = loop.time()
            assert loop.time() - left_s < CLOSING_S * 0.9

    asyncio.run(run())


def test_what_was_used_of_a_budget_over_more_than_one_loss_is_told_when_redis_is_back(tmp_path: Path) -> None:
    async def run(redis: RedisProcess) -> None:
        async with (
            replicas(redis, QuotaRule(tenant="*", cost_per_day=100.0), count=1, answer_s=ANSWER_S) as (one,),
            Redis.from_url(redis.url) as client,
        ):
            redis.stop()  # it takes what it is sent, and is gone before it has looked at it
            for cost in (50, 30):
                admission = await charged(one, Use(cost=cost))
                assert admission is not None
                admission.settle(Use(cost=cost))
                await asyncio.sleep(0.01)
            redis.kill()
            redis.start()

            async def told() -> bool:
                return await client.hget(f"{PREFIX}cost_per_day/tenant*4:acme", "used") == b"80"

            await comes_true(told)

    with redis_process(tmp_path) as redis:
        asyncio.run(run(redis))


def test_a_store_whose_redis_is_lost_while_it_is_left_ends(tmp_path: Path) -> None:
    async def run(redis: RedisProcess) -> None:
        for turns in range(12):
            async with (
                asyncio.timeout(5),
                replicas(redis, QuotaRule(tenant="*", concurrent=9), count=1) as (one,),
            ):
                assert await entered(one) is not None
                redis.kill()
                for _ in range(turns):
                    await asyncio.sleep(0)
            redis.start()

    with redis_process(tmp_path) as redis:
        asyncio.run(run(redis))
