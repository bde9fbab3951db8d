"""The OpenAPI document as a server gives it, and the page beside it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.pipelines import OWN_MODEL, OWN_STEP, write_own
from tests.json_schema import problems
from tests.serving import Server, forwardpass, serving

PICTURES = """
outputs = ["encoded"]
description = "Gives a picture back as a PNG."
[[inputs]]
name = "picture"
type = "image"
[[steps]]
use = "decode_image"
[[steps]]
use = "encode_image"
"""
SEQUENCE = "\n[sequence]\n"
ENDED = {"X-Sequence-Id": "none"}


def write_pipelines(root: Path) -> None:
    """Two versions of numbers, of which the first is not loaded at start; texts; pictures."""
    for number in ("1", "2"):
        write_own(root / "numbers" / number, OWN_MODEL)
    write_own(root / "texts" / "1", OWN_STEP)
    folder = root / "pictures" / "1"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(PICTURES)


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("documented")
    write_pipelines(root)
    forwardpass("trust", root, data=data)
    with serving(root, data=data) as server:
        yield server


def document(server: Server) -> Any:
    return server.get("/openapi.json").json


def operations(whole: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in whole["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


def checked(whole: Any, operation: Any, status: int, body: Any) -> list[str]:
    told = operation["responses"][str(status)]
    if "$ref" in told:
        told = whole["components"]["responses"][told["$ref"].rpartition("/")[2]]
    return list(problems(whole, told["content"]["application/json"]["schema"], body))


def test_every_example_is_answered_as_documented(documented: Server) -> None:
    whole = document(documented)
    sent = 0
    for path, method, operation in operations(whole):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for example in content.get("examples", {}).values():
            assert list(problems(whole, content["schema"], example["value"])) == []
            reply = documented.call(
                method, path, json.dumps(example["value"]).encode(), {"Content-Type": "application/json"}
            )
            assert reply.status == (404 if path == "/invocations" else 200), (path, reply.body)
            if reply.headers["content-type"] == "application/json":
                assert checked(whole, operation, reply.status, reply.json) == []
            sent += 1
    assert sent > 20


def test_everything_that_can_be_read_is_read_as_documented(documented: Server) -> None:
    whole = document(documented)
    for path, method, operation in operations(whole):
        names = {"pipeline": "numbers", "version": "2", "model": "numbers:2", "asset": "try.css"}
        reply = documented.call(method, path.format(**names)) if method == "GET" else None
        if reply is not None:
            content = operation["responses"]["200"].get("content", {})
            assert reply.status == 200, path
            assert not content or reply.headers["content-type"] in content
            if "application/json" in content:
                assert checked(whole, operation, 200, reply.json) == [], path


def test_a_body_that_is_refused_is_refused_as_documented(documented: Server) -> None:
    whole = document(documented)
    for path, method, operation in operations(whole):
        if "requestBody" in operation:
            reply = documented.call(method, path, b'{"nothing": [', {"Content-Type": "application/json"})
            assert 400 <= reply.status < 500
            assert checked(whole, operation, reply.status, reply.json) == [], path


def test_another_method_is_refused_with_those_that_are_allowed(documented: Server) -> None:
    whole = document(documented)
    reply = documented.call("PATCH", "/predict/numbers")
    assert reply.headers["allow"] == "POST, DELETE"
    assert checked(whole, whole["paths"]["/predict/numbers"]["post"], 405, reply.json) == []


def test_the_document_follows_what_is_loaded(documented: Server) -> None:
    assert "/predict/numbers/1" not in document(documented)["paths"]
    documented.call("POST", "/pipelines/numbers/versions/1/load", admin=True)
    loaded = document(documented)["paths"]
    documented.call("POST", "/pipelines/numbers/versions/1/unload", admin=True)
    assert "/predict/numbers/1" in loaded
    assert "/predict/numbers/1" not in document(documented)["paths"]


def test_routes_that_are_off_are_in_no_document(documented: Server) -> None:
    assert "/v2/repository/index" not in document(documented)["paths"]


def test_the_page_may_load_nothing_but_its_own_files(documented: Server) -> None:
    page = documented.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert page.headers["x-content-type-options"] == "nosniff"
    for name in re.findall(r'(?:src|href)="(docs/[^"]+)"', page.body.decode()):
        assert documented.get(f"/{name}").status == 200
    assert not re.search(r"https?://|<style|style=|<script>| on\w+=", page.body.decode())


@pytest.mark.parametrize(
    "path", ["/docs/try.html", "/docs/page.py", "/docs/..%2fpage.py", "/docs/%2e%2e", "/docs/", "/docs/a/b"]
)
def test_nothing_but_the_page_s_files_is_read(documented: Server, path: str) -> None:
    assert documented.get(path).status in (400, 404)
