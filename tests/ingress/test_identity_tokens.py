"""Tokens of an issuer: which are taken, as whom, and what becomes of them while the issuer's keys change."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ingress.issuer import ALGORITHMS, AUDIENCE, ISSUER, Issuer, issuing

from forwardpass.core.caller import Caller
from forwardpass.core.clock import FakeClock, wall_s
from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.ingress.identity.issuer_keys import DOCUMENT_BYTES_MAX, UNKNOWN_S, IssuerKeys
from forwardpass.ingress.identity.tokens import TokenRules, Tokens

RULES = TokenRules(ISSUER, AUDIENCE)


@pytest.fixture(scope="module")
def serving_issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def issuer(serving_issuer: Issuer) -> Issuer:
    serving_issuer.away = False
    serving_issuer.fetched.clear()
    serving_issuer.documents = {"/jwks": serving_issuer.jwks("rsa", "ec", "okp")}
    return serving_issuer


def tokens(issuer: Issuer, clock: FakeClock | None = None, place: str = "/jwks", rules: TokenRules = RULES) -> Tokens:
    return Tokens(rules, IssuerKeys(issuer.url + place, clock or FakeClock()), wall_s)


def caller(issuer: Issuer, token: str | bytes, rules: TokenRules = RULES) -> Caller | None:
    given = token.encode() if isinstance(token, str) else token
    return asyncio.run(tokens(issuer, rules=rules).caller(given))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_the_issuer_says_who_asks(issuer: Issuer, algorithm: str) -> None:
    exp = int(time.time()) + 300
    found = caller(issuer, issuer.token(algorithm, exp=exp, scope="openid infer:fraud receipts profile"))
    assert found == Caller("acme", "token:alice", frozenset({"infer:fraud", "receipts"}), expires_s=exp + 5.0)


def test_claims_have_the_names_that_the_operator_gives_them(issuer: Issuer) -> None:
    rules = TokenRules(ISSUER, AUDIENCE, "org", "scp")
    found = caller(issuer, issuer.token(org="zeta", scp=["infer", "admin", 7]), rules)
    assert found is not None
    assert (found.tenant, found.scopes) == ("zeta", frozenset({"infer", "admin"}))


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1_000_000_000},
        {"exp": ...},
        {"exp": "soon"},
        {"exp": True},
        {"exp": "9000000000"},
        {"exp": 10**300},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": 9_000_000_000},
        {"nbf": 9_000_000_000},
        {"iss": "https://other.example"},
        {"iss": ...},
        {"aud": "another"},
        {"aud": ["another", "third"]},
        {"aud": ...},
        {"sub": ...},
        {"sub": ""},
        {"sub": "a\nb"},
        {"sub": "x" * 257},
        {"tenant": ...},
        {"tenant": ""},
        {"tenant": "../etc"},
        {"tenant": ["acme"]},
        {"tenant": "x" * 65},
    ],
)
def test_a_token_that_does_not_say_what_it_must_is_nobody_s(issuer: Issuer, claims: dict[str, Any]) -> None:
    assert caller(issuer, issuer.token(**claims)) is None


def test_a_token_for_several_audiences_is_for_us_too(issuer: Issuer) -> None:
    assert caller(issuer, issuer.token(aud=["another", AUDIENCE])) is not None


def test_a_token_without_scopes_may_ask_nothing(issuer: Issuer) -> None:
    found = caller(issuer, issuer.token(scope=...))
    assert found is not None and not found.may("infer", "p") and not found.may("receipts")


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_no_token_is_signed_with_a_shared_secret_or_not_at_all(issuer: Issuer) -> None:
    """Neither with the public key as the secret: the trick that an algorithm of the token's own choice allows."""
    public = issuer.documents["/jwks"]["keys"][0]["n"].encode()
    issuer.documents["/jwks"]["keys"].append(
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMw"}
    )
    for algorithm, key, id in (("none", "", "rsa"), ("HS256", public, "rsa"), ("HS256", b"secret" * 8, "shared")):
        assert caller(issuer, issuer.token(algorithm, key, {"kid": id})) is None


def test_a_signature_by_another_key_or_over_another_text_is_none(issuer: Issuer) -> None:
    other = Issuer()
    assert caller(issuer, other.token()) is None
    head, _, signature = issuer.token().split(".")
    payload = issuer.token(tenant="zeta").split(".")[1]
    assert caller(issuer, f"{head}.{payload}.{signature}") is None
    assert caller(issuer, issuer.token("ES256", headers={"kid": "rsa"})) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"..",
        b"a.b",
        b"a.b.c",
        b"e30.e30.",
        b"e30.e30.AA",
        b"\xff.\xfe.\xfd",
        b"bnVsbA.bnVsbA.bnVsbA",
        b"W10.W10.W10",
        b"W1tb" * 1500 + b".e30.AA",
        b"x" * 9000,
        b"eyJhbGciOiJSUzI1NiIsImtpZCI6NX0.e30.AA",
    ],
)
def test_what_is_no_token_is_nobody_s(issuer: Issuer, text: bytes) -> None:
    assert caller(issuer, text) is None


def test_the_issuer_s_discovery_leads_to_its_keys(issuer: Issuer) -> None:
    issuer.documents["/.well-known/openid-configuration"] = {"issuer": ISSUER, "jwks_uri": issuer.url + "/jwks"}
    made = tokens(issuer, place="/.well-known/openid-configuration")
    assert asyncio.run(made.caller(issuer.token().encode())) is not None
    assert issuer.fetched == ["/.well-known/openid-configuration", "/jwks"]


def test_keys_may_be_in_a_file(issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(issuer.jwks("ec")))
    made = Tokens(RULES, IssuerKeys(str(file), FakeClock()), wall_s)
    assert asyncio.run(made.caller(issuer.token("ES256").encode())) is not None


@pytest.mark.parametrize("content", [None, "{}", "[", '{"keys": [{"kty": "oct", "k": "AA"}]}'])
def test_a_file_that_has_no_keys_is_refused_when_the_server_starts(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "jwks.json"
    if content is not None:
        file.write_text(content)

    async def start() -> None:
        async with IssuerKeys(str(file), FakeClock()).watched():
            pass

    with pytest.raises(Misconfigured, match=r"auth\.jwks"):
        asyncio.run(start())


def test_an_issuer_that_is_away_when_the_server_starts_may_come_back(issuer: Issuer) -> None:
    issuer.away = True

    async def start() -> int:
        keys = IssuerKeys(issuer.url + "/jwks", clock := FakeClock())
        async with keys.watched():
            while not issuer.fetched:
                await asyncio.sleep(0)
        issuer.away = False
        clock.advance(UNKNOWN_S)
        await keys.find("rsa")
        return keys.reads

    assert asyncio.run(start()) == 1


@pytest.mark.parametrize("source", ["http://issuer.example/jwks", "ftp://127.0.0.1/jwks", "http://127.0.0.1.example/k"])
def test_keys_that_anybody_on_the_way_could_change_are_not_fetched(source: str) -> None:
    with pytest.raises(Misconfigured, match="https"):
        IssuerKeys(source, FakeClock())


@pytest.mark.parametrize(
    "document",
    [
        {"keys": []},
        {"keys": {}},
        {"keys": [{"kty": "oct", "k": "AA"}]},
        {"keys": [{"kty": "RSA"}, "x", None]},
        [],
        {"jwks_uri": "http://issuer.example/jwks"},
        {"jwks_uri": "/etc/passwd"},
        {"keys": ["x" * DOCUMENT_BYTES_MAX]},
    ],
)
def test_a_document_without_keys_leaves_what_was_known(issuer: Issuer, document: Any) -> None:
    async def run() -> Caller | None:
        made = tokens(issuer, clock := FakeClock())
        assert await made.caller(issuer.token().encode()) is not None
        issuer.documents["/jwks"] = document
        clock.advance(UNKNOWN_S)
        assert await made.caller(issuer.token(headers={"kid": "new"}).encode()) is None
        return await made.caller(issuer.token().encode())

    assert asyncio.run(run()) is not None


def test_an_unknown_key_has_the_keys_read_once_in_a_while(issuer: Issuer) -> None:
    async def run() -> None:
        made = tokens(issuer, clock := FakeClock())
        issuer.documents["/jwks"] = issuer.jwks("rsa")
        assert await made.caller(issuer.token().encode()) is not None
        issuer.documents["/jwks"] = issuer.jwks("rsa", "ec")
        unknown = [made.caller(issuer.token("ES256", sub=str(n)).encode()) for n in range(20)]
        assert await asyncio.gather(*unknown) == [None] * 20
        assert issuer.fetched == ["/jwks"]
        clock.advance(UNKNOWN_S)
        found = await asyncio.gather(*[made.caller(issuer.token("ES256", sub=str(n)).encode()) for n in range(20)])
        assert None not in found
        assert issuer.fetched == ["/jwks"] * 2

    asyncio.run(run())


def test_an_issuer_that_is_away_takes_nothing_with_it(issuer: Issuer) -> None:
    async def run() -> None:
        made = tokens(issuer, clock := FakeClock())
        assert await made.caller(issuer.token().encode()) is not None
        issuer.away = True
        clock.advance(UNKNOWN_S)
        assert await made.caller(issuer.token(headers={"kid": "new"}).encode()) is None
        assert await made.caller(issuer.token(sub="bob").encode()) is not None

    asyncio.run(run())


def test_until_the_issuer_answered_once_tokens_may_be_right_later(issuer: Issuer) -> None:
    issuer.away = True
    with pytest.raises(Failed) as failed:
        caller(issuer, issuer.token())
    assert failed.value.code is Code.NOT_READY


def test_a_key_that_the_issuer_takes_back_signs_nothing_more(issuer: Issuer) -> None:
    async def run() -> None:
        made = tokens(issuer, clock := FakeClock())
        token = issuer.token().encode()
        assert await made.caller(token) is not None
        issuer.documents["/jwks"] = issuer.jwks("ec")
        clock.advance(UNKNOWN_S)
        assert await made.caller(issuer.token(headers={"kid": "new"}).encode()) is None
        assert await made.caller(token) is None

    asyncio.run(run())


def test_a_token_is_checked_once_and_ends_when_it_says(issuer: Issuer) -> None:
    now_s = [time.time()]

    async def run() -> None:
        made = Tokens(RULES, IssuerKeys(issuer.url + "/jwks", FakeClock()), lambda: now_s[0])
        token = issuer.token(exp=int(now_s[0]) + 60).encode()
        assert await made.caller(token) is await made.caller(token)
        now_s[0] += 70
        assert await made.caller(token) is None

    asyncio.run(run())


def test_of_all_tokens_only_so_many_are_kept(issuer: Issuer) -> None:
    async def run() -> int:
        made = Tokens(RULES, IssuerKeys(issuer.url + "/jwks", FakeClock()), wall_s, kept_max=10)
        for n in range(30):
            assert await made.caller(issuer.token("EdDSA", sub=str(n)).encode()) is not None
        return len(made)

    assert asyncio.run(run()) == 10
