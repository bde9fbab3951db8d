"""Models whose first axis is not one of rows, and rows of different length padded to share a batch."""

import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save
from tests.serving import serving

PADDED = """
[[steps]]
use = "model"
engine = "onnxruntime"
file = "model.onnx"
[batch.padding]
fields = { x = 0.0 }
buckets = [4, 8]
"""


def scaled(path: Path, shape: list[int | str]) -> None:
    """y = x + x, of any shape."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize(("shape", "declared"), [([3, 2], [3, 2]), ([], [])])
def test_a_model_with_fixed_axes_is_asked_with_its_own_shape(
    tmp_path: Path, data: Path, shape: list[int | str], declared: list[int]
) -> None:
    scaled(tmp_path / "fixed.onnx", shape)
    count = int(np.prod(declared))
    with serving(tmp_path / "fixed.onnx", data=data) as server:
        assert server.get("/v2/models/fixed").json["inputs"][0]["shape"] == declared
        answer = server.infer("fixed", "x", "FP32", declared, list(range(count)))
        assert answer.json["outputs"][0] == {
            "name": "y", "datatype": "FP32", "shape": declared, "data": [2 * n for n in range(count)],
        }  # fmt: skip
        wrong = server.infer("fixed", "x", "FP32", [5, 2], list(range(10)))
        assert (wrong.status, wrong.code) == (400, "shape_mismatch")


def test_rows_of_different_length_share_a_padded_batch_and_come_back_at_their_own_length(
    tmp_path: Path, data: Path
) -> None:
    folder = tmp_path / "padded" / "1"
    folder.mkdir(parents=True)
    scaled(folder / "model.onnx", ["N", "L"])
    (folder / "pipeline.toml").write_text(PADDED)
    with serving(folder, data=data) as server:
        lengths = [3, 4, 2, 3, 1, 4, 2, 3]

        def ask(n: int) -> None:
            values = [float(n + 1)] * lengths[n]
            for _ in range(20):
                answer = server.infer("padded", "x", "FP32", [1, lengths[n]], values)
                assert answer.json["outputs"][0]["data"] == [2 * value for value in values]

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        batches = server.batches("padded")
        assert any(batch["items"] > 1 for batch in batches)
        assert all(0.0 <= batch["padding"] <= 0.75 for batch in batches), "rows of 1 to 4 are filled up to 4"
        assert server.version("padded")["outcomes"] == {"ok": 160}
