"""Engines and workers that a version leaves open, in a real server: found once, then the same for all and for ever."""

from pathlib import Path
from typing import Any

import pytest
from tests import fixtures_onnx as models
from tests.serving import Server, serving

pytest.importorskip("openvino", reason="pip install 'forwardpass[openvino]'")

DEFINITION = """
[[steps]]
use = "model"
engine = "{engine}"
file = "m.onnx"
{options}
[workers]
count = {workers}
"""


def write(folder: Path, *, engine: str = "onnxruntime", options: str = "", workers: int = 1) -> Path:
    models.network(folder / "m.onnx")
    (folder / "pipeline.toml").write_text(DEFINITION.format(engine=engine, options=options, workers=workers))
    return folder


def answer(server: Server) -> Any:
    reply = server.infer("p", "x", "FP32", [1, 30], [0.25] * 30)
    assert reply.status == 200, reply.body
    return reply.json["outputs"][0]["data"]


def test_openvino_answers_as_onnxruntime_does_from_inside_the_box(tmp_path: Path) -> None:
    with serving(write(tmp_path / "a" / "p"), data=tmp_path / "data") as server:
        expected = answer(server)
    with serving(
        write(tmp_path / "b" / "p", engine="openvino"), data=tmp_path / "data", settings={"run.threads": 1}
    ) as server:
        assert answer(server) == pytest.approx(expected, abs=1e-6)
        assert server.version("p")["models"] == [{"engine": "openvino", "threads": 1, "precision": "fp32"}]


def test_a_choice_is_every_workers_and_holds_at_the_next_start(tmp_path: Path) -> None:
    source = write(tmp_path / "p", engine="auto", options="tolerance = { absolute = 0.001 }", workers=2)
    found = []
    for _ in range(2):
        with serving(source, data=tmp_path / "data", settings={"run.threads": 2}) as server:
            found.append((server.version("p")["models"], [answer(server) for _ in range(8)]))
    assert found[0] == found[1]
    assert found[0][0][0]["auto"][0].startswith("chosen: ")


def test_a_version_that_leaves_it_open_has_as_many_workers_at_every_start(tmp_path: Path) -> None:
    source = write(tmp_path / "p", workers=0)
    counts = []
    for _ in range(2):
        with serving(source, data=tmp_path / "data", settings={"run.threads": 2}) as server:
            answer(server)
            counts.append(len(server.version("p")["workers"]))
    assert counts[0] == counts[1] in (1, 2)
