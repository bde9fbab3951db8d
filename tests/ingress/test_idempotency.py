"""A request that is sent again with its Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07) is run once."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.ingress.small_plane import Answering, SmallPlane, counting, headers_of

from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.off_loop import OFF_LOOP_BYTES_MIN
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.idempotency import ENTRIES_MAX, KeptAnswers, key_of
from forwardpass.ingress.message import HttpAnswer
from forwardpass.ingress.openapi.operations import OPERATIONS
from forwardpass.ingress.route_table import routes_of

KEY = {"Idempotency-Key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}
TTL_S = 60.0


def keeping(answering: Answering = counting, bytes_max: int = 10_000) -> SmallPlane:
    clock = FakeClock()
    return SmallPlane(Edge(kept=KeptAnswers(TTL_S, bytes_max, clock)), answering, clock)


@pytest.mark.parametrize("body", [b"", b"four", b"x" * (OFF_LOOP_BYTES_MIN + 1)])
def test_the_same_request_gets_the_same_answer_and_is_run_once(body: bytes) -> None:
    small = keeping()
    first, again = small.ask(body, KEY), small.ask(body, KEY)
    assert (first.status, first.body) == (again.status, again.body) == (200, b"%d" % len(body))
    assert headers_of(again) == headers_of(first) | {"idempotency-replayed": "true"}
    assert small.runs == 1


def test_a_key_means_the_same_quoted_and_bare() -> None:
    small = keeping()
    small.ask(b"x", KEY)
    small.ask(b"x", {"Idempotency-Key": KEY["Idempotency-Key"].strip('"')})
    assert small.runs == 1


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b"a", b"a"), (b"k" * 255, b"k" * 255), (b'"a"', b"a"), (b'"a\\"b\\\\c"', b'a"b\\c'), (b"a;b=c", b"a;b=c"),
        (b'"' + b"k" * 255 + b'"', b"k" * 255), (b'a"b', b'a"b'),
    ],
)  # fmt: skip
def test_a_key_is_read(value: bytes, key: bytes) -> None:
    assert key_of(value) == key


@pytest.mark.parametrize(
    "value",
    [b"", b'""', b'"a', b'"', b"a b", b'"a b"', b"k" * 256, b'"' + b"k" * 256 + b'"', b"\xc3\xa9", b'"a\\n"', b"a, b",
     b'"a";x=1', b'"a", "b"'],
)  # fmt: skip
def test_what_is_no_key_is_refused(value: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        key_of(value)
    assert (refusal.value.code, refusal.value.field) == (Code.OUT_OF_RANGE, "Idempotency-Key")


@pytest.mark.parametrize(
    "other", [{"body": b"other"}, {"path": "/infer/q"}, {"headers": KEY | {"Content-Type": "text/plain"}}]
)
def test_a_key_used_for_another_request_is_refused(other: dict[str, object]) -> None:
    small = keeping()
    small.ask(b"x", KEY)
    answer = small.ask(**({"body": b"x", "headers": KEY} | other))  # type: ignore[arg-type]  # of several types
    assert (answer.status, headers_of(answer)["x-error-code"]) == (422, "idempotency_mismatch")
    assert small.runs == 1


def test_while_the_first_runs_the_second_is_told_to_come_back() -> None:
    async def run() -> None:
        go = asyncio.Event()

        async def waiting(call: Call) -> HttpAnswer:
            await go.wait()
            return await counting(call)

        small = keeping(waiting)
        first = asyncio.create_task(small.asked(b"x", KEY))
        await asyncio.sleep(0)
        second = await small.asked(b"x", KEY)
        assert (second.status, headers_of(second)["x-error-code"]) == (409, "idempotency_running")
        assert headers_of(second)["retry-after"] == "1"
        go.set()
        assert ((await first).status, (await small.asked(b"x", KEY)).status, small.runs) == (200, 200, 1)

    asyncio.run(run())


def test_a_first_request_whose_client_goes_away_frees_the_key() -> None:
    async def run() -> None:
        async def waiting(call: Call) -> HttpAnswer:
            if small.runs == 1:
                await asyncio.Event().wait()
            return await counting(call)

        small = keeping(waiting)
        first = asyncio.create_task(small.asked(b"x", KEY))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        assert (await small.asked(b"x", KEY)).status == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    "failure",
    [
        Refused(Code.WRONG_TYPE, "no"), Refused(Code.PIPELINE_NOT_FOUND, "no"), Refused(Code.QUARANTINED, "no"),
        Failed(Code.QUEUE_FULL, "no"), Failed(Code.INTERNAL, "no"), Failed(Code.OUTPUT_TOO_LARGE, "no"),
    ],
)  # fmt: skip
def test_a_request_that_was_not_answered_is_run_again(failure: Failure) -> None:
    async def failing(call: Call) -> HttpAnswer:
        raise failure

    small = keeping(failing)
    first, again = small.ask(b"x", KEY), small.ask(b"x", KEY)
    assert (small.runs, first.status) == (2, again.status)
    assert "idempotency-replayed" not in headers_of(again)


def test_a_key_of_a_refused_request_may_be_used_for_the_corrected_one() -> None:
    async def strict(call: Call) -> HttpAnswer:
        if call.http.body != b"right":
            raise Refused(Code.WRONG_TYPE, "no")
        return await counting(call)

    small = keeping(strict)
    assert [small.ask(body, KEY).status for body in (b"wrong", b"right", b"right")] == [400, 200, 200]
    assert small.runs == 2


def test_an_answer_with_a_row_that_failed_by_our_fault_is_not_kept() -> None:
    async def in_part(call: Call) -> HttpAnswer:
        call.repeatable = False
        return await counting(call)

    small = keeping(in_part)
    assert (small.ask(b"x", KEY).status, small.ask(b"x", KEY).status, small.runs) == (200, 200, 2)


def test_an_answer_is_forgotten_after_its_time() -> None:
    small = keeping()
    for advance_s, runs in ((0.0, 1), (TTL_S - 1, 1), (1.0, 2)):
        small.clock.advance(advance_s)
        small.ask(b"x", KEY)
        assert small.runs == runs


def test_kept_answers_are_bounded_in_bytes_and_the_oldest_go_first() -> None:
    async def long(call: Call) -> HttpAnswer:
        return HttpAnswer(200, bytes(4000))

    small = keeping(long, bytes_max=10_000)
    for key in ("a", "b", "c", "a", "c"):
        small.ask(b"x", {"Idempotency-Key": key})
    assert small.runs == 4  # a went when c came, and then b when a came again


def test_an_answer_too_large_to_keep_is_made_again() -> None:
    async def long(call: Call) -> HttpAnswer:
        return HttpAnswer(200, bytes(10_000))

    small = keeping(long, bytes_max=10_000)
    assert (small.ask(b"x", KEY).status, small.ask(b"x", KEY).status, small.runs) == (200, 200, 2)


def test_kept_answers_are_bounded_in_number() -> None:
    kept = KeptAnswers(TTL_S, 2**40, FakeClock())
    for number in range(ENTRIES_MAX + 5):
        kept.begin("", b"%d" % number, b"asked")
        kept.end("", b"%d" % number, HttpAnswer(200))
    assert len(kept) == ENTRIES_MAX


def test_callers_have_keys_of_their_own() -> None:
    kept = KeptAnswers(TTL_S, 2**20, FakeClock())
    assert kept.begin("a", b"k", b"asked") is None
    assert kept.begin("b", b"k", b"asked otherwise") is None


def test_a_streamed_answer_cannot_be_asked_for_with_a_key_and_is_not_run() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"x"

    async def answering(call: Call) -> HttpAnswer:
        return HttpAnswer(200, pieces(), b"text/event-stream")

    small = keeping(answering)
    refused = small.ask(b"x", KEY, path="/stream/p")
    assert (refused.status, headers_of(refused)["x-error-code"], small.runs) == (400, "bad_request", 0)
    assert (small.ask(b"x", path="/stream/p").status, small.runs) == (200, 1)
    assert small.inference.outside == {"bad_request": 1, "ok": 1}


def test_just_the_routes_that_stream_are_documented_without_a_key() -> None:
    asked = [route for route in routes_of("data") if route.scope == "infer" and route.method == b"POST"]
    assert any(route.streams for route in asked)
    for route in asked:
        assert route.streams is ("idempotency_key" not in OPERATIONS[route.endpoint].parameters)


def test_every_way_to_end_is_counted() -> None:
    small = keeping()
    small.ask(b"x", KEY)
    small.ask(b"x", KEY)
    small.ask(b"y", KEY)
    small.ask(b"x", {"Idempotency-Key": "not a key"})
    assert small.inference.outside == {"ok": 1, "replayed": 1, "idempotency_mismatch": 1, "out_of_range": 1}


def test_a_key_has_no_meaning_where_nothing_is_run() -> None:
    small = keeping()
    for _ in range(2):
        assert small.ask(headers=KEY, method=b"GET", path="/about").status == 200
    assert small.inference.outside == {"ok": 2}
