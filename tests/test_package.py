from pathlib import Path

import pytest
from tests import fixtures_onnx

import forwardpass
from forwardpass import Batch, Golden, Input, Pipeline, Step
from forwardpass.core.errors import Misconfigured
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.definition import parse


def pipeline(file: str = "model.onnx") -> Pipeline:
    return Pipeline(
        inputs=(Input("x", "tensor", datatype="FP32", shape=(4,)),),
        steps=(Step("model", {"engine": "onnxruntime", "file": file}), Step("l2_norm", {"input": "y"})),
        batch=Batch(rows_max=8),
        golden=(Golden({"x": [3.0, 4.0, 0.0, 0.0]}, {"y": [0.6, 0.8, 0.0, 0.0]}),),
    )


def test_a_pipeline_built_in_python_becomes_the_same_object_as_its_folder(tmp_path: Path) -> None:
    model = fixtures_onnx.identity(tmp_path / "source.onnx")
    folder = tmp_path / "unit" / "1"
    forwardpass.export(pipeline(), folder, {"model.onnx": model})
    text = (folder / "pipeline.toml").read_text()
    assert parse(text, file="pipeline.toml", folder=folder, kinds=kinds()) == pipeline()


def test_a_pipeline_built_in_python_is_checked_like_a_folder(tmp_path: Path) -> None:
    model = fixtures_onnx.identity(tmp_path / "source.onnx")
    with pytest.raises(Misconfigured) as refused:
        forwardpass.export(pipeline("other.onnx"), tmp_path / "unit" / "1", {"model.onnx": model})
    assert "steps[0].file" in str(refused.value)
