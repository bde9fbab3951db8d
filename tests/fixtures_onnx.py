"""Tiny ONNX models, each with one trait that a test is about. Every function writes a file and returns its path."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT32, INT64, STRING = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.STRING
HALF = TensorProto.FLOAT16
Shape = Sequence[int | str | None]
Value = tuple[str, int, Shape | None]
"""Name, element type, shape of a graph input or output; a shape of None is unknown."""


def write(
    path: Path, nodes: Sequence[Any], inputs: Sequence[Value], outputs: Sequence[Value], constants: dict[str, Any]
) -> Path:
    """A model of these nodes; ``constants`` are initialisers by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def identity(path: Path, shape: Shape = ("N", 4), kind: int = FLOAT) -> Path:
    return write(path, [node("Identity", "x", "y")], [("x", kind, shape)], [("y", kind, shape)], {})


def text_identity(path: Path) -> Path:
    return identity(path, ("N",), STRING)


def add(path: Path) -> Path:
    """y = a + b, two inputs."""
    values: list[Value] = [("a", FLOAT, ("N", 3)), ("b", FLOAT, ("N", 3))]
    return write(path, [node("Add", "a b", "y")], values, [("y", FLOAT, ("N", 3))], {})


def simple(path: Path) -> Path:
    """Two in, two out: the sum and the difference of two INT32 rows of 16."""
    values: list[Value] = [("INPUT0", INT32, ("N", 16)), ("INPUT1", INT32, ("N", 16))]
    nodes = [node("Add", "INPUT0 INPUT1", "OUTPUT0"), node("Sub", "INPUT0 INPUT1", "OUTPUT1")]
    return write(path, nodes, values, [("OUTPUT0", INT32, ("N", 16)), ("OUTPUT1", INT32, ("N", 16))], {})


def row_sum(path: Path) -> Path:
    """Each row's sum; rows of any length."""
    nodes = [node("ReduceSum", "x axes", "y", keepdims=0)]
    return write(path, nodes, [("x", FLOAT, ("N", "L"))], [("y", FLOAT, ("N",))], {"axes": np.array([1])})


def mean_over_batch(path: Path, shape: Shape = ("N", 4)) -> Path:
    """Takes the mean over all rows off: a row's answer depends on its batch."""
    nodes = [node("ReduceMean", "x", "mean", axes=[0], keepdims=1), node("Sub", "x mean", "y")]
    return write(path, nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], {})


def leading_one(path: Path) -> Path:
    """Says it returns N rows and returns one, whatever N is."""
    nodes = [node("ReduceSum", "x axes", "y", keepdims=1)]
    return write(path, nodes, [("x", FLOAT, ("N", 4))], [("y", FLOAT, ("M", 4))], {"axes": np.array([0])})


def div_int32(path: Path) -> Path:
    """Kills onnxruntime 1.32 with SIGFPE on the smallest int32 by -1."""
    values: list[Value] = [("a", INT32, ("N", 1)), ("b", INT32, ("N", 1))]
    return write(path, [node("Div", "a b", "y")], values, [("y", INT32, ("N", 1))], {})


def unique_axis0(path: Path) -> Path:
    """Kills onnxruntime 1.32 with SIGABRT on shape (3, 0)."""
    return write(path, [node("Unique", "x", "y", axis=0)], [("x", FLOAT, ("N", "L"))], [("y", FLOAT, ("M", "L"))], {})


def constant_of_shape(path: Path) -> Path:
    """As many zeros as the only row says: the answer's size is the caller's."""
    nodes = [node("Squeeze", "n axes", "size"), node("Unsqueeze", "size axes", "shape"),
             node("ConstantOfShape", "shape", "zeros"), node("Unsqueeze", "zeros axes", "y")]  # fmt: skip
    return write(path, nodes, [("n", INT64, ("N",))], [("y", FLOAT, ("M", "L"))], {"axes": np.array([0])})


def nan_maker(path: Path) -> Path:
    """The logarithm: NaN for a negative number, -inf for 0."""
    return write(path, [node("Log", "x", "y")], [("x", FLOAT, ("N", 1))], [("y", FLOAT, ("N", 1))], {})


def gather_range(path: Path) -> Path:
    """Columns L-11 to L-6, counted from the end where negative: onnxruntime 1.32 optimises it into an empty slice."""
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape one", "length", axis=0), node("Sub", "length eleven", "start"),
        node("Sub", "length five", "stop"), node("Range", "start stop one", "places"), node("Gather", "x places", "y", axis=1),
    ]  # fmt: skip
    constants = {"one": np.int64(1), "eleven": np.int64(11), "five": np.int64(5)}
    return write(path, nodes, [("x", FLOAT, ("N", "L"))], [("y", FLOAT, ("N", "K"))], constants)


def unranked(path: Path) -> Path:
    """Its output's rank is in the values of a constant the graph computes, so no shape can be declared."""
    nodes = [node("Shape", "x", "shape"), node("Reshape", "x shape", "y")]
    return write(path, nodes, [("x", FLOAT, ("N", "L", "M"))], [("y", FLOAT, None)], {})


def total(path: Path) -> Path:
    """One number for all rows."""
    return write(path, [node("ReduceSum", "x", "y", keepdims=0)], [("x", FLOAT, ("N", 4))], [("y", FLOAT, ())], {})


def network(path: Path) -> Path:
    """A perceptron of 30-64-32-1 with seeded weights."""
    random = np.random.default_rng(0)
    constants: dict[str, Any] = {}
    nodes: list[Any] = []
    last = "x"
    for layer, (wide, narrow) in enumerate([(30, 64), (64, 32), (32, 1)]):
        constants[f"w{layer}"] = (random.normal(size=(wide, narrow)) / np.sqrt(wide)).astype(np.float32)
        constants[f"b{layer}"] = random.normal(size=narrow).astype(np.float32)
        nodes.append(node("Gemm", f"{last} w{layer} b{layer}", f"sum{layer}"))
        last = "y" if layer == 2 else f"out{layer}"
        nodes.append(node("Sigmoid" if layer == 2 else "Relu", f"sum{layer}", last))
    return write(path, nodes, [("x", FLOAT, ("N", 30))], [("y", FLOAT, ("N", 1))], constants)


def padded_mean(path: Path, *, masked: bool) -> Path:
    """The mean of a row's first ``length`` numbers, or of all that it is padded to."""
    if not masked:
        values: list[Value] = [("x", FLOAT, ("N", "L"))]
        return write(path, [node("ReduceMean", "x", "y", axes=[1], keepdims=0)], values, [("y", FLOAT, ("N",))], {})
    nodes = [node("Mul", "x mask", "kept"), node("ReduceSum", "kept axes", "sum", keepdims=0),
             node("ReduceSum", "mask axes", "count", keepdims=0), node("Div", "sum count", "y")]  # fmt: skip
    values = [("x", FLOAT, ("N", "L")), ("mask", FLOAT, ("N", "L"))]
    return write(path, nodes, values, [("y", FLOAT, ("N",))], {"axes": np.array([1])})


def accumulator(path: Path, state: Shape = (1, "N", 2), x: Shape = ("N", 2)) -> Path:
    """A running sum: total' = total + x, y = total' * scale. The state's rows are on its second axis."""
    nodes = [node("Add", "total x", "after"), node("Reshape", "after shape", "sum"),
             node("Cast", "scale", "factor", to=FLOAT), node("Mul", "sum factor", "y")]  # fmt: skip
    values: list[Value] = [("x", FLOAT, x), ("total", FLOAT, state), ("scale", INT64, ())]
    return write(path, nodes, values, [("y", FLOAT, x), ("after", FLOAT, state)], {"shape": np.array([-1, 2])})


def dividing_accumulator(path: Path) -> Path:
    """y = a / b, total' = total + y; kills as ``div_int32`` does."""
    nodes = [node("Div", "a b", "y"), node("Add", "total y", "after")]
    values: list[Value] = [(name, INT32, ("N", 1)) for name in ("a", "b", "total")]
    return write(path, nodes, values, [(name, INT32, ("N", 1)) for name in ("y", "after")], {})


def half_accumulator(path: Path) -> Path:
    """A running sum of FP16."""
    nodes = [node("Add", "total x", "y"), node("Identity", "y", "after")]
    values: list[Value] = [(name, HALF, ("N", 2)) for name in ("x", "total")]
    return write(path, nodes, values, [(name, HALF, ("N", 2)) for name in ("y", "after")], {})


def sequence_output(path: Path) -> Path:
    """A sequence of maps, as classifiers exported with zipmap have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, [])))
    zipmap = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    given = helper.make_tensor_value_info("x", FLOAT, ["N", 2])
    graph = helper.make_graph([zipmap], "graph", [given], [helper.make_value_info("y", kind)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path
