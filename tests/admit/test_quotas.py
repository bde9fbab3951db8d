"""Quotas in virtual time: what is let in, what is refused and for how long, and what is given back."""

import pytest
from tests.admit.ledger import Ledger, at_once

from forwardpass.admit.quotas import NOTHING, Use
from forwardpass.admit.rules import QuotaRule
from forwardpass.core.caller import Caller
from forwardpass.core.errors import Code, Refused

ACME, OTHER = Caller("acme", "k1"), Caller("other", "k2")


def test_a_bucket_holds_one_seconds_worth_and_is_refilled_evenly() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_s=2.0),))
    for turn in (2, 1, 1):
        for _ in range(turn):
            ledger.entered(ACME)
        with pytest.raises(Refused) as refusal:
            ledger.entered(ACME)
        assert refusal.value.code is Code.RATE_LIMITED
        assert refusal.value.text == "requests_per_s of tenant acme: 2; asked 1, 0 left"
        assert refusal.value.retry_after_s is not None and 0.5 <= refusal.value.retry_after_s <= 0.5 * 1.4
        ledger.advance(0.5)


def test_less_than_one_request_a_second_is_one_every_so_many_seconds() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_s=0.25),))
    ledger.entered(ACME)
    ledger.advance(3.99)
    with pytest.raises(Refused):
        ledger.entered(ACME)
    ledger.advance(0.01)
    ledger.entered(ACME)


def test_tenants_do_not_share_what_each_has() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_minute=1),))
    ledger.entered(ACME)
    ledger.entered(OTHER)
    with pytest.raises(Refused, match="tenant acme"):
        ledger.entered(ACME)


def test_a_request_that_one_rule_refuses_takes_nothing_of_the_others() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_minute=5), QuotaRule(key="k1", concurrent=1)))
    running = ledger.entered(ACME)
    for _ in range(20):
        with pytest.raises(Refused) as refusal:
            ledger.entered(ACME)
        assert refusal.value.code is Code.CONCURRENCY_LIMITED
    running.leave()
    for _ in range(4):
        ledger.entered(ACME).leave()
    with pytest.raises(Refused, match="requests_per_minute of tenant acme: 5; asked 1, 0 left"):
        ledger.entered(ACME)


def test_a_refused_charge_gives_back_what_was_taken_at_the_door() -> None:
    ledger = Ledger(
        (QuotaRule(tenant="*", requests_per_minute=2, concurrent=1, bytes_per_minute=100, rows_per_minute=10),)
    )
    for _ in range(5):
        first = ledger.entered(ACME, 60)
        at_once(first.charge(Use(rows=1)))
        first.settle(NOTHING)
        first.leave()
        ledger.advance(60)
        at_once((full := ledger.entered(ACME, 40)).charge(Use(rows=10)))
        full.leave()
        again = ledger.entered(ACME, 60)
        with pytest.raises(Refused, match="rows_per_minute of tenant acme: 10; asked 1, 0 left"):
            at_once(again.charge(Use(rows=1)))
        again.leave()
        ledger.entered(ACME, 60).leave()
        ledger.advance(60)


def test_bytes_are_those_of_the_body() -> None:
    ledger = Ledger((QuotaRule(tenant="*", bytes_per_minute=600),))
    ledger.entered(ACME, 400)
    with pytest.raises(Refused, match="bytes_per_minute of tenant acme: 600; asked 300, 200 left") as refusal:
        ledger.entered(ACME, 300)
    assert refusal.value.retry_after_s is not None and refusal.value.retry_after_s >= 10
    ledger.advance(10)
    ledger.entered(ACME, 300)


def test_bytes_are_given_back_when_the_pipeline_that_the_body_names_has_no_room() -> None:
    ledger = Ledger((QuotaRule(tenant="*", bytes_per_minute=600), QuotaRule(pipeline="p", bytes_per_minute=500)))
    at_once(ledger.entered(ACME, 400).enter("p"))
    late = ledger.entered(OTHER, 400)
    with pytest.raises(Refused, match="bytes_per_minute of pipeline p: 500"):
        at_once(late.enter("p"))
    ledger.entered(OTHER, 600).leave()


@pytest.mark.parametrize(
    ("rule", "use"),
    [
        (QuotaRule(tenant="*", rows_per_minute=10), Use(rows=11)),
        (QuotaRule(tenant="*", tokens_per_minute=10), Use(tokens=11)),
        (QuotaRule(tenant="*", cost_per_day=10.0), Use(cost=10.5)),
    ],
)
def test_what_never_fits_is_not_told_to_come_again(rule: QuotaRule, use: Use) -> None:
    admission = Ledger((rule,)).entered(ACME)
    with pytest.raises(Refused, match="this request alone is") as refusal:
        at_once(admission.charge(use))
    assert (refusal.value.code, refusal.value.retry_after_s) == (Code.INPUT_TOO_LARGE, None)


def test_a_budget_is_reserved_settled_and_new_at_midnight_utc() -> None:
    ledger = Ledger((QuotaRule(tenant="*", cost_per_day=100.0),))
    first = ledger.entered(ACME)
    at_once(first.charge(Use(cost=80)))
    second = ledger.entered(ACME)
    with pytest.raises(Refused, match="cost_per_day of tenant acme: 100; asked 30, 20 left") as refusal:
        at_once(second.charge(Use(cost=30)))
    assert refusal.value.code is Code.BUDGET_EXHAUSTED
    assert refusal.value.retry_after_s is not None and 1 <= refusal.value.retry_after_s <= 1.4  # the first may use less
    first.settle(Use(cost=50))
    first.settle(NOTHING)
    last = ledger.entered(ACME)
    at_once(last.charge(Use(cost=50)))
    last.settle(Use(cost=50))
    with pytest.raises(Refused) as refusal:
        at_once(ledger.entered(ACME).charge(Use(cost=0.01)))
    assert refusal.value.retry_after_s is not None and 43_200 <= refusal.value.retry_after_s <= 43_200 + 10
    ledger.advance(43_200)
    at_once(ledger.entered(ACME).charge(Use(cost=100)))


def test_what_was_reserved_is_given_back_when_the_clock_was_set_back_over_midnight() -> None:
    ledger = Ledger((QuotaRule(tenant="*", cost_per_day=100.0),))
    ledger.wall.advance(43_200)
    at_once(ledger.entered(ACME).charge(Use(cost=10)))
    ledger.wall.advance(-3600)
    running = ledger.entered(ACME)
    at_once(running.charge(Use(cost=90)))
    running.settle(NOTHING)
    at_once(ledger.entered(ACME).charge(Use(cost=90)))


def test_what_was_reserved_yesterday_is_not_given_back_today() -> None:
    ledger = Ledger((QuotaRule(tenant="*", cost_per_day=100.0),))
    old = ledger.entered(ACME)
    at_once(old.charge(Use(cost=90)))
    ledger.advance(43_200)
    at_once(ledger.entered(ACME).charge(Use(cost=100)))
    old.settle(NOTHING)
    with pytest.raises(Refused):
        at_once(ledger.entered(ACME).charge(Use(cost=1)))


def test_what_a_bucket_was_refilled_with_is_not_given_back_once_more() -> None:
    ledger = Ledger((QuotaRule(tenant="*", bytes_per_minute=60), QuotaRule(pipeline="*", requests_per_minute=1)))
    ledger.entered(OTHER, pipeline="p")
    slow = ledger.entered(ACME, 60)
    ledger.advance(30)
    at_once(ledger.entered(ACME, 30, pipeline="q").charge(NOTHING))
    with pytest.raises(Refused):
        at_once(slow.enter("q"))
    ledger.entered(ACME, 30)
    with pytest.raises(Refused):
        ledger.entered(ACME, 1)


def test_what_is_reserved_stays_reserved_until_its_request_has_ended() -> None:
    ledger = Ledger((QuotaRule(tenant="*", tokens_per_minute=60),))
    slow = ledger.entered(ACME)
    at_once(slow.charge(Use(tokens=60)))
    ledger.advance(600)
    with pytest.raises(Refused, match="asked 1, 0 left") as refusal:
        at_once(ledger.entered(ACME).charge(Use(tokens=1)))
    assert refusal.value.retry_after_s is not None and 1 <= refusal.value.retry_after_s <= 1.4
    slow.settle(Use(tokens=20))
    at_once(ledger.entered(ACME).charge(Use(tokens=40)))


def test_who_owes_of_a_limit_may_ask_what_takes_none_of_it() -> None:
    ledger = Ledger((QuotaRule(tenant="*", tokens_per_minute=60),))
    more = ledger.entered(ACME)
    at_once(more.charge(Use(tokens=50)))
    more.settle(Use(tokens=120))
    at_once(ledger.entered(ACME).charge(Use(rows=1)))


def test_callers_of_two_tenants_with_the_same_id_have_accounts_of_their_own() -> None:
    ledger = Ledger((QuotaRule(key="*", requests_per_minute=1), QuotaRule(key="sub:ci", concurrent=1)))
    ledger.entered(Caller("acme", "sub:ci"))
    ledger.entered(Caller("other", "sub:ci"))
    with pytest.raises(Refused):
        ledger.entered(Caller("acme", "sub:ci"))


def test_numbers_are_said_as_people_write_them() -> None:
    ledger = Ledger((QuotaRule(tenant="*", bytes_per_minute=10_000_000, cost_per_day=0.5),))
    ledger.entered(ACME, 8_765_433)
    with pytest.raises(Refused, match="bytes_per_minute of tenant acme: 10000000; asked 2000000, 1234567 left"):
        ledger.entered(ACME, 2_000_000)
    budget = ledger.entered(ACME)
    at_once(budget.charge(Use(cost=0.1)))
    policy = dict(budget.standings.headers(openai=False))[b"RateLimit-Policy"]
    assert b'"tenant-cost_per_day";q=1;qu="cost";w=86400' in policy


def test_no_more_is_left_than_the_limit_and_no_number_is_too_long_for_a_header() -> None:
    most = 999_999_999_999_999  # of a structured field (RFC 9651, 3.3.1)
    ledger = Ledger((QuotaRule(tenant="*", bytes_per_minute=most),))
    said = dict(ledger.entered(ACME).standings.headers(openai=False))
    assert said[b"RateLimit"].startswith(b'"tenant-bytes_per_minute";r=999999999999999;')


def test_more_used_than_was_reserved_is_owed() -> None:
    ledger = Ledger((QuotaRule(tenant="*", tokens_per_minute=60),))
    more = ledger.entered(ACME)
    at_once(more.charge(Use(tokens=50)))
    more.settle(Use(tokens=120))
    ledger.advance(60)
    with pytest.raises(Refused):
        at_once(ledger.entered(ACME).charge(Use(tokens=1)))
    ledger.advance(1)
    at_once(ledger.entered(ACME).charge(Use(tokens=1)))


def test_a_request_that_ended_unsettled_stays_charged() -> None:
    ledger = Ledger((QuotaRule(tenant="*", rows_per_minute=10),))
    gone = ledger.entered(ACME)
    at_once(gone.charge(Use(rows=10)))
    gone.leave()
    gone.settle(NOTHING)
    with pytest.raises(Refused):
        at_once(ledger.entered(ACME).charge(Use(rows=1)))


def test_leaving_twice_lets_one_go() -> None:
    ledger = Ledger((QuotaRule(tenant="*", concurrent=2),))
    first, _ = ledger.entered(ACME), ledger.entered(ACME)
    first.leave()
    first.leave()
    ledger.entered(ACME)
    with pytest.raises(Refused, match="concurrent of tenant acme: 2; asked 1, 0 left"):
        ledger.entered(ACME)


def test_a_pipeline_that_is_known_only_from_the_body_is_counted_once() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_minute=2), QuotaRule(pipeline="*", requests_per_minute=1)))
    admission = ledger.entered(ACME)
    at_once(admission.enter("p"))
    at_once(admission.enter("p"))
    with pytest.raises(Refused, match="requests_per_minute of pipeline p"):
        ledger.entered(ACME, pipeline="p")
    ledger.entered(ACME, pipeline="q")
    with pytest.raises(Refused, match="requests_per_minute of tenant acme"):
        ledger.entered(ACME)


def test_names_that_no_pipeline_has_make_no_accounts() -> None:
    ledger = Ledger((QuotaRule(pipeline="*", requests_per_minute=1),))
    for number in range(100):
        ledger.entered(ACME, pipeline=f"made-up-{number}")
    assert len(ledger.store) == 0


def test_what_others_left_of_a_pipelines_quota_is_not_told() -> None:
    ledger = Ledger((QuotaRule(pipeline="p", requests_per_minute=1),))
    ledger.entered(OTHER, pipeline="p")
    admission = ledger.quotas.admission(ACME, 0)
    with pytest.raises(Refused) as refusal:
        at_once(admission.enter("p"))
    assert refusal.value.text == "requests_per_minute of pipeline p: 1"
    assert dict(admission.standings.headers(openai=True)) == {
        b"RateLimit-Policy": b'"pipeline-requests_per_minute";q=1;w=60'
    }


def test_the_longest_wait_of_several_rules_is_the_one_that_is_told() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_s=1.0, requests_per_minute=1),))
    ledger.entered(ACME)
    with pytest.raises(Refused, match="requests_per_minute") as refusal:
        ledger.entered(ACME)
    assert refusal.value.retry_after_s is not None and refusal.value.retry_after_s >= 60


def test_headers_say_how_each_limit_stands() -> None:
    ledger = Ledger(
        (
            QuotaRule(tenant="*", requests_per_minute=60, tokens_per_minute=1000, concurrent=4, cost_per_day=50.0),
            QuotaRule(tenant="acme", requests_per_minute=30),
        )
    )
    admission = ledger.entered(ACME)
    at_once(admission.charge(Use(tokens=100, cost=10)))
    admission.settle(Use(tokens=40, cost=4))
    admission.leave()
    said = {name.decode(): value.decode() for name, value in admission.standings.headers(openai=True)}
    assert said["RateLimit-Policy"].split(", ") == [
        '"tenant-requests_per_minute";q=30;w=60',
        '"tenant-concurrent";q=4;qu="concurrent-requests"',
        '"tenant-tokens_per_minute";q=1000;qu="tokens";w=60',
        '"tenant-cost_per_day";q=50;qu="cost";w=86400',
    ]
    assert said["RateLimit"].split(", ") == [
        '"tenant-requests_per_minute";r=29;t=2',
        '"tenant-concurrent";r=4',
        '"tenant-tokens_per_minute";r=960;t=3',
        '"tenant-cost_per_day";r=46;t=43200',
    ]
    assert (said["x-ratelimit-limit-requests"], said["x-ratelimit-remaining-requests"]) == ("30", "29")
    assert (said["x-ratelimit-limit-tokens"], said["x-ratelimit-remaining-tokens"]) == ("1000", "960")
    assert (said["x-ratelimit-reset-requests"], said["x-ratelimit-reset-tokens"]) == ("2s", "3s")
    assert "acme" not in str(said)


def test_of_more_accounts_than_are_kept_full_ones_are_forgotten_first() -> None:
    ledger = Ledger((QuotaRule(tenant="*", requests_per_minute=60), QuotaRule(key="*", concurrent=9)), accounts_max=3)
    ledger.entered(Caller("idle")).leave()
    ledger.advance(1)
    running = [ledger.entered(Caller(name, name)) for name in ("a", "b")]
    assert len(ledger.store) == 4
    running[0].leave()
    for number in range(20):
        ledger.entered(Caller(f"t{number}", f"t{number}")).leave()
    assert len(ledger.store) <= 4
