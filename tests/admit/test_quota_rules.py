"""[[quotas]] of a server.toml: what is taken, and what is refused with its place and the reason."""

from collections.abc import Callable
from pathlib import Path

import pytest

from forwardpass.admit.rules import QuotaRule, accounts_of
from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.errors import Code, Misconfigured
from forwardpass.settings import Settings, read

Read = Callable[[str], Settings]


@pytest.fixture
def given(tmp_path: Path) -> Read:
    def read_text(text: str) -> Settings:
        file = tmp_path / "server.toml"
        file.write_text(text)
        return read(file, {})

    return read_text


def test_rows_become_rules_in_their_order(given: Read) -> None:
    settings = given(
        '[[quotas]]\ntenant = "*"\nrequests_per_s = 2\nconcurrent = 4\n'
        '[[quotas]]\nkey = "k1"\npipeline = "fraud"\ncost_per_day = 0.5\n'
    )
    assert settings.quotas == (
        QuotaRule(tenant="*", requests_per_s=2.0, concurrent=4),
        QuotaRule(key="k1", pipeline="fraud", cost_per_day=0.5),
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            'tenant = "a"\ntokens_per_minut = 5',
            'quotas[0].tokens_per_minut: unknown key; did you mean "tokens_per_minute"?',
        ),
        ('tenant = "a"', "quotas[0]: it limits nothing"),
        ("concurrent = 5", "quotas[0]: it says nobody's"),
        ('tenant = ""\nconcurrent = 5', "quotas[0].tenant: found ; a tenant: 1 to 64 letters"),
        ('tenant = "a b"\nconcurrent = 5', "quotas[0].tenant: found a b; a tenant: 1 to 64 letters"),
        ('pipeline = "Fraud"\nconcurrent = 5', "quotas[0].pipeline: found Fraud; a pipeline: 1 to 64 small"),
        ('key = ""\nconcurrent = 5', "quotas[0].key: found ; a name of 1 to 256"),
        ('tenant = "a"\nbytes_per_minute = 1_000_000_000_000_000', "quotas[0].bytes_per_minute: found"),
        ('tenant = "a"\nconcurrent = 0', "quotas[0].concurrent: found 0; a whole number from 1"),
        ('tenant = "a"\nconcurrent = 1.5', "quotas[0].concurrent: found 1.5"),
        ('tenant = "a"\nconcurrent = true', "quotas[0].concurrent: found True"),
        ('tenant = "a"\nrequests_per_s = nan', "quotas[0].requests_per_s: found nan; a number from 0.001"),
        ('tenant = "a"\nrequests_per_s = inf', "quotas[0].requests_per_s: found inf"),
        ('tenant = "a"\nrequests_per_s = "5"', "quotas[0].requests_per_s: found 5; a number"),
        ('tenant = "a"\ncost_per_day = -1', "quotas[0].cost_per_day: found -1"),
        (
            'tenant = "a"\nconcurrent = 1\n[[quotas]]\ntenant = "a"\nconcurrent = 2',
            "quotas[1].concurrent: quotas[0] limits the same already",
        ),
    ],
)
def test_a_row_that_is_not_right_is_refused_with_its_place(given: Read, rows: str, said: str) -> None:
    with pytest.raises(Misconfigured) as refusal:
        given(f"[[quotas]]\n{rows}\n")
    assert refusal.value.code is Code.SETTINGS_INVALID
    assert said in str(refusal.value)
    assert "server.toml" in str(refusal.value)


@pytest.mark.parametrize("text", ["quotas = 5", "quotas = [5]", '[quotas]\ntenant = "a"'])
def test_quotas_that_are_no_rows_are_refused(given: Read, text: str) -> None:
    with pytest.raises(Misconfigured, match=r"rows: \[\[quotas\]\]"):
        given(text)


def test_quotas_are_not_given_on_the_command_line() -> None:
    with pytest.raises(Misconfigured, match=r"quotas: given as a setting; rows of a server.toml"):
        read(None, {"quotas.tenant": "a"})


def test_a_redis_without_quotas_has_no_effect_and_is_refused(given: Read) -> None:
    with pytest.raises(Misconfigured, match=r"run.redis: has no effect"):
        given('[run]\nredis = "redis://localhost"\n')


def test_what_is_not_the_address_of_a_redis_is_refused_and_not_repeated(given: Read) -> None:
    with pytest.raises(Misconfigured) as refusal:
        given('[run]\nredis = "http://user:hidden@localhost"\n[[quotas]]\nkey = "*"\nconcurrent = 1\n')
    assert "redis://HOST:PORT/NUMBER" in str(refusal.value)
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize(
    ("rule", "caller", "pipeline", "owner"),
    [
        (QuotaRule(tenant="acme", concurrent=1), Caller("acme"), "", "tenant acme"),
        (QuotaRule(tenant="acme", concurrent=1), Caller("other"), "", None),
        (QuotaRule(tenant="*", concurrent=1), Caller("other"), "", "tenant other"),
        (QuotaRule(key="k1", concurrent=1), Caller("acme", "k1"), "", "key k1"),
        (QuotaRule(key="*", concurrent=1), ANONYMOUS, "", "key anonymous"),
        (QuotaRule(pipeline="p", concurrent=1), Caller("acme"), "p", "pipeline p"),
        (QuotaRule(pipeline="*", concurrent=1), Caller("acme"), "", None),
        (QuotaRule(tenant="*", pipeline="p", concurrent=1), Caller("acme"), "p", "tenant acme on pipeline p"),
        (QuotaRule(tenant="*", pipeline="p", concurrent=1), Caller("acme"), "q", None),
    ],
)
def test_a_rule_is_about_whom_it_names(rule: QuotaRule, caller: Caller, pipeline: str, owner: str | None) -> None:
    assert [account.owner for account in accounts_of(rule, caller, pipeline)] == ([] if owner is None else [owner])


def test_no_two_callers_share_an_account_whatever_they_are_called() -> None:
    rule = QuotaRule(key="*", tenant="*", concurrent=1)
    named = QuotaRule(key="*", tenant="a", concurrent=1)
    callers = [
        Caller("a", "b"),
        Caller("a/tenant*1:b", "b"),
        Caller("a", "b/tenant*1:a"),
        Caller("x" * 500),
        Caller("x" * 501),
    ]
    names = {account.name for caller in callers for account in accounts_of(rule, caller, "")}
    names |= {account.name for account in accounts_of(named, callers[0], "")}
    assert len(names) == len(callers) + 1
    assert max(map(len, names)) < 200
