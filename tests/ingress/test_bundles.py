"""What comes in one pass and asks the same is one request of many rows, and no client can tell."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path

import pytest
from tests.ingress.short_way import FAILS, NOTED, WAITS, Running, body_of, long_way, numbers, pipeline, request, running

from forwardpass.admit.memory import MemoryStore
from forwardpass.admit.quotas import Quotas
from forwardpass.admit.rules import QuotaRule
from forwardpass.core.caller import Caller
from forwardpass.core.clock import monotonic_s
from forwardpass.core.pipeline import Price, Queue
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.message import HttpRequest
from forwardpass.rollout.lifecycle import Stage

Test = Callable[[Path], Awaitable[None]]


def in_loop(test: Test) -> Callable[[Path], None]:
    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path), 60))

    return run


async def asked(asks: Running, firsts: list[float], *headers: str) -> list[int]:
    """The statuses of so many requests in one pass, each of a client of its own; sums are looked at."""
    clients = await asks.known(len(firsts), *headers)
    answers = await asks.together(
        [(c, request(numbers([x, 1.0]), *headers)) for c, x in zip(clients, firsts, strict=True)]
    )
    assert [each.sum for each in answers if each.status == 200] == [x + 1 for x in firsts if x != FAILS]
    await asks.settled()
    return [each.status for each in answers]


@in_loop
async def test_what_comes_in_one_pass_is_one_request(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        assert await asked(asks, [1.0, 2.0, 3.0, 4.0, 5.0]) == [200] * 5
        assert asks.sums.executed == [5]
        assert asks.outcomes == {"ok": 20}
        assert asks.variant.answered.success.count == asks.variant.answered.rows == 20
        assert asks.variant.batcher.reports[-1].items == 5


@in_loop
async def test_an_answer_is_the_same_byte_for_byte_alone_together_and_the_long_way(tmp_path: Path) -> None:
    body = numbers([0.1, 1e-7])
    async with running(tmp_path) as asks:
        alone, *others = await asks.known(4)
        together = await asks.together([(each, request(body)) for each in others])
        assert asks.sums.executed == [3]
        (single,) = await asks.together([(alone, request(body))])
        long = await long_way(asks, body)
    id = dict(long.headers)[b"X-Request-Id"]
    assert [each.told for each in together] == [single.told] * 3
    assert isinstance(long.body, bytes) and long.body.replace(id, b"ID") == single.told[2]
    assert {name.lower().decode() for name, _ in long.headers} <= single.headers.keys()


@in_loop
async def test_each_has_an_id_and_a_receipt_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, definition=pipeline(price=Price(request=2.0, row=0.5))) as asks:
        clients = await asks.known(3)
        answers = await asks.together([(each, request(numbers([1, 2]))) for each in clients])
        records = [asks.trial.handle.books.receipts.find(each.headers["x-request-id"]) for each in answers]
    assert len({each.id for each in records if each}) == 3
    assert [(each.rows, each.outcome, each.cost) for each in records if each] == [(1, "ok", 2.5)] * 3


@in_loop
async def test_a_row_that_fails_is_nobody_elses(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        assert await asked(asks, [1.0, FAILS, 3.0]) == [200, 400, 200]
        assert asks.outcomes == {"ok": 11, "image_invalid": 1}


@in_loop
async def test_a_note_is_told_to_whom_it_is_about(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        clients = await asks.known(3)
        texts = [request(numbers([x, 1])) for x in (1, NOTED, 3)]
        answers = await asks.together(list(zip(clients, texts, strict=True)))
        assert ["parameters" in each.json for each in answers] == [False, True, False]
        notes = [asks.trial.handle.books.receipts.find(each.headers["x-request-id"]) for each in answers]
        assert [len(each.notes) for each in notes if each] == [0, 1, 0]


@in_loop
async def test_after_one_came_apart_its_like_are_not_run_twice_each_time(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        clients = await asks.known(3)
        for _ in range(3):
            await asks.together([(each, request(numbers([NOTED, 1]))) for each in clients])
        assert sum(asks.sums.executed) == 3 * 3 + 3


@pytest.mark.parametrize(
    "middle", [b"1],[2", b"[1,2]", b"1,2,3", b'"1","2"', b"NaN,1", b"1e400,1", b"1,null", b"", b"1,2]", b'1,2],"x":[1']
)
def test_a_body_that_only_begins_and_ends_as_the_known_one_is_answered_as_it_is_by_itself(
    tmp_path: Path, middle: bytes
) -> None:
    async def run() -> None:
        async with running(tmp_path) as asks:
            good, bad, other = await asks.known(3)
            crafted = body_of(middle)
            texts = [(good, numbers([5, 1])), (bad, crafted), (other, numbers([6, 1]))]
            answers = await asks.together([(client, request(body)) for client, body in texts])
            expected = await long_way(asks, crafted)
            assert (answers[0].sum, answers[2].sum) == (6.0, 7.0)
            assert answers[1].status == expected.status
            assert answers[1].headers.get("x-error-code", "").encode() == dict(expected.headers).get(
                b"X-Error-Code", b""
            )
            await asks.settled()

    asyncio.run(asyncio.wait_for(run(), 60))


@in_loop
async def test_two_crafted_bodies_cannot_make_up_for_each_other(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        clients = await asks.known(3)
        middles = (b"1,2],[3,4", b"", b"5, 6")
        texts = [body_of(middle) for middle in middles]
        answers = await asks.together([(client, request(body)) for client, body in zip(clients, texts, strict=True)])
    assert [each.status for each in answers] == [400, 400, 200] and answers[2].sum == 11.0


@in_loop
async def test_clients_that_leave_before_the_pass_ends_or_while_it_runs_are_written_down_as_cancelled(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as asks:
        clients = await asks.known(4)
        asks.sums.gate.clear()
        for client in clients:
            client.send(request(numbers([WAITS, 1])))
        while not asks.sums.executed:
            await asyncio.sleep(0.001)
        clients[0].reset()
        clients[1].close()
        while asks.server.cancelled < 2:
            await asyncio.sleep(0.001)
        asks.sums.gate.set()
        assert [(await each.answer()).sum for each in clients[2:]] == [8.0, 8.0]
        await asks.settled()
        assert asks.outcomes == {"ok": 14, "cancelled": 2}


@in_loop
async def test_what_nobody_waits_for_any_more_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        busy, *clients = await asks.known(4)
        asks.sums.gate.clear()
        busy.send(request(numbers([WAITS, 1])))
        while not asks.sums.executed:
            await asyncio.sleep(0.001)
        for client in clients:
            client.send(request(numbers([1, 1])))
        while asks.server.running < 4:
            await asyncio.sleep(0.001)
        for client in clients:
            client.reset()
        while asks.server.cancelled < 3:
            await asyncio.sleep(0.001)
        asks.sums.gate.set()
        assert (await busy.answer()).sum == 8.0
        await asks.settled()
        assert asks.sums.executed == [1] and asks.outcomes == {"ok": 13, "cancelled": 3}


@in_loop
async def test_a_version_that_drains_answers_those_that_have_to_run_again(tmp_path: Path) -> None:
    async with running(tmp_path) as asks:
        clients = await asks.known(3)
        asks.sums.gate.clear()
        for client, x in zip(clients, (WAITS, FAILS, 2), strict=True):
            client.send(request(numbers([x, 1])))
        while not asks.sums.executed:
            await asyncio.sleep(0.001)
        asks.variant.begin_leaving()
        asks.trial.handle.routes.refresh("p")
        asks.sums.gate.set()
        assert [(await each.answer()).status for each in clients] == [200, 400, 200]
        assert (await asks.variant.settled()) is not Stage.FAILED


@in_loop
async def test_all_of_a_bundle_end_at_their_deadline(tmp_path: Path) -> None:
    async with running(tmp_path, deadline_s=0.5) as asks:
        clients = await asks.known(3)
        asks.sums.gate.clear()
        answers = await asks.together([(each, request(numbers([WAITS, 1]))) for each in clients])
        assert [(each.status, each.headers["x-error-code"]) for each in answers] == [(504, "deadline_exceeded")] * 3
        asks.sums.gate.set()
        await asks.settled()
        assert asks.outcomes == {"ok": 9, "deadline_exceeded": 3}


@in_loop
async def test_a_queue_that_is_not_half_empty_takes_them_one_by_one(tmp_path: Path) -> None:
    async with running(tmp_path, definition=pipeline(queue=Queue(rows_max=4))) as asks:
        assert sorted(await asked(asks, [1.0, 2.0, 3.0])) == [200] * 3
        assert asks.sums.executed == [1, 1, 1]


@in_loop
async def test_wishes_of_ones_own_keep_a_request_out_of_a_bundle(tmp_path: Path) -> None:
    for header in (
        "X-Request-Id: mine",
        "X-Request-Deadline-Ms: 9000",
        "X-Priority: sheddable",
        "Cache-Control: no-store",
    ):
        async with running(tmp_path) as asks:
            assert await asked(asks, [1.0, 2.0], header) == [200, 200]
            assert asks.sums.executed == [1, 1]


@in_loop
async def test_an_answer_that_is_to_be_compressed_is(tmp_path: Path) -> None:
    async with running(tmp_path, Edge(compress_bytes_min=16)) as asks:
        clients = await asks.known(2, "Accept-Encoding: gzip")
        answers = await asks.together([(each, request(numbers([1, 2]), "Accept-Encoding: gzip")) for each in clients])
        assert [each.headers.get("content-encoding") for each in answers] == ["gzip", "gzip"]


@in_loop
async def test_a_client_that_accepts_coded_answers_is_in_a_bundle_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, Edge(compress_bytes_min=16 * 1024)) as asks:
        assert await asked(asks, [1.0, 2.0, 3.0], "Accept-Encoding: gzip, deflate") == [200] * 3
        assert asks.sums.executed == [3]


def limited(rule: QuotaRule) -> Edge:
    return Edge(quotas=Quotas((rule,), MemoryStore(monotonic_s), lambda pipeline: True))


@in_loop
async def test_a_bundle_takes_of_quotas_what_its_members_take(tmp_path: Path) -> None:
    async with running(tmp_path, limited(QuotaRule(tenant="*", requests_per_minute=1000, concurrent=50))) as asks:
        clients = await asks.known(3)
        answers = await asks.together([(each, request(numbers([1, 2]))) for each in clients])
        left = int(answers[0].headers["ratelimit"].partition("r=")[2].partition(";")[0])
        (after,) = await asks.together([(clients[0], request(numbers([1, 2])))])
        assert (asks.sums.executed, [each.status for each in answers]) == ([3, 1], [200] * 3)
        told = [int(part.partition(";")[0]) for part in after.headers["ratelimit"].split("r=")[1:]]
        assert left - 1 in told, "the next request finds three fewer, and is one itself"


@in_loop
async def test_where_not_all_of_a_bundle_are_granted_as_many_are_answered_as_there_is_room_for(tmp_path: Path) -> None:
    async with running(tmp_path, limited(QuotaRule(tenant="*", concurrent=2))) as asks:
        clients = await asks.known(4)
        answers = await asks.together([(each, request(numbers([1, 2]))) for each in clients])
        assert sorted(each.status for each in answers) == [200, 200, 429, 429]
        await asks.settled()
        assert await asked(asks, [5.0, 6.0]) == [200, 200], "what was held is given back"


class Door:
    """Knows callers by their Authorization; may be told that one is known no more, or may less."""

    def __init__(self) -> None:
        self.callers = {b"a": Caller("one", "a"), b"b": Caller("two", "b")}
        self.changes = 0

    def tell(self, name: bytes, caller: Caller | None) -> None:
        self.changes += 1
        self.callers.pop(name)
        if caller is not None:
            self.callers[name] = caller

    def known(self, http: HttpRequest) -> Caller | None:
        return self.callers.get(http.headers.get(b"authorization", b""))

    async def caller(self, http: HttpRequest) -> Caller:
        from forwardpass.core.errors import Code, Refused

        known = self.known(http)
        if known is None:
            raise Refused(Code.UNAUTHENTICATED, "nobody")
        return known

    def holds(self, caller: Caller) -> bool:
        return True

    def knows(self, caller: Caller) -> bool:
        return True


@in_loop
async def test_callers_are_kept_apart_and_each_has_its_own_receipts(tmp_path: Path) -> None:
    door = Door()
    async with running(tmp_path, Edge(identity=door)) as asks:
        mine, yours = await asks.known(2, "Authorization: a"), await asks.known(2, "Authorization: b")
        headers = ["Authorization: a"] * 2 + ["Authorization: b"] * 2
        answers = await asks.together(
            [(c, request(numbers([1, 2]), h)) for c, h in zip(mine + yours, headers, strict=True)]
        )
        assert asks.sums.executed == [2, 2]
        found = [
            asks.trial.handle.books.receipts.find(
                each.headers["x-request-id"], Caller("one", scopes=frozenset({"receipts"}))
            )
            for each in answers
        ]
        assert [each is not None for each in found] == [True, True, False, False]


@pytest.mark.parametrize(("now", "status"), [(None, 401), (Caller("one", "a", frozenset({"read"})), 403)])
def test_a_caller_who_may_no_more_is_refused_on_a_connection_that_lives_on(
    tmp_path: Path, now: Caller | None, status: int
) -> None:
    async def run() -> None:
        door = Door()
        async with running(tmp_path, Edge(identity=door)) as asks:
            clients = await asks.known(2, "Authorization: a")
            door.tell(b"a", now)
            for _ in range(3):
                answers = await asks.together(
                    [(each, request(numbers([1, 2]), "Authorization: a")) for each in clients]
                )
                assert [each.status for each in answers] == [status, status]
            assert asks.sums.executed == []

    asyncio.run(asyncio.wait_for(run(), 60))


@in_loop
async def test_a_version_that_does_not_batch_runs_each_by_itself(tmp_path: Path) -> None:
    made = pipeline()
    async with running(tmp_path, definition=replace(made, batch=replace(made.batch, enabled=False))) as asks:
        assert await asked(asks, [1.0, 2.0, 3.0]) == [200] * 3
        assert asks.sums.executed == [1, 1, 1]
