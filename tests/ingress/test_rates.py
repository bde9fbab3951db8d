"""How many requests a caller may make in a minute, and what it is told of that (draft-ietf-httpapi-ratelimit-headers)."""

import pytest
from tests.ingress.small_plane import SmallPlane, counting, headers_of

from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.rates import CALLERS_MAX, Rates


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def limited(clock: FakeClock, requests: int = 3) -> SmallPlane:
    return SmallPlane(Edge(rates=Rates(requests, clock)), counting, clock)


@pytest.mark.parametrize("requests", [1, 3, 7, 60, 1000])
def test_a_full_bucket_takes_as_many_as_the_quota_and_then_one_at_a_time(clock: FakeClock, requests: int) -> None:
    rates = Rates(requests, clock)
    for turn in (requests, 1, 1, 1):
        for _ in range(turn):
            rates.take("a")
        with pytest.raises(Refused) as refusal:
            rates.take("a")
        assert refusal.value.code is Code.RATE_LIMITED
        assert refusal.value.retry_after_s == pytest.approx(60 / requests)
        clock.advance(60 / requests)


def test_whoever_waits_as_long_as_told_is_answered(clock: FakeClock) -> None:
    small = limited(clock)
    answers = [small.ask(peer="a") for _ in range(4)]
    said = headers_of(answers[3])
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert (said["x-error-code"], said["retry-after"], said["retry-after-ms"]) == ("rate_limited", "20", "20000")
    assert small.runs == 3
    clock.advance(float(said["retry-after"]))
    assert small.ask(peer="a").status == 200


def test_a_refusal_costs_the_caller_nothing(clock: FakeClock) -> None:
    small = limited(clock)
    for _ in range(50):
        small.ask(peer="a")
    clock.advance(20)
    assert small.ask(peer="a").status == 200


def test_every_answer_says_how_the_caller_stands(clock: FakeClock) -> None:
    small = limited(clock)
    said = headers_of(small.ask(peer="a"))
    assert said["ratelimit-policy"] == '"default";q=3;w=60'
    assert said["ratelimit"] == '"default";r=2;t=20'
    assert (said["x-ratelimit-limit-requests"], said["x-ratelimit-remaining-requests"]) == ("3", "2")
    assert said["x-ratelimit-reset-requests"] == "20s"
    missing = small.ask(peer="a", path="/nowhere")
    assert (missing.status, headers_of(missing)["ratelimit"]) == (404, '"default";r=1;t=40')
    assert "x-ratelimit-limit-requests" not in headers_of(missing)


def test_callers_do_not_share_a_bucket(clock: FakeClock) -> None:
    small = limited(clock, 1)
    assert [small.ask(peer=peer).status for peer in ("a", "a", "b")] == [200, 429, 200]


def test_callers_of_a_unix_socket_have_no_quota(clock: FakeClock) -> None:
    small = limited(clock, 1)
    answers = [small.ask(peer="") for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3
    assert "ratelimit" not in headers_of(answers[0])


def test_health_is_always_answered(clock: FakeClock) -> None:
    small = limited(clock, 1)
    answers = [small.ask(peer="a", method=b"GET", path="/live") for _ in range(5)]
    assert [answer.status for answer in answers] == [200] * 5
    assert "ratelimit" not in headers_of(answers[0])
    assert small.ask(peer="a").status == 200


def test_without_a_limit_nothing_is_said_of_one(clock: FakeClock) -> None:
    assert "ratelimit" not in headers_of(SmallPlane(Edge(), counting, clock).ask())


def test_more_callers_than_are_kept_push_out_who_asked_longest_ago(clock: FakeClock) -> None:
    rates = Rates(1, clock)
    for number in range(CALLERS_MAX + 1):
        rates.take(f"caller {number}")
    assert len(rates) == CALLERS_MAX
    rates.take("caller 0")
    with pytest.raises(Refused):
        rates.take(f"caller {CALLERS_MAX}")
