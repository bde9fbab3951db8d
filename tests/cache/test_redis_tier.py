"""Kept answers that servers share in a real Redis, and what holds while it is away."""

import asyncio
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis
from tests.admit.redis_process import RedisProcess, redis_process

from forwardpass.cache.kept import Kept
from forwardpass.cache.redis_tier import PREFIX, VALUE_BYTES_MAX, RedisTier, redis_client
from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.tensor import Tensor

KEYS = [bytes([number]) * 32 for number in range(4)]
PATIENT_S = 20.0


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with redis_process(tmp_path_factory.mktemp("redis")) as running:
        yield running


def kept(data: bytes = b"abcd") -> Kept:
    return Kept(1, [Tensor("UINT8", (1, len(data)), data)], [], 3, 90.0)


async def until(tier: RedisTier, *, away: bool) -> None:
    async with asyncio.timeout(PATIENT_S):
        while tier.away is not away:
            await asyncio.sleep(0.01)


async def found(tier: RedisTier, *keys: bytes) -> list[bytes]:
    """Which of these are there, waited for as long as it takes to write them."""
    async with asyncio.timeout(PATIENT_S):
        while len(answers := await tier.find("p", keys, 100.0)) < len(keys):
            await asyncio.sleep(0.01)
    return list(answers)


def test_what_one_server_keeps_another_finds(redis: RedisProcess) -> None:
    async def run() -> None:
        one, two = RedisTier(redis_client(redis.url)), RedisTier(redis_client(redis.url))
        async with one.opened(), two.opened():
            await until(one, away=False)
            await until(two, away=False)
            one.keep("p", KEYS[0], kept(), 100.0, 60.0)
            one.keep("p", KEYS[1], kept(b"other"), 100.0, 60.0)
            assert await found(two, KEYS[0], KEYS[1]) == KEYS[:2]
            answers = await two.find("p", KEYS, 500.0)
            assert answers[KEYS[0]].outputs == kept().outputs and answers[KEYS[0]].tokens == 3
            assert answers[KEYS[0]].made_s == pytest.approx(490.0, abs=5.0)
            assert await two.find("q", KEYS, 100.0) == {}

    asyncio.run(run())


def test_what_is_kept_there_ends_with_its_time(redis: RedisProcess) -> None:
    async def run() -> None:
        tier, client = RedisTier(redis_client(redis.url)), Redis.from_url(redis.url)
        async with tier.opened(), client:
            await until(tier, away=False)
            tier.keep("ttl", KEYS[0], kept(), 100.0, 60.0)  # made ten seconds ago
            name = f"{PREFIX}ttl:{KEYS[0].hex()}"
            async with asyncio.timeout(PATIENT_S):
                while not await client.exists(name):
                    await asyncio.sleep(0.01)
            assert 40_000 < await client.pttl(name) <= 50_000

    asyncio.run(run())


def test_a_purge_takes_one_pipeline_or_all(redis: RedisProcess) -> None:
    async def run() -> None:
        tier = RedisTier(redis_client(redis.url))
        async with tier.opened():
            await until(tier, away=False)
            await tier.purge("")
            for pipeline in ("p", "p2"):
                tier.keep(pipeline, KEYS[0], kept(), 100.0, 60.0)
            await found(tier, KEYS[0])
            assert await tier.purge("p") == 1
            assert await tier.find("p", KEYS[:1], 100.0) == {}
            assert await tier.purge("") == 1

    asyncio.run(run())


def test_one_that_is_away_costs_nobody_a_wait_and_is_found_again(redis: RedisProcess) -> None:
    async def run() -> None:
        tier = RedisTier(redis_client(redis.url))
        async with tier.opened():
            await until(tier, away=False)
            tier.keep("p", KEYS[0], kept(), 100.0, 60.0)
            await found(tier, KEYS[0])
            redis.kill()
            assert await tier.find("p", KEYS[:1], 100.0) == {}
            await until(tier, away=True)
            assert await tier.find("p", KEYS[:1], 100.0) == {} and await tier.purge("p") is None
            tier.keep("p", KEYS[0], kept(), 100.0, 60.0)
            assert tier.status()["dropped"] >= 1 and tier.status()["failures"] >= 1
            redis.start()
            await until(tier, away=False)
            tier.keep("p", KEYS[0], kept(), 100.0, 60.0)
            assert await found(tier, KEYS[0]) == KEYS[:1]

    asyncio.run(run())


def test_one_that_stands_still_holds_nobody_up(redis: RedisProcess) -> None:
    async def run() -> None:
        tier = RedisTier(redis_client(redis.url), answer_s=0.02)
        async with tier.opened():
            await until(tier, away=False)
            redis.stop()
            try:
                async with asyncio.timeout(1.0):
                    assert await tier.find("p", KEYS, 100.0) == {}
                assert tier.away
            finally:
                redis.go_on()
            await until(tier, away=False)

    asyncio.run(run())


def test_an_answer_that_is_too_large_is_not_shared(redis: RedisProcess) -> None:
    async def run() -> None:
        tier = RedisTier(redis_client(redis.url))
        async with tier.opened():
            await until(tier, away=False)
            tier.keep("p", KEYS[3], kept(bytes(VALUE_BYTES_MAX)), 100.0, 60.0)
            assert tier.status()["dropped"] == 1

    asyncio.run(run())


def test_what_somebody_else_put_there_is_no_answer(redis: RedisProcess) -> None:
    async def run() -> None:
        tier, client = RedisTier(redis_client(redis.url)), Redis.from_url(redis.url)
        async with tier.opened(), client:
            await until(tier, away=False)
            await client.set(f"{PREFIX}p:{KEYS[2].hex()}", b"\x95nonsense")
            assert await tier.find("p", KEYS[2:3], 100.0) == {}
            assert not tier.away
            await client.rpush(f"{PREFIX}p:{KEYS[3].hex()}", b"a list")
            assert await tier.find("p", KEYS[3:], 100.0) == {}

    asyncio.run(run())


def test_one_that_is_full_is_still_asked(redis: RedisProcess) -> None:
    async def run() -> None:
        tier, client = RedisTier(redis_client(redis.url)), Redis.from_url(redis.url)
        async with tier.opened(), client:
            await until(tier, away=False)
            tier.keep("full", KEYS[0], kept(), 100.0, 60.0)
            async with asyncio.timeout(PATIENT_S):
                while not await client.exists(f"{PREFIX}full:{KEYS[0].hex()}"):
                    await asyncio.sleep(0.01)
            await client.config_set("maxmemory", 1)
            try:
                tier.keep("full", KEYS[1], kept(), 100.0, 60.0)
                async with asyncio.timeout(PATIENT_S):
                    while not tier.dropped:
                        await asyncio.sleep(0.01)
                assert not tier.away and list(await tier.find("full", KEYS[:2], 100.0)) == KEYS[:1]
            finally:
                await client.config_set("maxmemory", 0)

    asyncio.run(run())


def test_a_name_of_a_pipeline_is_no_pattern(redis: RedisProcess) -> None:
    async def run() -> None:
        tier = RedisTier(redis_client(redis.url))
        async with tier.opened():
            await until(tier, away=False)
            await tier.purge("")
            tier.keep("p", KEYS[0], kept(), 100.0, 60.0)
            await found(tier, KEYS[0])
            assert [await tier.purge(name) for name in ("*", "?", "[p]", "p")] == [0, 0, 0, 1]

    asyncio.run(run())


@pytest.mark.parametrize("said", [b"*0\r\n", b":7\r\n", b"$x\r\n", b"*1\r\n" * 5000, b"nonsense\r\n", b""])
def test_what_is_no_redis_is_away_and_holds_nobody_up(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(65536):
            for _ in range(asked.count(b"CLIENT")):
                writer.write(b"+OK\r\n")
            if b"PING" in asked:
                writer.write(b"+PONG\r\n")
            if b"MGET" in asked:
                writer.write(said)
                break
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        tier = RedisTier(redis_client(f"redis://127.0.0.1:{port}"), answer_s=PATIENT_S)
        async with server, tier.opened():
            for _ in range(2):  # and it is asked again when it seems to be back
                await until(tier, away=False)
                assert await tier.find("p", KEYS, 100.0) == {}
                assert tier.away

    asyncio.run(run())


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(Misconfigured) as refused:
        redis_client("http://nowhere")
    assert refused.value.code is Code.SETTINGS_INVALID
