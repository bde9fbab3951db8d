"""The bodies of model repository requests, and what is asked of the repository."""

import asyncio
import json
from typing import Any

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.endpoints.repository import ModelControl
from forwardpass.ingress.message import HttpRequest
from forwardpass.ingress.route_table import ROUTES
from forwardpass.ingress.routes import Match

ENTRIES = [
    {"name": "a", "version": "1", "state": "READY", "reason": ""},
    {"name": "b", "version": "2", "state": "UNAVAILABLE", "reason": "unloaded"},
]


class Shelf:
    """A repository that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    async def index(self) -> list[dict[str, str]]:
        return ENTRIES

    async def load(self, pipeline: str) -> None:
        self.told.append(("load", pipeline))

    async def unload(self, pipeline: str) -> None:
        self.told.append(("unload", pipeline))


def ask(endpoint: str, body: bytes, shelf: Shelf | None = None) -> Any:
    route = next(route for route in ROUTES if route.endpoint == endpoint)
    http = HttpRequest(b"POST", "/", "", {}, body, 0.0)
    call = Call(http, Match(route, {"pipeline": "m"}), "id", Timeline())

    async def run() -> Any:
        answer = await ModelControl(shelf or Shelf()).endpoints()[endpoint](call)
        assert isinstance(answer.body, bytes)
        return json.loads(answer.body)

    return asyncio.run(run())


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": false}'])
def test_the_index_is_a_list_of_all_versions(body: bytes) -> None:
    assert ask("repository_index", body) == ENTRIES


def test_the_index_of_what_is_ready_has_nothing_else() -> None:
    assert ask("repository_index", b'{"ready": true}') == ENTRIES[:1]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"parameters": {}}'])
def test_a_load_needs_no_body(body: bytes) -> None:
    shelf = Shelf()
    assert ask("repository_load", body, shelf) == {"name": "m", "load": True}
    assert shelf.told == [("load", "m")]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"parameters": {"unload_dependents": true}}'])
def test_an_unload_may_say_what_it_thinks_of_dependents(body: bytes) -> None:
    shelf = Shelf()
    assert ask("repository_unload", body, shelf) == {"name": "m", "unload": True}
    assert shelf.told == [("unload", "m")]


@pytest.mark.parametrize("parameter", [b'"config": "{}"', b'"file:1/model.onnx": "AAAA"'])
def test_a_model_that_a_client_sends_is_refused_and_told_why(parameter: bytes) -> None:
    with pytest.raises(Refused, match="taken in from the repository"):
        ask("repository_load", b'{"parameters": {%s}}' % parameter)


def test_a_name_that_a_client_made_up_is_told_escaped_and_cut() -> None:
    body = json.dumps({"parameters": {"\x1b[31m" + "é" * 200: 1}}).encode()
    with pytest.raises(Refused, match=r"^/parameters/\\x1b\[31m") as refused:
        ask("repository_load", body)
    assert refused.value.text.isascii()
    assert len(refused.value.text) < 160


@pytest.mark.parametrize(
    ("endpoint", "body", "code"),
    [
        ("repository_index", b'{"redy": true}', Code.UNKNOWN_FIELD), ("repository_index", b'{"ready": 1}', Code.WRONG_TYPE),
        ("repository_index", b"[]", Code.WRONG_TYPE), ("repository_index", b"{", Code.JSON_INVALID),
        ("repository_load", b'{"parameters": []}', Code.WRONG_TYPE), ("repository_load", b'{"config": "{}"}', Code.UNKNOWN_FIELD),
        ("repository_load", b'{"parameters": {"x": 1}}', Code.UNKNOWN_FIELD),
        ("repository_unload", b'{"parameters": {"unload_dependents": 1}}', Code.WRONG_TYPE),
        ("repository_unload", b'{"parameters": {"unload_dependent": true}}', Code.UNKNOWN_FIELD),
        ("other_repository", b"{}", Code.NOT_IMPLEMENTED),
    ],
)  # fmt: skip
def test_what_means_nothing_here_is_refused(endpoint: str, body: bytes, code: Code) -> None:
    shelf = Shelf()
    with pytest.raises(Refused) as refused:
        ask(endpoint, body, shelf)
    assert (refused.value.code, shelf.told) == (code, [])
