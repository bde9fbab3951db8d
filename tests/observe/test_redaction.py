"""What is a secret by its form or its name is told nowhere, and what is none stays readable (R17)."""

import json
import logging
import time
import traceback

import pytest

from forwardpass.observe.log import JsonLines, TextLines
from forwardpass.observe.redaction import TEXT_CHARACTERS_MAX, Redaction, secrets_of

CANARY = "Canary7f3a9"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0." + CANARY
SECRET = {
    "key": f"used fp_k1k2k3k4_{CANARY}{'x' * 32} twice",
    "header": f"Authorization: Bearer {CANARY}.abc",
    "header of a mapping": f"{{'authorization': 'Basic {CANARY}', 'accept': '*/*'}}",
    "bearer": f"sent bearer {CANARY}==",
    "cookie": f"Cookie: a=b; session={CANARY}",
    "token": f"got {JWT}",
    "cut token": JWT[: JWT.index(".") + 4] + CANARY,
    "address": f"redis://app:{CANARY}@cache:6379/0",
    "address without user": f"redis://:{CANARY}@cache:6379/0",
    "address, strange characters": f"redis://app:{CANARY}@/://{CANARY}@cache:6379/0",
    "variable": f"DATABASE_PASSWORD={CANARY}",
    "json": f'{{"api_key": "{CANARY}", "n": 1}}',
    "json with spaces": f'{{"password": "two words {CANARY}"}}',
    "query": f"/x?access_token={CANARY}&n=1",
    "name in capitals": f"X-API-KEY: {CANARY}",
    "private key": f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----",
    "private key that is cut": f"-----BEGIN PRIVATE KEY-----\n{CANARY}",
    "key of another service": f"sk-proj-{CANARY}{'y' * 20}",
}
PLAIN = [
    "request failed",
    "/predict/own",
    "tokens=12 max_tokens: 4",
    "http://127.0.0.1:8000/v2/models",
    "the key 'a' is not one of the allowed keys",
    "0123456789abcdef0123456789abcdef",
    "mail someone@example.org",
]


@pytest.mark.parametrize("name", SECRET)
@pytest.mark.parametrize("lines", [JsonLines, TextLines])
def test_a_secret_is_in_no_line_wherever_it_stands(name: str, lines: type[JsonLines | TextLines]) -> None:
    try:
        raise ValueError(SECRET[name])
    except ValueError as error:
        raised = (type(error), error, error.__traceback__)
    event = {"detail": SECRET[name], "nested": {"a": [SECRET[name]]}, "reason": ValueError(SECRET[name])}
    record = logging.makeLogRecord({"msg": SECRET[name], "event": event, "exc_info": raised})
    line = lines().format(record)
    assert CANARY not in line and "***" in line
    assert lines is TextLines or json.loads(line)["level"]


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_is_told_as_it_is(text: str) -> None:
    assert Redaction().text(text) == text


@pytest.mark.parametrize("name", ["password", "redis_password", "api_key", "client-secret", "Authorization", "pwd"])
def test_what_stands_under_the_name_of_a_secret_is_hidden_whole(name: str) -> None:
    assert Redaction().value({name: "a b", "inside": [{name: "c"}]}) == {name: "***", "inside": [{name: "***"}]}


def test_other_values_are_what_they_were() -> None:
    told = {"tls_key": "key.pem", "tokens": 5, "on": True, "none": None, "hosts": ["a"], "part": {"key_file": 1.5}}
    assert Redaction().value(told) == told


def test_secrets_of_the_settings_are_hidden_in_any_words_and_as_an_address_spells_them() -> None:
    settings = {"run": {"redis": "redis://app:p%40ss-word@cache"}, "x": {"api_key": "my secret"}, "n": {"port": 1}}
    secrets = secrets_of(settings)
    assert secrets == {"p%40ss-word", "my secret"}
    told = Redaction(secrets).text("cannot log in with p@ss-word or p%40ss-word or my secret")
    assert told == "cannot log in with *** or *** or ***"


def raising(text: str) -> str:
    """A traceback of two errors, one from the other, whose messages repeat the text."""
    try:
        try:
            raise KeyError(text)
        except KeyError as first:
            raise ValueError(f"{text}\n{text}: more") from first
    except ValueError:
        return traceback.format_exc()


@pytest.mark.parametrize("cut", [0, 30, 120])
def test_what_an_exception_said_of_a_request_is_left_out_and_where_it_was_raised_is_told(cut: int) -> None:
    event = {"request": "1", "detail": raising("what was sent")[cut:]}
    told = json.loads(JsonLines().format(logging.makeLogRecord({"event": event})))["detail"]
    assert "was sent" not in told
    assert "in raising" in told and "raise ValueError(" in told and told.endswith("\nValueError")


def test_it_is_told_where_the_log_is_verbose_and_where_no_request_is_the_matter() -> None:
    lines, detail = JsonLines(), raising("no module x")
    assert "no module x" in lines.format(logging.makeLogRecord({"event": {"detail": detail}}))
    lines.messages = True
    assert "no module x" in lines.format(logging.makeLogRecord({"event": {"request": "1", "detail": detail}}))


@pytest.mark.parametrize(
    "unit", ["://", "a://b@", "fp_", "password", "password = ", "eyJ", "-----BEGIN PRIVATE KEY-----", " "]
)
def test_the_time_it_takes_is_bounded(unit: str) -> None:
    hostile = unit * (100 * TEXT_CHARACTERS_MAX // len(unit))
    started = time.process_time()
    told = Redaction(["hunter-secret"]).text(hostile)
    assert time.process_time() - started < 0.1
    assert len(told) <= TEXT_CHARACTERS_MAX
