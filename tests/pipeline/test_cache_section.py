"""The section [cache]: what it may hold, and which pipelines may have it."""

from pathlib import Path

import pytest
from onnx import TensorProto, helper, save
from tests import fixtures_onnx

from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Cache, Pipeline
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.definition import parse, to_toml

MODEL = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "m.onnx"\n'


def parsed(folder: Path, text: str) -> Pipeline:
    if not (folder / "m.onnx").exists():
        fixtures_onnx.identity(folder / "m.onnx")
    return parse(text, file="pipeline.toml", folder=folder, kinds=kinds())


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(Misconfigured) as refused:
        parsed(folder, text)
    return str(refused.value)


@pytest.mark.parametrize(
    ("section", "cache"),
    [
        ("", None),
        ("[cache]\n", Cache()),
        ("[cache]\nenabled = false\n", Cache(enabled=False)),
        ("[cache]\nbytes_max = 65536\nttl_s = 0.5\nshared = true\n", Cache(bytes_max=65536, ttl_s=0.5, shared=True)),
        ("[cache]\napproximate = true\n", Cache(approximate=True)),
    ],
)
def test_a_section_is_read_and_written(tmp_path: Path, section: str, cache: Cache | None) -> None:
    pipeline = parsed(tmp_path, MODEL + section)
    assert pipeline.cache == cache
    assert parsed(tmp_path, to_toml(pipeline)) == pipeline


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("[cache]\nttl = 5\n", 'did you mean "ttl_s"'),
        ("[cache]\nttl_s = 0\n", "cache.ttl_s"),
        ("[cache]\nbytes_max = 65535\n", "cache.bytes_max"),
        ("[cache]\nshared = 1\n", "cache.shared"),
        ("[cache]\nenabled = false\nttl_s = 5\n", "has no effect while cache.enabled is false"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(tmp_path: Path, section: str, found: str) -> None:
    assert found in refusal(tmp_path, MODEL + section)


def test_a_pipeline_with_sequences_keeps_no_answers(tmp_path: Path) -> None:
    fixtures_onnx.accumulator(tmp_path / "m.onnx")
    text = MODEL + 'state = { total = "after" }\nconstants = { scale = 1 }\n[sequence]\n[cache]\n'
    assert "an answer depends on those before it" in refusal(tmp_path, text)


def test_a_model_that_draws_random_numbers_keeps_no_answers(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["drawn"]), helper.make_node("Add", ["x", "drawn"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value], [made])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    assert "draws random numbers (RandomNormalLike)" in refusal(tmp_path, MODEL + "[cache]\n")
    assert parsed(tmp_path, MODEL).cache is None
