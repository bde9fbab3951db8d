from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from forwardpass.execution.model_step import ModelStep
from forwardpass.steps.catalogue import kinds
from forwardpass.steps.protocol import StepKind


@pytest.fixture(scope="session")
def step_kinds() -> dict[str, StepKind]:
    """Every kind of step, as the server itself has them."""
    return {**kinds(), "model": ModelStep()}


@pytest.fixture(scope="session")
def onnx_bytes() -> bytes:
    """A model that adds 1 to rows of two numbers."""
    one = helper.make_tensor("one", TensorProto.FLOAT, [2], [1.0, 1.0])
    row: list[str | int | None] = ["rows", 2]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "one"], ["y"])],
        "add",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, row)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, row)],
        [one],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


@pytest.fixture
def model_folder(tmp_path: Path, onnx_bytes: bytes) -> Path:
    """A folder with a model, labels and nothing else."""
    folder = tmp_path / "adder"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(onnx_bytes)
    (folder / "labels.txt").write_text("no\nyes\n")
    return folder
