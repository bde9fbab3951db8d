"""The MiniLM network as an ONNX graph, written straight from its safetensors weights: no training framework needed."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

Weights = dict[str, NDArray[np.float32]]

LAYERS = 6
HIDDEN = 384
HEADS = 12
NORM_EPSILON = 1e-12
MASKED = -10_000.0  # added to an attention score; exp() of it is exactly 0, so padding never changes a row


def read_weights(file: Path) -> Weights:
    """The float32 tensors of a safetensors file: 8 bytes header length, a JSON header, then the raw data."""
    raw = np.memmap(file, dtype=np.uint8, mode="r")
    header_bytes = int(raw[:8].view("<u8")[0])
    header = json.loads(raw[8 : 8 + header_bytes].tobytes())
    weights: Weights = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            weights[name] = raw[start:end].view("<f4").reshape(entry["shape"])
    return weights


class Graph:
    """Collects nodes and constants. Each method adds one operation and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def constant(self, name: str, value: NDArray[np.float32] | NDArray[np.int64] | float | list[int]) -> str:
        if name not in self.constants:
            array = np.asarray(value, dtype=np.float32 if isinstance(value, float) else None)
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        output = name or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def dense(self, value: str, weights: Weights, part: str) -> str:
        kernel = self.constant(f"{part}.kernel", np.ascontiguousarray(weights[f"{part}.weight"].T))
        bias = self.constant(f"{part}.bias", weights[f"{part}.bias"])
        return self.add("Add", self.add("MatMul", value, kernel), bias)

    def norm(self, value: str, weights: Weights, part: str, name: str = "") -> str:
        scale = self.constant(f"{part}.weight", weights[f"{part}.weight"])
        bias = self.constant(f"{part}.bias", weights[f"{part}.bias"])
        return self.add("LayerNormalization", value, scale, bias, name=name, axis=-1, epsilon=NORM_EPSILON)

    def gelu(self, value: str) -> str:
        inner = self.add("Erf", self.add("Div", value, self.constant("sqrt2", math.sqrt(2.0))))
        doubled = self.add("Mul", value, self.add("Add", inner, self.constant("one", 1.0)))
        return self.add("Mul", doubled, self.constant("half", 0.5))


def embed(graph: Graph, weights: Weights) -> str:
    """Word + position + type embeddings; a text alone is always type 0, so that row is folded into the positions."""
    words = graph.constant("words", weights["embeddings.word_embeddings.weight"])
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    length = graph.add("Shape", "input_ids", start=1, end=2)
    positions = graph.add("Slice", graph.constant("places", places), graph.constant("zero", [0]), length)
    total = graph.add("Add", graph.add("Gather", words, "input_ids"), positions)
    return graph.norm(total, weights, "embeddings.LayerNorm")


def attention_bias(graph: Graph) -> str:
    """0 where a token may be looked at, MASKED where it is padding: [B,1,1,L]."""
    wide = graph.add("Unsqueeze", "attention_mask", graph.constant("axis_1", [1]))
    wider = graph.add("Unsqueeze", wide, graph.constant("axis_2", [2]))
    number = graph.add("Cast", wider, to=TensorProto.FLOAT)
    hidden = graph.add("Sub", graph.constant("one", 1.0), number)
    return graph.add("Mul", hidden, graph.constant("masked", MASKED))


def attention(graph: Graph, value: str, bias: str, weights: Weights, part: str) -> str:
    """Every token looks at every other, in HEADS ways at once."""
    split = graph.constant("split", [0, 0, HEADS, HIDDEN // HEADS])

    def heads(which: str, order: list[int]) -> str:
        flat = graph.dense(value, weights, f"{part}.self.{which}")
        return graph.add("Transpose", graph.add("Reshape", flat, split), perm=order)

    query, key = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])
    scores = graph.add("Div", graph.add("MatMul", query, key), graph.constant("scale", math.sqrt(HIDDEN / HEADS)))
    chances = graph.add("Softmax", graph.add("Add", scores, bias), axis=-1)
    mixed = graph.add("MatMul", chances, heads("value", [0, 2, 1, 3]))
    merged = graph.add("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = graph.add("Reshape", merged, graph.constant("join", [0, 0, HIDDEN]))
    return graph.dense(joined, weights, f"{part}.output.dense")


def layer(graph: Graph, value: str, bias: str, weights: Weights, number: int) -> str:
    part = f"encoder.layer.{number}"
    attended = graph.add("Add", attention(graph, value, bias, weights, f"{part}.attention"), value)
    value = graph.norm(attended, weights, f"{part}.attention.output.LayerNorm")
    inner = graph.gelu(graph.dense(value, weights, f"{part}.intermediate.dense"))
    total = graph.add("Add", graph.dense(inner, weights, f"{part}.output.dense"), value)
    name = "last_hidden_state" if number == LAYERS - 1 else ""
    return graph.norm(total, weights, f"{part}.output.LayerNorm", name)


def network(weights: Weights) -> ModelProto:
    """input_ids, attention_mask INT64[B,L] -> last_hidden_state FP32[B,L,384]."""
    graph = Graph()
    value, bias = embed(graph, weights), attention_bias(graph)
    for number in range(LAYERS):
        value = layer(graph, value, bias, weights, number)
    tokens = ["batch", "tokens"]
    names = ("input_ids", "attention_mask")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, tokens) for name in names]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*tokens, HIDDEN])
    parts = helper.make_graph(graph.nodes, "minilm", inputs, [output], list(graph.constants.values()))
    model = helper.make_model(parts, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    return model
