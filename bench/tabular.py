"""The small model of the overhead figures: a network of 30 → 64 → 32 → 1, fixed weights."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

LAYERS = (30, 64, 32, 1)


def write_tabular(path: Path) -> None:
    random = np.random.default_rng(0)
    nodes, weights, flowing = [], [], "x"
    for index, (width, following) in enumerate(pairwise(LAYERS)):
        last = index == len(LAYERS) - 2
        scale = np.sqrt(2 / width)
        weights.append(
            numpy_helper.from_array((random.standard_normal((width, following)) * scale).astype("f4"), f"w{index}")
        )
        weights.append(numpy_helper.from_array((random.standard_normal(following) * 0.1).astype("f4"), f"b{index}"))
        nodes.append(helper.make_node("Gemm", [flowing, f"w{index}", f"b{index}"], [f"sum{index}"]))
        flowing = "y" if last else f"out{index}"
        nodes.append(helper.make_node("Sigmoid" if last else "Relu", [f"sum{index}"], [flowing]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", LAYERS[0]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", LAYERS[-1]])
    graph = helper.make_graph(nodes, "tabular", [x], [y], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
