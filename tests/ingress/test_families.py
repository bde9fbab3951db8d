"""An error has the shape of the clients who ask at its path, whoever found it: the route, the table or the framing."""

import json
from collections.abc import Iterator

import pytest
from tests.ingress.http_wire import Served, raw, serving

from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Table

TABLE = Table(routes_of("data"))
SHAPES = {
    "v2": {"error", "code", "request_id"}, "openai": {"error"}, "cohere": {"message", "id", "error"},
    "tei": {"error", "error_type", "code"}, "mlflow": {"error_code", "message", "code"}, "predict": {"error"},
}  # fmt: skip
AT = [
    ("/v2/models/a/infer", "v2"), ("/v1/embeddings", "openai"), ("/v1/rerank", "cohere"), ("/embed", "tei"),
    ("/rerank", "tei"), ("/predict", "tei"), ("/invocations", "mlflow"), ("/predict/a", "predict"),
    ("/v1/models/a:predict", "v2"), ("/nowhere", "v2"), ("/v1/nowhere", "openai"), ("/predict/a/1/b", "predict"),
]  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def shape(served: Served, start: str, *headers: str, body: bytes = b"") -> tuple[int, set[str]]:
    lines = "".join(f"{line}\r\n" for line in headers)
    reply = raw(served, f"{start} HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode() + body)
    return reply.statuses[0], set(json.loads(reply.body))


@pytest.mark.parametrize(("path", "family"), AT)
def test_what_framing_refuses_has_the_shape_of_its_path(served: Served, path: str, family: str) -> None:
    wanted = SHAPES[family]
    assert shape(served, f"POST {path}?x", "Content-Length: 99999999") == (413, wanted)
    assert shape(served, f"POST {path}", "Transfer-Encoding: chunked", body=b"what\r\n") == (400, wanted)
    assert shape(served, f"POST {path}", "Content-Encoding: br") == (415, wanted)
    assert shape(served, f"POST {path}?{'x' * 9000}") == (414, wanted)


def test_a_first_line_that_says_no_path_gets_the_shape_of_v2(served: Served) -> None:
    assert shape(served, "POST v1/embeddings") == (400, SHAPES["v2"])
    assert shape(served, "POST /v1%2Fembeddings") == (400, SHAPES["v2"])


@pytest.mark.parametrize("method", ["TRACE", "BREW"])
def test_a_method_that_is_not_known_has_the_shape_of_its_path(served: Served, method: str) -> None:
    assert shape(served, f"{method} /embed")[1] == SHAPES["tei"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embed", "/invocations", "/v1/rerank"])
def test_another_method_than_the_path_takes_changes_nothing(path: str) -> None:
    assert TABLE.family(b"PUT", path) == TABLE.family(b"POST", path)


def test_of_several_at_one_path_the_method_s_own_counts() -> None:
    assert (TABLE.family(b"GET", "/v1/models/a:b"), TABLE.family(b"POST", "/v1/models/a:predict")) == ("openai", "v2")
    assert TABLE.family(b"HEAD", "/v1/models/a") == "openai"
