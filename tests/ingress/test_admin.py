"""The admin plane in process: every route of the table, and what a browser on the same machine must not be able to do."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.ingress.admin import AdminPlane
from forwardpass.ingress.route_table import ROUTES
from forwardpass.observe.metrics import Metrics, Samples
from forwardpass.observe.receipts import Receipts


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
def client(operator: Operator) -> TestClient:
    plane = AdminPlane(operator, Receipts(), Metrics())
    return TestClient(plane.application(), base_url="http://127.0.0.1:8002")


def test_every_route_of_the_table_is_served_and_no_other(client: TestClient) -> None:
    for route in ROUTES:
        path = route.pattern.format(id="x", pipeline="p", version="1")
        status = client.request(route.method.decode(), path).status_code
        if route.plane == "admin":
            assert status == 200 or (route.endpoint == "receipt" and status == 404), path
        else:
            assert status in (404, 405), path


def test_a_wrong_method_is_told_the_right_one(client: TestClient) -> None:
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
def test_a_failure_is_a_problem_document(
    client: TestClient, operator: Operator, trouble: Exception, status: int
) -> None:
    operator.trouble = trouble
    answer = client.post("/pipelines/p/versions/1/load")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == str(trouble)


def test_loads_and_unloads_name_a_pipeline_and_a_number(client: TestClient, operator: Operator) -> None:
    client.post("/pipelines/p/versions/3/load")
    client.post("/pipelines/p/versions/3/unload")
    assert operator.told == [("load", "p", 3), ("unload", "p", 3)]
    assert client.post("/pipelines/p/versions/latest/load").status_code == 404


def test_why_the_server_is_not_ready_is_said(client: TestClient, operator: Operator) -> None:
    operator.why = "pipelines are being loaded"
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["detail"]) == (503, "pipelines are being loaded")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_a_page_of_another_site_cannot_unload_a_model(
    client: TestClient, operator: Operator, headers: dict[str, str]
) -> None:
    assert client.post("/pipelines/p/versions/1/unload", headers=headers).status_code == 403
    assert operator.told == []


def test_a_name_that_was_rebound_to_this_machine_is_refused(client: TestClient) -> None:
    assert client.get("/status", headers={"Host": "evil.example"}).status_code == 400
