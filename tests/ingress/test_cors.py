"""Pages of other origins are refused unless the settings name them, and then told what browsers need (Fetch standard)."""

import re
from pathlib import Path

import pytest
from tests.ingress.small_plane import SmallPlane, counting, headers_of

import forwardpass
from forwardpass.ingress.cors import TAKEN, Origins
from forwardpass.ingress.dialects import turns
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.idempotency import DECIDING
from forwardpass.ingress.identity import credentials

PAGE = "https://app.example"
ASKING = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}


@pytest.fixture
def closed() -> SmallPlane:
    return SmallPlane(Edge(), counting)


@pytest.fixture
def opened() -> SmallPlane:
    return SmallPlane(Edge(Origins(frozenset([PAGE.encode()]))), counting)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:8001", "http://localhost", "http://", PAGE]
)
@pytest.mark.parametrize("method", [b"POST", b"GET", b"DELETE", b"PATCH", b"OPTIONS", b"HEAD"])
def test_a_page_of_another_origin_is_refused_whatever_the_method(
    closed: SmallPlane, origin: str, method: bytes
) -> None:
    answer = closed.ask(headers={"Origin": origin}, method=method)
    assert (answer.status, headers_of(answer)["x-error-code"]) == (403, "forbidden")
    assert closed.runs == 0 and "access-control-allow-origin" not in headers_of(answer)


@pytest.mark.parametrize("origin", ["http://localhost:8000", "https://LOCALHOST:8000"])
def test_a_page_of_the_servers_own_may_ask(closed: SmallPlane, origin: str) -> None:
    assert closed.ask(headers={"Origin": origin}).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("[::1]", 200), ("localhost", 200), ("named.example", 200),
        ("NAMED.example:443", 200), ("evil.example", 403), ("evil.example:8000", 403), ("127.0.0.1.evil.example", 403),
        ("named.example.evil.example", 403), ("192.0.2.7:8000", 403), ("", 403),
    ],
)  # fmt: skip
def test_a_page_is_of_the_server_only_by_a_name_that_cannot_be_rebound(host: str, status: int) -> None:
    small = SmallPlane(Edge(Origins(hosts=frozenset([b"named.example"]))), counting)
    assert small.ask(headers={"Origin": f"http://{host}", "Host": host}).status == status
    assert small.ask(headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    ("host", "peer", "status"),
    [
        ("127.0.0.1:8000", "127.0.0.1", 200), ("[::1]:8000", "127.0.0.1", 200), ("LOCALHOST", "127.0.0.1", 200),
        ("evil.example:8000", "127.0.0.1", 421), ("localhost.evil.example", "127.0.0.1", 421), ("", "127.0.0.1", 200),
        ("evil.example", "", 200), ("127.0.0.2:8000", "127.0.0.1", 200), ("[fe80::1]:8000", "127.0.0.1", 200),
        ("localhost.:8000", "127.0.0.1", 200), ("app.localhost:8000", "127.0.0.1", 200),
        ("evillocalhost", "127.0.0.1", 421), ("127.0.0.1.evil.example", "127.0.0.1", 421),
    ],
)  # fmt: skip
def test_where_anybody_may_ask_a_name_that_was_rebound_to_this_machine_is_not_served(
    host: str, peer: str, status: int
) -> None:
    """Also a GET, which carries no origin; but for Unix sockets, which no page can reach, and HTTP/1.0 without a Host."""
    small = SmallPlane(Edge(Origins(own_only=True)), counting)
    for method, path in ((b"POST", "/infer/p"), (b"GET", "/about"), (b"GET", "/live"), (b"GET", "/nowhere")):
        expected = 404 if path == "/nowhere" and status == 200 else status
        assert small.ask(headers={"Host": host}, method=method, path=path, peer=peer).status == expected


def test_every_header_that_is_read_may_be_sent_by_a_page() -> None:
    ingress = Path(forwardpass.__file__).parent / "ingress"
    text = "".join(source.read_text() for source in [*ingress.glob("*.py"), *ingress.glob("dialects/*.py")])
    read = {name for found in READ.findall(text) for name in found if name}
    read |= {name.decode() for name in (*turns.HEADERS, *DECIDING, *credentials.HEADERS)}
    assert {"x-amzn-sagemaker-target-model", "x-request-priority", "inference-header-content-length"} <= read
    assert read - BY_BROWSERS - TAKEN == set()


READ = re.compile(
    r"""(?:headers\.get\(|headers\[|_header\(http, |^[A-Z_]+ = )b"([a-z-]+)"|b"([a-z-]+)" in [\w.]*headers""",
    re.MULTILINE,
)
BY_BROWSERS = {
    "accept-encoding", "access-control-request-headers", "access-control-request-method", "connection",
    "content-length", "expect", "host", "origin", "sec-fetch-site", "transfer-encoding",
}  # fmt: skip
"""Those that a page has no say in."""


def test_without_origins_in_the_settings_options_is_a_method_like_others(closed: SmallPlane) -> None:
    answer = closed.ask(method=b"OPTIONS")
    assert (answer.status, headers_of(answer)["allow"]) == (405, "POST")
    assert closed.ask(headers={"Origin": "http://localhost:8000"}, method=b"OPTIONS").status == 405


def test_a_preflight_says_what_a_path_takes(opened: SmallPlane) -> None:
    asked = "content-type,authorization, X-Stainless-Os,x-evil,x-stainless-,x-stainless-a:b"
    answer = opened.ask(headers=ASKING | {"Access-Control-Request-Headers": asked}, method=b"OPTIONS")
    said = headers_of(answer)
    assert (answer.status, answer.body, opened.runs) == (204, b"", 0)
    assert said["access-control-allow-origin"] == PAGE
    assert said["access-control-allow-methods"] == "POST"
    assert said["access-control-allow-headers"] == "content-type, authorization, x-stainless-os"
    assert int(said["access-control-max-age"]) > 0 and "Origin" in said["vary"]


def test_a_preflight_for_an_unknown_path_is_told_so(opened: SmallPlane) -> None:
    answer = opened.ask(headers=ASKING, method=b"OPTIONS", path="/nowhere")
    assert (answer.status, headers_of(answer)["access-control-allow-origin"]) == (404, PAGE)


def test_options_without_a_question_is_a_method_like_others(opened: SmallPlane) -> None:
    assert opened.ask(headers={"Origin": PAGE}, method=b"OPTIONS").status == 405


@pytest.mark.parametrize(("path", "status"), [("/infer/p", 200), ("/nowhere", 404)])
def test_a_page_may_read_answers_and_errors(opened: SmallPlane, path: str, status: int) -> None:
    answer = opened.ask(headers={"Origin": PAGE}, path=path)
    said = headers_of(answer)
    assert (answer.status, said["access-control-allow-origin"], said["vary"]) == (status, PAGE, "Origin")
    assert {"X-Request-Id", "Retry-After", "X-Error-Code"} <= set(said["access-control-expose-headers"].split(", "))
    assert "access-control-allow-credentials" not in said


def test_answers_to_others_are_kept_apart_by_caches(opened: SmallPlane) -> None:
    assert headers_of(opened.ask())["vary"] == "Origin"
    other = headers_of(opened.ask(headers={"Origin": "https://evil.example"}))
    assert (other["vary"], other["x-error-code"]) == ("Origin", "forbidden")
