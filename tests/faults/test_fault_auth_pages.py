"""What a web page can have of a server that lets everybody on its machine ask (the catalogue's A7)."""

from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from tests import fixtures_onnx
from tests.serving import Server, serving


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that lets everybody on this machine ask."""
    root = tmp_path_factory.mktemp("unlocked")
    (root / "identity" / "1").mkdir(parents=True)
    fixtures_onnx.identity(root / "identity" / "1" / "model.onnx")
    with serving(root, data=tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.mark.parametrize("admin", [False, True])
@pytest.mark.parametrize("path", ["/", "/v2", "/v2/models", "/metrics", "/docs", "/openapi.json", "/status"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "evillocalhost"])
def test_a7_a_page_at_a_name_that_was_rebound_to_this_machine_reads_nothing(
    unlocked: Server, path: str, admin: bool, host: str
) -> None:
    connection = HTTPConnection("127.0.0.1", unlocked.admin_port if admin else unlocked.port, timeout=10)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("x-error-code")) == (421, "misdirected")
    connection.close()


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_a7_a_page_of_another_site_is_refused(unlocked: Server, method: str) -> None:
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{unlocked.admin_port}"):
        assert unlocked.call(method, "/v2/models/identity", headers={"Origin": origin}).status == 403


def test_a7_the_page_is_in_no_frame(unlocked: Server) -> None:
    assert "frame-ancestors 'none'" in unlocked.call("GET", "/docs").headers["content-security-policy"]
