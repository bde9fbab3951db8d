"""An ONNX graph to which nodes are added at its end: row ``x`` (FP64) goes in, named columns come out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from forwardpass.fitted.refusal import needed

OPSET = 17
ML_OPSET = 3  # of the domain ai.onnx.ml
IR_VERSION = 8
ROW = "x"


class Nodes:
    """``model`` is a graph to go on with, or None for an empty one that takes ``width`` numbers a row."""

    def __init__(self, width: int, model: Any = None) -> None:
        self._onnx = needed("onnx", "onnx", "sklearn")
        self.model = self._empty(width) if model is None else model
        self._made = 0
        self.last = [self._renamed(value.name) for value in self.model.graph.output] or [ROW]

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One node; returns the name of its output."""
        name = self._name()
        node = self._onnx.helper.make_node(operator, list(inputs), [name], name=name, domain=domain, **attributes)
        self.model.graph.node.append(node)
        return name

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.float64) -> str:
        name = self._name()
        self.model.graph.initializer.append(self._onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def tensor(self, value: ArrayLike, dtype: DTypeLike = np.float64) -> Any:
        """The value of an attribute."""
        return self._onnx.numpy_helper.from_array(np.asarray(value, dtype))

    def cast(self, value: str, dtype: DTypeLike) -> str:
        return self.add("Cast", value, to=self._type(dtype))

    def rounded(self, value: str) -> str:
        """As FP64, after a rounding to FP32: what a library sees that keeps its rows in FP32."""
        return self.cast(self.cast(value, np.float32), np.float64)

    def labels(self, places: str, classes: Sequence[Any]) -> str:
        """The class at each row's place (INT64), as text or INT64."""
        if all(isinstance(each, str) for each in classes):
            return self.add("Gather", self._texts(classes), places)
        return self.add("Gather", self.constant(classes, np.int64), places)

    def finish(self, outputs: dict[str, tuple[str, DTypeLike | None, int]]) -> bytes:
        """The file, answering with these: name = (value, datatype or None for text, size of a row, 0 = one number)."""
        graph = self.model.graph
        del graph.output[:]
        for name, (value, dtype, size) in outputs.items():
            cast = value if dtype is None else self.cast(value, dtype)
            shape = self.constant([-1, size] if size else [-1], np.int64)
            graph.node.append(self._onnx.helper.make_node("Reshape", [cast, shape], [name], name=f"{name} as answered"))
            kind = self._onnx.TensorProto.STRING if dtype is None else self._type(dtype)
            graph.output.append(self._onnx.helper.make_tensor_value_info(name, kind, [None, size] if size else [None]))
        content: bytes = self.model.SerializeToString()
        return content

    def _renamed(self, old: str) -> str:
        """An output of the model begun with, under a name that no output of the whole has."""
        new = self._name()
        for node in self.model.graph.node:
            for names in (node.input, node.output):
                for place, name in enumerate(names):
                    if name == old:
                        names[place] = new
        return new

    def _texts(self, values: Sequence[object]) -> str:
        name = self._name()
        encoded = [str(value).encode() for value in values]
        kind = self._onnx.TensorProto.STRING
        self.model.graph.initializer.append(self._onnx.helper.make_tensor(name, kind, [len(encoded)], encoded))
        return name

    def _name(self) -> str:
        self._made += 1
        return f"forwardpass_{self._made}"

    def _type(self, dtype: DTypeLike) -> Any:
        return self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def _empty(self, width: int) -> Any:
        helper = self._onnx.helper
        given = helper.make_tensor_value_info(ROW, self._onnx.TensorProto.DOUBLE, [None, width])
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        graph = helper.make_graph([], "fitted", [given], [])
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
