"""Who is known by a key, a certificate, and for how long; and what is done against those who guess."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.ingress.doors import Asked
from tests.ingress.small_plane import SmallPlane, counting, headers_of

from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.clock import FakeClock, wall_s
from forwardpass.core.errors import Code, Misconfigured, Refused
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.identity.callers import KnownCallers
from forwardpass.ingress.identity.guesses import ADDRESSES_MAX, PER_SECOND, Guesses
from forwardpass.ingress.identity.known_keys import LOOKS_MAX, KnownKeys
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.store.keys import FILE, Key, KeyStore, digest_of

SECRET = b"fp_k1_secret"


def put(folder: Path, id: str = "k1", secret: bytes = SECRET, **more: Any) -> KeyStore:
    store = KeyStore(folder)
    given: dict[str, Any] = {"id": id, "tenant": "acme", "scopes": frozenset({"infer:p"}), "created_s": 1.0}
    store.add(Key(**(given | {"digest": digest_of(secret) if secret else b""} | more)))
    return store


def known(store: KeyStore) -> KnownKeys:
    keys = KnownKeys(store, wall_s)
    keys.look()
    return keys


def asked(headers: dict[bytes, bytes] | None = None, peer: str = "10.0.0.1", subject: str = "") -> HttpRequest:
    return HttpRequest(b"GET", "/", "", headers or {}, b"", 0.0, peer, subject=subject)


def bearer(secret: bytes = SECRET) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + secret}


def within(store: KeyStore, do: Callable[[KnownCallers], Awaitable[Any]], clock: FakeClock | None = None) -> Any:
    """What ``do`` gives with the callers of this store."""

    async def run() -> Any:
        callers = KnownCallers(store, clock or FakeClock())
        async with callers.watched():
            return await do(callers)

    return asyncio.run(run())


def refusal(store: KeyStore, http: HttpRequest) -> Refused:
    with pytest.raises(Refused) as refused:
        within(store, lambda callers: callers.caller(http))
    return refused.value


def test_a_key_tells_tenant_scopes_and_priority(tmp_path: Path) -> None:
    store = put(tmp_path, priority="critical", expires_s=wall_s() + 100)
    found: Caller = within(store, lambda callers: callers.caller(asked(bearer())))
    assert (found.tenant, found.id, found.scopes, found.priority) == ("acme", "k1", frozenset({"infer:p"}), "critical")
    assert found.may("infer", "p") and found.may("read", "p") and not found.may("infer", "q")
    assert not found.may("receipts") and not found.may("admin")


@pytest.mark.parametrize("wrong", [b"", b"fp_k1_", SECRET + b"x", b"\xff\xfe", b"x" * 10_240, b"' OR 1=1--", b"a.b.c"])
def test_whoever_nobody_knows_is_told_the_same(tmp_path: Path, wrong: bytes) -> None:
    put(tmp_path)
    put(tmp_path, "k2", b"old", expires_s=wall_s() - 1)
    store = put(tmp_path, "k3", b"revoked", revoked_s=2.0)
    refused = refusal(store, asked(bearer(wrong)))
    assert refused.code is Code.UNAUTHENTICATED
    assert refused.text == refusal(store, asked(bearer(b"old"))).text == refusal(store, asked(bearer(b"revoked"))).text


def test_whoever_says_nothing_is_told_how(tmp_path: Path) -> None:
    refused = refusal(put(tmp_path), asked())
    assert refused.code is Code.UNAUTHENTICATED
    assert "X-API-Key" in refused.text


def test_a_certificate_counts_where_no_key_is_sent(tmp_path: Path) -> None:
    put(tmp_path, "k2", b"", tenant="mesh", subject="CN=svc")
    store = put(tmp_path)
    by_certificate: Caller = within(store, lambda callers: callers.caller(asked(subject="CN=svc")))
    by_key: Caller = within(store, lambda callers: callers.caller(asked(bearer(), subject="CN=svc")))
    assert (by_certificate.tenant, by_key.tenant) == ("mesh", "acme")
    assert refusal(store, asked(subject="CN=other")).code is Code.UNAUTHENTICATED
    assert refusal(store, asked(bearer(b"wrong"), subject="CN=svc")).code is Code.UNAUTHENTICATED


def test_a_key_made_for_a_certificate_is_no_secret(tmp_path: Path) -> None:
    store = put(tmp_path, "k2", b"", subject="CN=svc")
    assert refusal(store, asked(bearer(b""))).code is Code.UNAUTHENTICATED


def test_a_change_is_seen_at_the_next_look(tmp_path: Path) -> None:
    store = put(tmp_path)
    keys = known(store)
    store.revoke("k1", 2.0)
    put(tmp_path, "k2", b"second")
    assert keys.caller(SECRET) is not None
    keys.look()
    assert keys.caller(SECRET) is None and not keys.holds("k1")
    assert keys.caller(b"second") is not None and keys.holds("k2")


def test_a_store_that_goes_away_takes_no_key_with_it(tmp_path: Path) -> None:
    keys = known(put(tmp_path))
    (tmp_path / FILE).rename(tmp_path / "away")
    with pytest.raises(OSError, match="not there"):
        keys.look()
    (tmp_path / FILE).write_bytes(b"broken" * 100)
    with pytest.raises(Misconfigured):
        keys.look()
    assert keys.caller(SECRET) is not None


def test_a_store_that_was_made_anew_is_read(tmp_path: Path) -> None:
    """Its inode and its count of changes may be those of the one that was deleted."""
    keys = known(put(tmp_path))
    (tmp_path / FILE).unlink()
    with pytest.raises(OSError, match="not there"):
        keys.look()
    put(tmp_path, "k2", b"second")
    keys.look()
    assert keys.caller(SECRET) is None and keys.caller(b"second") is not None


def test_a_change_that_leaves_no_mark_is_seen_after_a_few_looks(tmp_path: Path) -> None:
    """In SQLite's WAL mode a change stays out of the database's file."""
    store = put(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        keys = known(store)
        other.execute("UPDATE keys SET revoked_s = 2.0")
        other.commit()
        for _ in range(LOOKS_MAX):
            keys.look()
    assert keys.caller(SECRET) is None


def test_a_store_without_keys_says_how_to_make_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def nothing(callers: KnownCallers) -> None: ...

    with caplog.at_level(logging.WARNING, "forwardpass.identity"):
        within(KeyStore(tmp_path), nothing)
    (line,) = caplog.records
    command = f"forwardpass keys create --tenant NAME --scope infer --set run.data={tmp_path}"
    assert getattr(line, "event", {}) == {"command": command}


def test_a_quota_for_a_key_that_nobody_has_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the start, and after a change that takes another one away; not over and over."""
    store, expected = put(tmp_path), ("k1", "batch-jobs", "token:alice")

    def told() -> list[list[str]]:
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        return [record.event["keys"] for record in warnings]  # type: ignore[attr-defined]  # given as extra

    async def run() -> None:
        async with KnownCallers(store, FakeClock(), expected=expected).watched():
            assert told() == [["batch-jobs", "token:alice"]]
            (tmp_path / FILE).unlink()
            put(tmp_path, "k2")
            async with asyncio.timeout(10):
                while len(told()) < 2:
                    await asyncio.sleep(0.05)

    with caplog.at_level(logging.WARNING, "forwardpass.identity"):
        asyncio.run(run())
    assert told()[1:] == [["batch-jobs", "k1", "token:alice"]]


def test_a_key_that_expires_is_known_no_more(tmp_path: Path) -> None:
    store = put(tmp_path)
    for caller, still in (
        (Caller("acme", "k1"), True),
        (Caller("acme", "k1", expires_s=wall_s() - 1), False),
        (Caller("acme", "k9"), False),
        (Caller("acme", "token:alice", expires_s=wall_s() + 9), True),
        (Caller("acme", "token:alice", expires_s=wall_s() - 9), False),
    ):

        async def knows(callers: KnownCallers, caller: Caller = caller) -> bool:
            return callers.knows(caller)

        assert within(store, knows) is still


def test_guesses_of_one_address_are_bounded_and_right_keys_pass(tmp_path: Path) -> None:
    async def guess(callers: KnownCallers) -> tuple[list[Code], Caller, Code]:
        codes = [await _code(callers, asked(bearer(b"%d" % n))) for n in range(PER_SECOND + 2)]
        return codes, await callers.caller(asked(bearer())), await _code(callers, asked(bearer(b"x"), "10.0.0.2"))

    codes, right, other = within(put(tmp_path), guess)
    assert codes == [Code.UNAUTHENTICATED] * PER_SECOND + [Code.RATE_LIMITED] * 2
    assert (right.id, other) == ("k1", Code.UNAUTHENTICATED)


async def _code(callers: KnownCallers, http: HttpRequest) -> Code:
    try:
        await callers.caller(http)
    except Refused as refused:
        return refused.code
    raise AssertionError("was let in")


def test_guessing_may_go_on_after_a_while() -> None:
    clock = FakeClock()
    guesses = Guesses(clock)
    for _ in range(PER_SECOND):
        guesses.count("a")
    with pytest.raises(Refused):
        guesses.count("a")
    clock.advance(1.5 / PER_SECOND)
    guesses.count("a")
    with pytest.raises(Refused):
        guesses.count("a")


def test_only_so_many_guessers_are_remembered() -> None:
    guesses = Guesses(FakeClock())
    for n in range(ADDRESSES_MAX + 100):
        guesses.count(str(n))
    assert len(guesses) == ADDRESSES_MAX


class Whoever(Asked):
    """Everybody is ``caller``, and known for as many looks as ``looks``."""

    def __init__(self, caller: Caller, looks: int = 9) -> None:
        self._caller = caller
        self.looks = looks

    async def caller(self, http: HttpRequest) -> Caller:
        return self._caller

    def knows(self, caller: Caller) -> bool:
        self.looks -= 1
        return self.looks >= 0


async def _streaming(call: Call) -> HttpAnswer:
    async def events() -> AsyncIterator[bytes]:
        for n in range(5):
            yield b"data: %d\n\n" % n

    return HttpAnswer(200, events(), b"text/event-stream")


def test_a_stream_ends_with_the_reason_once_its_caller_is_known_no_more() -> None:
    async def run() -> list[bytes]:
        plane = SmallPlane(Edge(identity=Whoever(ANONYMOUS, looks=2)), _streaming)
        answer = await plane.asked(path="/stream/p")
        assert isinstance(answer.body, AsyncIterator)
        return [chunk async for chunk in answer.body]

    *events, last = asyncio.run(run())
    assert events == [b"data: 0\n\n", b"data: 1\n\n"]
    assert last.startswith(b"data: {") and b'"unauthenticated"' in last


@pytest.mark.parametrize(
    ("scopes", "path", "status"),
    [
        ({"infer:p"}, "/infer/p", 200),
        ({"infer"}, "/infer/p", 200),
        ({"infer:q"}, "/infer/p", 403),
        ({"admin", "receipts", "jobs"}, "/infer/p", 403),
        (set(), "/about", 200),
        (set(), "/infer/unknown", 403),
    ],
)
def test_a_route_wants_its_scope(scopes: set[str], path: str, status: int) -> None:
    plane = SmallPlane(Edge(identity=Whoever(Caller("t", "k", frozenset(scopes)))), counting)
    answer = plane.ask(path=path, method=b"GET" if path == "/about" else b"POST")
    assert answer.status == status


def test_a_refusal_asks_for_a_key_as_http_has_it(tmp_path: Path) -> None:
    plane = SmallPlane(Edge(identity=KnownCallers(put(tmp_path), FakeClock())), counting)
    answer = plane.ask(path="/infer/p")
    assert (answer.status, headers_of(answer)["www-authenticate"]) == (401, "Bearer")
    assert plane.runs == 0
    assert plane.ask(path="/live", method=b"GET").status == 200


def test_where_nobody_need_say_who_they_are_no_credential_is_looked_at() -> None:
    plane = SmallPlane(Edge(), counting)
    for value in ("Bearer wrong", "", "Bearer a, Bearer b", "x" * 9000):
        assert plane.ask(headers={"Authorization": value, "X-API-Key": "other"}).status == 200
