"""Quotas at the door of the data plane: what each request counts as, what a refusal does not do, what answers say."""

import asyncio
import gzip
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from tests.admit.ledger import Ledger
from tests.ingress.doors import Asked
from tests.ingress.small_plane import SmallPlane, counting, headers_of

from forwardpass.admit.rules import QuotaRule
from forwardpass.core.caller import Caller
from forwardpass.core.errors import Code, Failed
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.idempotency import KeptAnswers
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.rates import Rates


@dataclass
class ByHeader(Asked):
    """Everybody is whom they say they are."""

    gone: set[str] = field(default_factory=set)

    async def caller(self, http: HttpRequest) -> Caller:
        return Caller(http.headers.get(b"tenant", b"nobody").decode())

    def knows(self, caller: Caller) -> bool:
        return caller.tenant not in self.gone


def plane(*rules: QuotaRule, answering: object = counting, **more: object) -> SmallPlane:
    ledger = Ledger(rules)
    return SmallPlane(Edge(identity=ByHeader(), quotas=ledger.quotas, **more), answering, ledger.clock)  # type: ignore[arg-type]  # parts of an Edge


def test_each_tenant_has_its_own_and_a_refusal_runs_nothing() -> None:
    small = plane(QuotaRule(tenant="*", requests_per_minute=2))
    statuses = [small.ask(headers={"tenant": tenant}).status for tenant in ("a", "a", "a", "b")]
    assert (statuses, small.runs) == ([200, 200, 429, 200], 3)


def test_a_refusal_names_limit_and_tenant_says_when_and_keeps_the_connection() -> None:
    small = plane(QuotaRule(tenant="*", requests_per_minute=1))
    small.ask(headers={"tenant": "a"})
    refused = small.ask(headers={"tenant": "a"})
    said = headers_of(refused)
    assert said["x-error-code"] == "rate_limited"
    assert b"requests_per_minute of tenant a: 1; asked 1, 0 left" in bytes(refused.body)  # type: ignore[arg-type]  # one buffer
    assert 60 <= int(said["retry-after"]) <= 84 and int(said["retry-after-ms"]) >= 60_000
    assert not refused.close
    small.clock.advance(float(said["retry-after"]))
    assert small.ask(headers={"tenant": "a"}).status == 200


def test_a_refused_body_is_not_even_unpacked() -> None:
    small = plane(QuotaRule(pipeline="p", requests_per_minute=1), QuotaRule(tenant="*", bytes_per_minute=1000))
    small.ask(b"x")
    assert small.ask(b"no gzip at all", {"content-encoding": "gzip"}).status == 429
    other = plane(QuotaRule(tenant="*", bytes_per_minute=1000))
    assert other.ask(gzip.compress(b"x" * 50_000), {"content-encoding": "gzip"}).status == 200  # as it was sent
    assert headers_of(other.ask(b"x" * 1001))["x-error-code"] == "input_too_large"


def test_every_route_but_health_counts_and_so_does_one_that_is_not_there() -> None:
    small = plane(QuotaRule(tenant="*", requests_per_minute=3))
    assert [small.ask(method=b"GET", path="/live").status for _ in range(5)] == [200] * 5
    asked = ((b"GET", "/about"), (b"HEAD", "/about"), (b"GET", "/nowhere"), (b"GET", "/about"))
    assert [small.ask(method=method, path=path).status for method, path in asked] == [200, 200, 404, 429]


def test_answers_say_how_the_caller_stands_and_to_openais_clients_in_their_words() -> None:
    small = plane(QuotaRule(tenant="*", requests_per_minute=60, concurrent=5))
    said = headers_of(small.ask(headers={"tenant": "a"}))
    policies = '"tenant-requests_per_minute";q=60;w=60, "tenant-concurrent";q=5;qu="concurrent-requests"'
    assert said["ratelimit-policy"] == policies
    assert said["ratelimit"] == '"tenant-requests_per_minute";r=59;t=1, "tenant-concurrent";r=5'
    assert (said["x-ratelimit-limit-requests"], said["x-ratelimit-remaining-requests"]) == ("60", "59")
    about = headers_of(small.ask(method=b"GET", path="/about"))
    assert "x-ratelimit-limit-requests" not in about and "ratelimit" in about
    assert "ratelimit" not in headers_of(small.ask(method=b"GET", path="/live"))


def test_beside_the_limit_of_an_address_openais_headers_are_said_once() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_minute=60),))
    edge = Edge(identity=ByHeader(), quotas=ledger.quotas, rates=Rates(1000, ledger.clock))
    said = headers_of(SmallPlane(edge, counting, ledger.clock).ask(peer="10.0.0.1"))
    assert said["x-ratelimit-limit-requests"] == "60"
    assert said["ratelimit-policy"] == '"tenant-requests_per_minute";q=60;w=60, "default";q=1000;w=60'


def test_without_quotas_nothing_is_said_of_any() -> None:
    assert "ratelimit" not in headers_of(SmallPlane(Edge(), counting).ask())


@pytest.mark.parametrize("ending", [None, Failed(Code.INTERNAL, "x"), RuntimeError("x"), asyncio.CancelledError()])
def test_however_a_request_ends_it_runs_no_more(ending: BaseException | None) -> None:
    async def answering(call: Call) -> HttpAnswer:
        if ending is not None:
            raise ending
        return HttpAnswer(200)

    small = plane(QuotaRule(tenant="*", concurrent=1), answering=answering)

    async def ask_twice() -> None:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                assert (await small.asked()).status != 429

    asyncio.run(ask_twice())
    assert small.runs == 2


def test_as_many_run_at_the_same_time_as_the_quota_says() -> None:
    gate = asyncio.Event()

    async def answering(call: Call) -> HttpAnswer:
        await gate.wait()
        return HttpAnswer(200)

    small = plane(QuotaRule(tenant="*", concurrent=2), answering=answering)

    async def ask() -> list[str]:
        running = [asyncio.create_task(small.asked()) for _ in range(2)]
        await asyncio.sleep(0)
        refused = await small.asked()
        gate.set()
        done = [await task for task in running]
        return [headers_of(refused)["x-error-code"], *[str(each.status) for each in (*done, await small.asked())]]

    assert asyncio.run(ask()) == ["concurrency_limited", "200", "200", "200"]


def test_a_replay_costs_a_request() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_minute=3),))
    edge = Edge(quotas=ledger.quotas, kept=KeptAnswers(3600, 1 << 20, ledger.clock))
    small = SmallPlane(edge, counting, ledger.clock)
    statuses = [small.ask(b"x", {"Idempotency-Key": "k"}).status for _ in range(4)]
    assert (statuses, small.runs) == ([200, 200, 200, 429], 1)


def test_who_may_not_ask_pays_nothing() -> None:
    class Nothing(ByHeader):
        async def caller(self, http: HttpRequest) -> Caller:
            return Caller("a", scopes=frozenset({"receipts"}))

    ledger = Ledger((QuotaRule(tenant="*", requests_per_minute=1),))
    small = SmallPlane(Edge(identity=Nothing(), quotas=ledger.quotas), counting, ledger.clock)
    assert [small.ask().status for _ in range(3)] == [403, 403, 403]
    assert len(ledger.store) == 0
