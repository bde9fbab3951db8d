"""Requests that wait for nothing but their batch: nobody is answered twice or never, and all that was taken is given back."""

import asyncio
import gc
from pathlib import Path

import pytest
from tests.admit.ledger import Ledger
from tests.ingress.short_way import FAILS, WAITS, body_of, numbers, pipeline, request, running
from tests.ingress.test_bundles import in_loop

from forwardpass.admit.rules import QuotaRule
from forwardpass.batching.ticket import Ticket
from forwardpass.core.clock import monotonic_s
from forwardpass.core.pipeline import Cache
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.rates import Rates


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (request(numbers([1, 2])) * 3, [200] * 3),
        (request(numbers([1, 2])) + request(body_of(b"x")) + request(numbers([1, 2])), [200, 400, 200]),
        (request(numbers([FAILS, 2])) + request(numbers([1, 2])), [400, 200]),
        (request(numbers([1, 2])) + request(b"", path="/nowhere", method="GET"), [200, 404]),
    ],
)
def test_what_is_sent_at_once_is_answered_in_its_order(tmp_path: Path, data: bytes, statuses: list[int]) -> None:
    async def run() -> None:
        async with running(tmp_path) as asks:
            (client,) = await asks.known(1)
            client.send(data)
            assert [(await client.answer()).status for _ in statuses] == statuses
            await asks.settled()

    asyncio.run(asyncio.wait_for(run(), 60))


@in_loop
async def test_what_comes_while_one_runs_is_answered_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        (client,) = await asks.known(1)
        asks.sums.gate.clear()
        client.send(request(numbers([WAITS, 1])))
        while not asks.sums.executed:
            await asyncio.sleep(0.001)
        client.send(request(numbers([2, 1])) + request(numbers([3, 1])))
        asks.sums.gate.set()
        assert [(await client.answer()).sum for _ in range(3)] == [8.0, 3.0, 4.0]
        await asks.settled()


@pytest.mark.parametrize(
    ("version", "header", "ends"),
    [("1.1", "Connection: close", True), ("1.0", "A: b", True), ("1.0", "Connection: keep-alive", False)],
)
def test_a_connection_ends_after_the_answer_where_its_client_says_so(
    tmp_path: Path, version: str, header: str, ends: bool
) -> None:
    async def run() -> None:
        async with running(tmp_path) as asks:
            await asks.known(1)
            client = asks.client()
            client.send(request(numbers([1, 2]), header, version=version))
            assert (await client.answer()).sum == 3.0
            if ends:
                assert await client.ended()
            else:
                client.send(request(numbers([2, 2]), header, version=version))
                assert (await client.answer()).sum == 4.0
            await asks.settled()

    asyncio.run(asyncio.wait_for(run(), 60))


@in_loop
async def test_a_server_that_drains_answers_what_runs_and_closes_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        clients = await asks.known(3)
        asks.sums.gate.clear()
        for client in clients:
            client.send(request(numbers([WAITS, 1])))
        while not asks.sums.executed:
            await asyncio.sleep(0.001)
        draining = asyncio.create_task(asks.server.drain(10))
        await asyncio.sleep(0)
        asks.sums.gate.set()
        answers = [await each.answer() for each in clients]
        assert [(each.sum, each.headers["connection"]) for each in answers] == [(8.0, "close")] * 3
        for client in clients:
            client.close()
        await draining


@in_loop
async def test_a_client_that_leaves_takes_nothing_with_it(tmp_path: Path) -> None:
    ledger = Ledger((QuotaRule(tenant="*", concurrent=1),))
    async with running(tmp_path, Edge(quotas=ledger.quotas)) as asks:
        (client,) = await asks.known(1)
        asks.sums.gate.clear()
        client.send(request(numbers([WAITS, 1])))
        while not asks.sums.executed:
            await asyncio.sleep(0.001)
        client.reset()
        while not asks.server.cancelled:
            await asyncio.sleep(0.001)
        asks.sums.gate.set()
        await asks.settled()
        (after,) = await asks.together([(asks.client(), request(numbers([1, 2])))])
        assert after.status == 200 and asks.outcomes == {"ok": 4, "cancelled": 1}


@in_loop
async def test_a_quota_holds_by_the_short_way_and_is_told(tmp_path: Path) -> None:
    ledger = Ledger((QuotaRule(tenant="*", rows_per_minute=4), QuotaRule(tenant="*", requests_per_minute=100)))
    async with running(tmp_path, Edge(quotas=ledger.quotas)) as asks:
        client = asks.client()
        answers = [(await asks.together([(client, request(numbers([1, 2])))]))[0] for _ in range(6)]
        assert [each.status for each in answers] == [200] * 4 + [429] * 2
        assert "ratelimit" in answers[0].headers
        assert asks.plane.inference.outside["rate_limited"] == 2
        await asks.settled()


@in_loop
async def test_an_address_that_asks_too_often_is_refused_by_the_short_way(tmp_path: Path) -> None:
    async with running(tmp_path, Edge(rates=Rates(3, monotonic_s))) as asks:
        client = asks.client()
        answers = [(await asks.together([(client, request(numbers([1, 2])))]))[0] for _ in range(5)]
        assert [each.status for each in answers] == [200] * 3 + [429] * 2


@in_loop
async def test_a_turn_of_a_sequence_is_refused_where_none_are_kept(tmp_path: Path) -> None:
    body = numbers([1, 2]).replace(b'{"inputs"', b'{"parameters":{"sequence_id":"s"},"inputs"')
    async with running(tmp_path) as asks:
        (answer,) = await asks.together([(asks.client(), request(body))])
        assert (answer.status, answer.headers["x-error-code"]) == (400, "unknown_field")


@in_loop
async def test_a_compressed_answer_whose_client_leaves_is_written_down_once(tmp_path: Path) -> None:
    header = "Accept-Encoding: gzip"
    async with running(tmp_path, Edge(compress_bytes_min=16)) as asks:
        for _ in range(20):
            client, before = asks.client(), asks.server.requests
            client.send(request(numbers([1, 2]), header))
            while asks.server.requests == before:
                await asyncio.sleep(0)
            client.reset()
        await asks.settled()
        assert sum(asks.outcomes.values()) == 20


@in_loop
async def test_a_kept_answer_is_told_at_once_and_counted_once(tmp_path: Path) -> None:
    async with running(tmp_path, definition=pipeline(cache=Cache())) as asks:
        (client,) = await asks.known(1)
        (answer,) = await asks.together([(client, request(numbers([1, 2])))])
        assert answer.headers["cache-status"] == "forwardpass; hit" and asks.sums.executed == []
        assert asks.outcomes == {"ok": 4}
        await asks.settled()


@in_loop
async def test_a_request_is_forgotten_when_its_client_leaves_not_at_its_deadline(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        (client,) = await asks.known(1)
        asks.sums.gate.clear()
        client.send(request(numbers([WAITS, 1])))
        while not asks.sums.executed:
            await asyncio.sleep(0.001)
        client.reset()
        while not asks.server.cancelled:
            await asyncio.sleep(0.001)
        asks.sums.gate.set()
        await asks.settled()
        (await asks.together([(asks.client(), request(numbers([1, 2])))]))
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, Ticket) and each.failure is not None]
