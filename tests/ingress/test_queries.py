"""What stands behind the ? of a path has a meaning or is refused; only health is for whoever asks, however it is asked."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.ingress.small_plane import SmallPlane, counting, headers_of
from tests.ingress.test_data_plane import post, serving

from forwardpass.ingress.dialects.table import DIALECTS
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.route_table import routes_of

INFERENCE = [route.pattern for route in routes_of("data") if route.endpoint in DIALECTS]


@pytest.mark.parametrize("pattern", INFERENCE)
def test_no_dialect_ignores_a_query(pattern: str) -> None:
    plane, _, _ = serving()
    http = post(pattern.format(pipeline="p", version=1), b"{}")
    code = headers_of(asyncio.run(plane.respond(replace(http, query="nonsense=1"))))["x-error-code"]
    assert code == "unknown_field" or (code == "pipeline_not_found" and pattern == "/")


@pytest.mark.parametrize(("path", "status"), [("/about", 400), ("/live", 200)])
def test_a_path_that_takes_no_query_says_so(path: str, status: int) -> None:
    small = SmallPlane(Edge(), counting)
    answer = small.ask(method=b"GET", path=path, query="verbose")
    assert answer.status == status
    assert status == 200 or headers_of(answer)["x-error-code"] == "unknown_field"
