"""Every text of the corpus on every route that takes JSON: none makes a 5xx, what is no JSON is refused as such (J17)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection

import pytest
from tests.faults.json_corpus import NUMBERS, REFUSED, STRINGS, VALUES, WRITINGS
from tests.serving import Reply, Server

from forwardpass.core.errors import Code

NO_JSON = {Code.JSON_INVALID, Code.JSON_DUPLICATE_KEY, Code.JSON_TOO_DEEP, Code.JSON_TOO_MANY_KEYS}
PLACE = "@"


@dataclass(frozen=True, slots=True)
class Way:
    """A route that takes JSON, with bodies that are right once a value stands where PLACE is.

    In ``any`` it may be of any kind, as far as JSON goes; a number stands in ``number``, a string in ``string``.
    """

    path: str
    any: str
    number: str = ""
    string: str = ""


def tensor(datatype: str, shape: str, data: str) -> str:
    return f'{{"inputs": [{{"name": "x", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}]'


WAYS = (
    Way(
        "/v2/models/identity/infer",
        any=tensor("FP32", "[1, 4]", "[1, 2, 3, 4]") + ', "id": @}',
        number=tensor("FP32", "[1, 4]", "[1, 2, @, 4]") + "}",
    ),
    Way("/v2/models/identity/infer", any=tensor("FP32", "[1, 4]", "@") + "}"),
    Way("/v2/models/identity/infer", any=tensor("FP32", "[1, 4]", "[[1, 2, 3, @]]") + "}"),
    Way("/v2/models/identity/infer", any=tensor("FP32", "[3000, 4]", f"[{'1, 2, 3, 4, ' * 2999} 1, @, 3, 4]") + "}"),
    Way(
        "/v2/models/strings/infer",
        any=tensor("BYTES", "[2]", '["a", @]') + "}",
        string=tensor("BYTES", "[2]", '["a", @]') + "}",
    ),
    Way("/predict/identity", any='{"x": @}', number='{"x": [1, 2, @, 4]}'),
    Way("/predict/identity", any='{"instances": [{"x": [1, 2, 3, 4]}, @]}'),
    Way("/predict/strings", any='{"x": @}', string='{"instances": [{"x": "a"}, {"x": @}]}'),
)
"""A new route that takes JSON is a line here."""


@contextmanager
def asking(server: Server, path: str) -> "Iterator[Asking]":
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        yield Asking(connection, path)
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Asking:
    """One connection to a route, kept through all refusals."""

    connection: HTTPConnection
    path: str

    def __call__(self, body: bytes) -> Reply:
        self.connection.request("POST", self.path, body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def filled(template: str, text: bytes) -> bytes:
    before, after = template.split(PLACE)
    return before.encode() + text + after.encode()


def test_j17_the_corpus_is_large_enough() -> None:
    assert len(REFUSED) + len(NUMBERS) + len(STRINGS) + len(VALUES) >= 250


@pytest.mark.parametrize("path", sorted({way.path for way in WAYS}))
def test_j17_what_is_no_json_is_refused_as_a_body(server: Server, path: str) -> None:
    with asking(server, path) as ask:
        told = {name: (reply.status, reply.code) for name, text in REFUSED.items() for reply in [ask(text)]}
    assert {name: ends for name, ends in told.items() if ends[0] != 400 or ends[1] not in NO_JSON} == {}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.path)
def test_j17_what_is_no_json_is_refused_as_a_value(server: Server, way: Way) -> None:
    with asking(server, way.path) as ask:
        told = {
            name: (reply.status, reply.code) for name, text in REFUSED.items() for reply in [ask(filled(way.any, text))]
        }
    assert {name: ends for name, ends in told.items() if ends[0] != 400 or ends[1] not in NO_JSON} == {}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.path)
def test_j17_json_is_never_said_to_be_none(server: Server, way: Way) -> None:
    texts = NUMBERS | STRINGS | VALUES
    with asking(server, way.path) as ask:
        replies = [(name, ask(body)) for name, text in texts.items() for body in (text, filled(way.any, text))]
    assert [
        (name, reply.body) for name, reply in replies if reply.status not in (200, 400) or reply.code in NO_JSON
    ] == []


@pytest.mark.parametrize("way", [way for way in WAYS if way.number], ids=lambda way: way.path)
def test_j17_every_number_is_taken(server: Server, way: Way) -> None:
    with asking(server, way.path) as ask:
        replies = [(name, ask(filled(way.number, text))) for name, text in NUMBERS.items()]
    assert [(name, reply.body) for name, reply in replies if reply.status != 200] == []


@pytest.mark.parametrize("way", [way for way in WAYS if way.string], ids=lambda way: way.path)
def test_j17_every_string_is_taken_and_comes_back(server: Server, way: Way) -> None:
    with asking(server, way.path) as ask:
        replies = [(text, ask(filled(way.string, text))) for text in STRINGS.values()]
    for text, reply in replies:
        assert reply.status == 200, (text, reply.body)
        assert json.dumps(json.loads(text)) in json.dumps(reply.json), (text, reply.body)


@pytest.mark.parametrize("way", [way for way in WAYS if way.number], ids=lambda way: way.path)
def test_j17_a_message_is_the_same_however_it_is_written(server: Server, way: Way) -> None:
    right = filled(way.number, b"0.5")
    with asking(server, way.path) as ask:
        replies = [(name, ask(write(right))) for name, write in WRITINGS.items()]
    assert [(name, reply.body) for name, reply in replies if reply.status != 200] == []
