"""Texts made to be slow for guards, or to slip through them: answered or refused by name, and nobody else waits."""

import json
from collections.abc import Iterator

import pytest
from tests.serving import Reply, Server

MIB = 2**20
SLOW = {
    "at signs": "@" * 1_000_000, "local parts": "a@" * (MIB // 2), "nearly mails": "a@b." * (MIB // 4),
    "digits": "1" * MIB, "groups of digits": "4111 1111 1111 1112 " * (MIB // 20), "countries": "GB82 " * (MIB // 5),
    "colons": ":" * MIB, "nested repeats": "a" * MIB, "alternatives": "x" * MIB, "tokens": "eyJ" * (MIB // 3),
    "marks": "e" + "\u0301\u0323" * 60, "unseen": "b\u200b" * (MIB // 4), "nearly words": "badge open " * (MIB // 11),
    "right to left": "\u202e\u05d0" * (MIB // 5), "NUL": "\0" * 100_000,
}  # fmt: skip
HIDDEN = {
    "upper case": "BADGER", "full width": "ｂａｄｇｅｒ", "zero width": "b\u200ba\u200bd\u200bg\u200be\u200br",
    "soft hyphens": "bad\u00adger", "joined": "bad\u200dger", "mathematical": "𝐛𝐚𝐝𝐠𝐞𝐫", "a phrase": "Open\u00a0SESAME",
    "right to left mark": "\u200fbadger\u200f", "in circles": "ⓑⓐⓓⓖⓔⓡ", "an entry behind a zero width": "x\u200bbadger",
}  # fmt: skip
MASKED = ["joe@example.com", "4111 1111 1111 1111", "GB82WEST12345698765432", "+44 20 7946 0958", "192.0.2.7"]


def ask(server: Server, text: str, query: str = "?receipt=full") -> Reply:
    body = json.dumps({"text": text}).encode()
    return server.call("POST", f"/predict/guarded{query}", body, {"Content-Type": "application/json"})


@pytest.mark.parametrize("name", SLOW)
def test_a_text_made_to_be_slow_is_answered_or_refused(server: Server, name: str) -> None:
    reply = ask(server, SLOW[name])
    assert reply.status == 200 or reply.code in ("guard_blocked", "input_too_large", "invalid_input")
    assert ask(server, "the next one").status == 200


@pytest.mark.parametrize("name", HIDDEN)
def test_a_word_is_found_however_it_is_written(server: Server, name: str) -> None:
    reply = ask(server, f"so {HIDDEN[name]} it is")
    assert (reply.status, reply.code, '"words"' in reply.json["error"]["message"]) == (422, "guard_blocked", True)


@pytest.fixture
def log_before(server: Server) -> Iterator[int]:
    yield server.log.stat().st_size


@pytest.mark.parametrize("secret", MASKED)
def test_what_is_masked_is_in_no_answer_receipt_or_log(server: Server, log_before: int, secret: str) -> None:
    reply = ask(server, f"it is {secret}, keep it")
    kept = server.get(f"/receipts/{reply.headers['x-request-id']}", admin=True)
    assert reply.status == kept.status == 200
    for place in (reply.body, kept.body, server.log.read_bytes()[log_before:]):
        assert secret.encode() not in place


@pytest.mark.parametrize("body", [b'{"text": "\xff\xfe"}', b'{"text": "\\ud800"}', b'{"text": null}', b'{"text": 1}'])
def test_what_is_no_text_never_reaches_a_guard(server: Server, body: bytes) -> None:
    reply = server.call("POST", "/predict/guarded", body, {"Content-Type": "application/json"})
    assert reply.status == 400
