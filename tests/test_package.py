"""What ``import forwardpass`` gives, and that it costs nothing to import."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests import fixtures_onnx

import forwardpass
from forwardpass import Batch, Golden, Input, Misconfigured, Pipeline, use
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.definition import parse


def pipeline(model: Path) -> Pipeline:
    return Pipeline(
        inputs=[Input("x", "tensor", datatype="FP32", shape=(4,))],
        steps=[use.model(model), use.l2_norm(input="y")],
        batch=Batch(rows_max=8),
        golden=[Golden({"x": [3.0, 4.0, 0.0, 0.0]}, {"y": [0.6, 0.8, 0.0, 0.0]})],
    )


def test_a_pipeline_built_in_python_becomes_the_same_object_as_its_folder(tmp_path: Path) -> None:
    built = pipeline(fixtures_onnx.identity(tmp_path / "model.onnx"))
    folder = built.save(tmp_path / "unit" / "1")
    text = (folder / "pipeline.toml").read_text()
    assert parse(text, file="pipeline.toml", folder=folder, kinds=kinds()) == built.definition


def test_a_pipeline_built_in_python_is_checked_like_a_folder(tmp_path: Path) -> None:
    model = fixtures_onnx.identity(tmp_path / "model.onnx")
    with pytest.raises(Misconfigured) as refused:
        Pipeline([use.model(model)], outputs=["y", "y"], batch=Batch(rows_max=0))
    assert "outputs[1]" in str(refused.value)
    assert "batch.rows_max" in str(refused.value)


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = "import sys, forwardpass; print([n for n in ('numpy', 'onnxruntime', 'msgspec') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(getattr(forwardpass, name) is not None for name in forwardpass.__all__)
    with pytest.raises(AttributeError, match="no attribute 'pipelines'"):
        _ = forwardpass.pipelines
