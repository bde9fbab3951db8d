"""``forwardpass cache``: what a running server keeps, shown and purged from the command line."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import fixtures_onnx
from tests.serving import Server, command, serving

DEFINITION = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n[cache]\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("cli-cache")
    folder = root / "models" / "echo" / "1"
    folder.mkdir(parents=True)
    fixtures_onnx.identity(folder / "model.onnx")
    (folder / "pipeline.toml").write_text(DEFINITION)
    with serving(root / "models", data=root / "data") as running:
        yield running


def asked(server: Server, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    url = f"http://127.0.0.1:{server.admin_port}"
    line = command("cache", *arguments, "--url", url)
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_it_shows_what_is_kept_and_takes_it_away(server: Server) -> None:
    for value in (1.0, 2.0, 1.0):
        assert server.infer("echo", "x", "FP32", [1, 4], [value] * 4).status == 200
    (version,) = json.loads(asked(server, "show").stdout)["versions"]
    assert (version["entries"], version["hits"], version["misses"]) == (2, 1, 2)
    assert asked(server, "purge", "echo").stdout == "purged: 2\n"
    assert asked(server, "purge").stdout == "purged: 0\n"


def test_a_pipeline_that_is_not_served_has_nothing_to_purge(server: Server) -> None:
    done = asked(server, "purge", "nowhere")
    assert done.returncode == 1 and "pipeline_not_found" in done.stderr
