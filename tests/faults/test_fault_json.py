"""Bodies that are no strict JSON, or JSON of another meaning, over HTTP (group J)."""

import json
import threading
import time

import pytest
from tests.faults.asking import Call, infer
from tests.faults.oracle import assert_well_told
from tests.serving import Server, wait_until

RIGHT = infer().body


class Meanwhile:
    """Asks all the time whether the server lives, and keeps how long the slowest answer took."""

    def __init__(self, server: Server) -> None:
        self.slowest_s = 0.0
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Meanwhile":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            started = time.perf_counter()
            assert self._server.get("/v2/health/live").status == 200
            self.slowest_s = max(self.slowest_s, time.perf_counter() - started)


def data(text: str) -> bytes:
    """A right call with this text as its data."""
    return RIGHT.replace(b"[1, 2, 3, 4]", text.encode())


def top(text: str) -> bytes:
    """A right call with this text before its first key."""
    return RIGHT.replace(b"{", b"{" + text.encode(), 1)


ROWS = {
    "J1 65 deep": (data("[" * 62 + "1" + "]" * 62), "json_too_deep"),
    "J1 100,000 open": (b"[" * 100_000, "json_too_deep"),
    "J1 5,000,000 open": (b"[" * 5_000_000, "json_too_deep"),
    "J1 objects": (b'{"a":' * 100_000, "json_too_deep"),
    "J2 twice": (top('"id": "a", "id": "b", '), "json_duplicate_key"),
    "J2 inputs twice": (b'{"inputs": [], ' + RIGHT[1:], "json_duplicate_key"),
    "J2 twice by escape": (top('"id": "a", "\\u0069d": "b", '), "json_duplicate_key"),
    "J2 twice within": (RIGHT.replace(b'"name"', b'"name": "y", "name"'), "json_duplicate_key"),
    "J3 NaN": (data("[1, 2, 3, NaN]"), "json_invalid"),
    "J3 Infinity": (data("[1, 2, 3, -Infinity]"), "json_invalid"),
    "J3 1e400": (data("[1, 2, 3, 1e400]"), "json_invalid"),
    "J6 true": (data("[1, 2, 3, true]"), "wrong_type"),
    "J6 text": (data('[1, 2, 3, "4"]'), "wrong_type"),
    "J6 null": (data("[1, 2, 3, null]"), "wrong_type"),
    "J7 lone surrogate": (top('"id": "\\ud800", '), "json_invalid"),
    "J7 reversed pair": (top('"id": "\\udc00\\ud800", '), "json_invalid"),
    "J9 empty": (b"", "json_invalid"),
    "J9 spaces": (b"   ", "json_invalid"),
    "J9 null": (b"null", "wrong_type"),
    "J9 list": (b"[]", "wrong_type"),
    "J9 text": (b'"x"', "wrong_type"),
    "J9 number": (b"1", "wrong_type"),
    "J10 two documents": (RIGHT + RIGHT, "json_invalid"),
    "J10 comma": (RIGHT[:-1] + b",}", "json_invalid"),
    "J10 comment": (RIGHT + b"// more", "json_invalid"),
    "J10 quotes": (RIGHT.replace(b'"', b"'"), "json_invalid"),
    "J10 BOM": (b"\xef\xbb\xbf" + RIGHT, "json_invalid"),
    "J10 UTF-16": (RIGHT.decode().encode("utf-16"), "json_invalid"),
    "J10 not UTF-8": (top('"id": "?", ').replace(b"?", b"\xff"), "json_invalid"),
    "J11 million keys": (json.dumps(dict.fromkeys(map(str, range(1_000_000)), 0)).encode(), "json_too_many_keys"),
    "J14 __proto__": (top('"__proto__": {"a": 1}, '), "unknown_field"),
    "J14 __class__": (top('"parameters": {"__class__": "x"}, '), "unknown_field"),
    "J14 constructor": (top('"parameters": {"constructor": "x"}, '), "unknown_field"),
    "J15 unknown": (top('"output": [], '), "unknown_field"),
    "J15 misspelt": (top('"parameters": {"timeuot": 1}, '), "unknown_field"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_body_that_is_not_one_right_document_is_refused(server: Server, name: str) -> None:
    body, code = ROWS[name]
    answer = Call(body).send(server)
    assert (answer.status, answer.code) == (400, code), answer.body
    assert_well_told(answer)


def test_j15_a_misspelt_name_is_told_what_was_meant(server: Server) -> None:
    assert_well_told(Call(ROWS["J15 unknown"][0]).send(server), "did you mean 'outputs'")
    assert_well_told(Call(ROWS["J15 misspelt"][0]).send(server), "did you mean 'timeout'")


@pytest.mark.parametrize("value", ["1", "true", "null", "[]", "{}"])
def test_j6_what_is_no_text_is_no_text(server: Server, value: str) -> None:
    body = b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "data": ["a", %b]}]}' % value.encode()
    answer = Call(body, "strings").send(server)
    assert (answer.status, answer.code) == (400, "wrong_type")
    assert_well_told(answer, "/inputs/0/data/1", "string")


def test_j5_numbers_are_rounded_to_nearest(server: Server) -> None:
    assert Call(data("[16777217, 0.1, 1e-46, -0.0]")).send(server).json["outputs"][0]["data"] == [16777216, 0.1, 0, 0]


@pytest.mark.alone
@pytest.mark.parametrize("name", ["J11 million keys", "J11 million lists"])
def test_j11_too_many_of_a_thing_hold_nobody_up(server: Server, name: str) -> None:
    """The catalogue's 50 ms, three times as much for a busy machine, in the best of a few tries."""
    body = ROWS[name][0] if name in ROWS else data("[" + "[1]," * 999_999 + "[1]]")
    slowest_s = []
    for _ in range(4):
        with Meanwhile(server) as meanwhile:
            assert Call(body).send(server).code == "json_too_many_keys"
        slowest_s.append(meanwhile.slowest_s)
    assert min(slowest_s) < 0.15


def test_j11_a_million_lists_are_refused_and_nobody_else_waits_for_it(server: Server) -> None:
    body = data("[" + "[1]," * 999_999 + "[1]]")
    others = server.together(4, lambda n: Call(body).send(server).status if n == 0 else infer().send(server).status)
    assert others == [400, 200, 200, 200]
    wait_until(lambda: server.version("identity")["running"] == 0)
