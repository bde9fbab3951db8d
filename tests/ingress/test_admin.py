"""The admin plane in process: every route of the table, and what a browser on the same machine must not be able to do."""

import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from httpx import Client
from tests.ingress.http_wire import serving

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.front import admin_edge
from forwardpass.ingress.admin import CONNECTIONS_MAX, admin_limits, admin_plane
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer, HttpLimits
from forwardpass.ingress.route_table import ROUTES
from forwardpass.ingress.routes import Route
from forwardpass.observe.metrics import Metrics, Samples
from forwardpass.observe.receipts import Receipts
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.route import Routes


class Operator:
    """Operations that remember what they were told; ``trouble`` is raised by load and unload."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int]] = []
        self.trouble: Exception | None = None
        self.why = ""

    def why_not_ready(self) -> str:
        return self.why

    def status(self) -> dict[str, Any]:
        return {"versions": []}

    def config(self) -> dict[str, Any]:
        return {"data": {"port": 8000}}

    def samples(self) -> Samples:
        return {}

    async def load(self, pipeline: str, number: int) -> None:
        self._do("load", pipeline, number)

    async def unload(self, pipeline: str, number: int) -> None:
        self._do("unload", pipeline, number)

    def _do(self, act: str, pipeline: str, number: int) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.told.append((act, pipeline, number))


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def books() -> Inference:
    return Inference(Handle(Routes(), 30.0, monotonic_s, receipts=Receipts(), metrics=Metrics()), monotonic_s)


@pytest.fixture
def client(operator: Operator, books: Inference) -> Iterator[Client]:
    others = ("v2", "cache")  # are what the data plane may have too, and what has an endpoint of its own
    control = {
        route.endpoint: _control
        for route in ROUTES
        if route.plane == "admin" and (route.family in others or route.endpoint.startswith(others))
    }
    limits = admin_limits(HttpLimits(), local=True)
    plane = admin_plane(operator, Receipts(), Metrics(), control, books, admin_edge(limits))
    with (
        serving(plane.respond, limits, family_of=plane.family_of) as served,
        Client(base_url=f"http://127.0.0.1:{served.server.listeners.port}") as client,
    ):
        yield client


async def _control(call: Call) -> HttpAnswer:
    """What the data plane has too; its errors have V2's form."""
    if call.match.pipeline == "missing":
        raise Refused(Code.PIPELINE_NOT_FOUND, "no such pipeline")
    return HttpAnswer(200, call.http.body or b"[]")


def test_every_route_of_the_table_is_served_and_no_other(client: Client) -> None:
    served = {(route.method, route.pattern) for route in ROUTES if route.plane == "admin"}
    for route in ROUTES:
        path = path_of(route)
        status = client.request(route.method.decode(), path).status_code
        if (route.method, route.pattern) in served:
            assert status == 200 or (route.endpoint == "receipt" and status == 404), path
        else:
            assert status in (404, 405), path


def test_a_wrong_method_is_told_the_right_one(client: Client) -> None:
    answer = client.delete("/status")
    assert (answer.status_code, answer.headers["x-error-code"]) == (405, "method_not_allowed")
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("trouble", "status"),
    [
        (Refused(Code.VERSION_NOT_FOUND, "no such version"), 404),
        (Refused(Code.CONFLICT, "loaded already"), 409),
        (Misconfigured(Code.GOLDEN_MISMATCH, "golden[0]"), 422),
        (Failed(Code.NOT_READY, "loading", retry_after_s=2.0), 503),
    ],
)
def test_a_failure_is_a_problem_document(client: Client, operator: Operator, trouble: Exception, status: int) -> None:
    operator.trouble = trouble
    answer = client.post("/pipelines/p/versions/1/load")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == str(trouble)


def test_loads_and_unloads_name_a_pipeline_and_a_number(client: Client, operator: Operator) -> None:
    client.post("/pipelines/p/versions/3/load")
    client.post("/pipelines/p/versions/3/unload")
    assert operator.told == [("load", "p", 3), ("unload", "p", 3)]
    assert client.post("/pipelines/p/versions/latest/load").status_code == 404


def test_why_the_server_is_not_ready_is_said(client: Client, operator: Operator) -> None:
    operator.why = "pipelines are being loaded"
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["detail"]) == (503, "pipelines are being loaded")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_a_page_of_another_site_cannot_unload_a_model(
    client: Client, operator: Operator, headers: dict[str, str]
) -> None:
    assert client.post("/pipelines/p/versions/1/unload", headers=headers).status_code == 403
    assert operator.told == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421), ("127.0.0.1.evil.example:8002", 421), ("127.0.0.2", 421), ("[::2]:8002", 421),
        ("127.0.0.1:8002", 200), ("LOCALHOST", 200), ("[::1]:8002", 200),
    ],
)  # fmt: skip
def test_a_name_that_was_rebound_to_this_machine_is_refused(client: Client, host: str, status: int) -> None:
    assert client.get("/status", headers={"Host": host}).status_code == status


ADMIN = [route for route in ROUTES if route.plane == "admin"]


@pytest.mark.parametrize("route", ADMIN, ids=lambda route: f"{route.method.decode()} {route.pattern}")
@pytest.mark.parametrize(
    ("headers", "method", "suffix", "status"),
    [
        ({}, "DELETE", "", 405), ({}, "OPTIONS", "", 405), ({}, "", "/nowhere", 404), ({}, "", "/", 404),
        ({"Host": "evil.example"}, "", "", 421), ({"Origin": "http://evil.example"}, "", "", 403),
        ({"Origin": "http://evil.example"}, "OPTIONS", "/nowhere", 403),
    ],
)  # fmt: skip
def test_every_refusal_of_every_route_is_a_problem_with_the_requests_id(
    client: Client, route: Route, headers: dict[str, str], method: str, suffix: str, status: int
) -> None:
    answer = client.request(method or route.method.decode(), path_of(route) + suffix, headers=headers)
    assert_problem(answer, status)
    if status == 405:
        assert route.method.decode() in answer.headers["allow"].split(", ")


def test_a_defect_of_ours_is_a_problem_that_tells_nothing(
    operator: Operator, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    operator.trouble = ValueError("secret")
    answer = client.post("/pipelines/p/versions/1/load")
    assert_problem(answer, 500)
    assert "secret" not in answer.text and "secret" in caplog.text


def test_every_answer_has_an_id(client: Client) -> None:
    ids = [client.get(path).headers["x-request-id"] for path in ("/live", "/live", "/metrics", "/status")]
    assert len(set(ids)) == 4 and {len(id) for id in ids} == {32}


def test_a_body_that_has_no_meaning_is_refused(client: Client, operator: Operator) -> None:
    assert_problem(client.post("/pipelines/p/versions/1/load", content=b"{}"), 400)
    assert operator.told == []


@pytest.mark.parametrize("route", ADMIN, ids=lambda route: f"{route.method.decode()} {route.pattern}")
def test_only_health_may_be_asked_with_a_query(client: Client, route: Route) -> None:
    answer = client.request(route.method.decode(), path_of(route) + "?verbose=1")
    assert answer.status_code == (200 if route.scope == "open" else 400)
    assert route.scope == "open" or answer.headers["x-error-code"] == "unknown_field"


def test_a_client_that_hangs_up_in_its_body_is_no_defect(
    client: Client, books: Inference, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), 8) as hasty:
        hasty.sendall(b"POST /v2/repository/index HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{}")
        hasty.shutdown(socket.SHUT_WR)
        while hasty.recv(4096):
            pass
    assert caplog.records == [] and books.outside == {}


def path_of(route: Route) -> str:
    """A path that matches: whatever is asked for is called p, or 1."""
    return re.sub(r"{(\w+)}", lambda name: "1" if name[1] == "version" else "p", route.pattern)


def assert_problem(answer: Any, status: int) -> None:
    """RFC 9457, 3.1, and our headers beside it."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    body = answer.json()
    assert body.keys() == {"type", "title", "status", "detail", "instance"}
    assert (body["status"], body["type"]) == (status, f"urn:forwardpass:{answer.headers['x-error-code']}")
    assert body["instance"].endswith(answer.headers["x-request-id"])


def test_clients_of_v2_that_ask_the_admin_plane_get_answers_and_errors_of_v2(client: Client) -> None:
    answer = client.post("/v2/repository/models/p/load", content=b"{}")
    assert (answer.status_code, answer.json(), len(answer.headers["x-request-id"])) == (200, {}, 32)
    refused = client.post("/v2/repository/models/missing/load")
    assert (refused.status_code, refused.json()["error"]) == (404, "no such pipeline")


def test_a_body_that_an_admin_request_does_not_need_is_refused_before_all_of_it_is_read(client: Client) -> None:
    whole = client.post("/v2/repository/index", content=b" " * 65_536)
    assert whole.status_code == 200
    assert_problem(client.post("/v2/repository/index", content=b" " * 65_537), 413)


def test_what_the_operator_asks_is_counted_here_and_by_how_it_ended(client: Client, books: Inference) -> None:
    for path in ("/live", "/metrics", "/nowhere", "/receipts/none"):
        client.get(path)
    client.get("/status", headers={"Origin": "http://evil.example"})
    assert books.outside == {"ok": 2, "route_not_found": 1, "receipt_not_found": 1, "forbidden": 1}


def test_get_is_answered_to_head_without_its_body(client: Client) -> None:
    answer = client.head("/metrics")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


def test_the_connections_of_the_admin_plane_have_a_limit_of_their_own() -> None:
    assert admin_limits(HttpLimits(connections_max=1), local=True).connections_max == CONNECTIONS_MAX


def test_no_page_of_this_machine_is_told_what_it_may_send(client: Client) -> None:
    headers = {"Origin": str(client.base_url), "Access-Control-Request-Method": "POST"}
    answer = client.options("/pipelines/p/versions/1/load", headers=headers)
    assert answer.status_code == 405 and "access-control-allow-origin" not in answer.headers


def test_on_a_network_one_address_has_a_quarter_of_the_admin_plane_and_idle_connections_end() -> None:
    limits = admin_limits(HttpLimits(idle_time_s=60.0), local=False)
    assert (limits.connections_max, limits.connections_per_address_max, limits.idle_time_s) == (384, 96, 10.0)
    assert admin_limits(HttpLimits(), local=True).connections_per_address_max == 384  # all have one address there


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-origin", 200), ("none", 200)])
def test_nothing_is_fetched_for_a_page_of_another_site(client: Client, site: str, status: int) -> None:
    """Of an image or a script a browser sends no origin."""
    answer = client.get("/status", headers={"Sec-Fetch-Site": site})
    assert answer.status_code == status and answer.headers["x-content-type-options"] == "nosniff"
