"""The pipelines that the clients talk to: Triton's example models by their names, and one tiny pipeline per task.

Graphs and vocabulary are made here, with no download. Run with the product's own environment.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto
from tests.clients import expected
from tests.e2e.pipelines import OWN_MODEL, RUNNING_SUM, write_own
from tests.fixtures_onnx import (
    FLOAT,
    HALF,
    INT32,
    INT64,
    STRING,
    Shape,
    Value,
    accumulator,
    identity,
    node,
    simple,
    write,
)
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

DATATYPES = {
    "BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16, "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8, "INT16": TensorProto.INT16, "INT32": INT32, "INT64": INT64,
    "FP16": HALF, "FP32": FLOAT, "FP64": TensorProto.DOUBLE,
}  # fmt: skip
LONG_AGO = 1_000_000_000  # files that were just written are given a second to settle

EMBED_TEXT = """
[[steps]]
use = "tokenize"{given}
tokenizer = "tokenizer.json"
tokens_max = 32
[[steps]]
use = "model"
engine = "onnxruntime"
file = "vectors.onnx"
[[steps]]
use = "mean_pool"
output = "{output}"
"""
NORMAL = '[[steps]]\nuse = "l2_norm"\n'
TEXT_INPUT = '[[inputs]]\nname = "text"\ntype = "text"\nbytes_max = 10_000\n'

EMBEDDER = (
    'outputs = ["embedding"]\n'
    + TEXT_INPUT
    + EMBED_TEXT.format(given="", output="embedding")
    + NORMAL
    + '[task]\nkind = "embed"\ndimensions = [3, 4]\n'
)
RANKER = (
    """
outputs = ["ranking"]
[[inputs]]
name = "query"
type = "text"
bytes_max = 10_000
[[inputs]]
name = "documents"
type = "texts"
count_max = 100
bytes_max = 10_000
"""
    + EMBED_TEXT.format(given='\ninput = "query"', output="query_vector")
    + NORMAL
    + '[[steps]]\nuse = "expand"\nover = { documents = "document" }\n'
    + EMBED_TEXT.format(given="", output="vector")
    + NORMAL
    + """
[[steps]]
use = "fold"
lists = { vector = "vectors", document = "document" }
[[steps]]
use = "similarity"
input = "query_vector"
others = "vectors"
metric = "dot"
[[steps]]
use = "rank"
fields = ["document"]
[task]
kind = "rank"
scale = "cosine"
"""
)
CLASSIFIER = (
    'outputs = ["labels", "scores"]\n'
    + TEXT_INPUT
    + EMBED_TEXT.format(given="", output="mean")
    + f"""
[[steps]]
use = "model"
engine = "onnxruntime"
file = "classes.onnx"
[[steps]]
use = "sigmoid"
[[steps]]
use = "label_set"
names = {list(expected.LABELS)}
score_min = 0.0
"""
)
TABLE = """
outputs = ["prediction"]
inputs = [{ name = "a", type = "number" }, { name = "b", type = "number" }, { name = "c", type = "number" }]
[[steps]]
use = "columns"
names = ["a", "b", "c"]
[[steps]]
use = "model"
engine = "onnxruntime"
file = "model.onnx"
"""
ANY_NUMBER = """
[[steps]]
use = "model"
engine = "onnxruntime"
file = "model.onnx"
[checks]
finite = false
"""


def write_repository(root: Path) -> None:
    """One folder a pipeline, version 1. The own code of one wants trust."""
    graphs: dict[str, Callable[[Path], object]] = {
        "simple": simple,
        "simple_string": _simple_string,
        "simple_identity": _simple_identity,
        "simple_int8": _simple_int8,
        "counted": _simple_int8,  # asked by whoever looks at its statistics, and by nobody else
        "wide": lambda path: identity(path, ("N", 3, 224, 224)),
        "every_datatype": _every_datatype,
        "typed": _typed,
        **{f"spare_{name}": simple for name in ("sync_http", "aio_http", "sync_grpc", "aio_grpc")},
    }
    for name, graph in graphs.items():
        graph(root / name / "1" / "model.onnx")
    _defined(root, "odd_numbers", ANY_NUMBER, lambda folder: identity(folder / "model.onnx", ("N", 3)))
    _defined(root, "simple_sequence", RUNNING_SUM + "[sequence]\n", lambda folder: accumulator(folder / "model.onnx"))
    _defined(root, "embedder", EMBEDDER, _embedding_files)
    _defined(root, "ranker", RANKER, _embedding_files)
    _defined(root, "classifier", CLASSIFIER, _classifier_files)
    _defined(root, "table", TABLE, _table_file)
    write_own(root / "slow" / "1", OWN_MODEL)
    for path in root.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def _defined(root: Path, name: str, definition: str, files: Callable[[Path], object]) -> None:
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(definition)
    files(folder)


def _pair(kind: int, shape: Shape) -> tuple[list[Value], list[Value]]:
    return [(f"INPUT{n}", kind, shape) for n in (0, 1)], [(f"OUTPUT{n}", kind, shape) for n in (0, 1)]


def _cast_sums(path: Path, kind: int) -> Path:
    """The sum and the difference of what is no number that the runtime can add: there and back by INT32."""
    nodes = [node("Cast", f"INPUT{n}", f"x{n}", to=INT32) for n in (0, 1)]
    nodes += [node("Add", "x0 x1", "sum"), node("Sub", "x0 x1", "difference")]
    nodes += [node("Cast", "sum", "OUTPUT0", to=kind), node("Cast", "difference", "OUTPUT1", to=kind)]
    inputs, outputs = _pair(kind, ("N", 16))
    return write(path, nodes, inputs, outputs, {})


def _simple_string(path: Path) -> Path:
    return _cast_sums(path, STRING)


def _simple_int8(path: Path) -> Path:
    return _cast_sums(path, TensorProto.INT8)


def _simple_identity(path: Path) -> Path:
    value: list[Value] = [("INPUT0", STRING, ("N", "L"))]
    return write(path, [node("Identity", "INPUT0", "OUTPUT0")], value, [("OUTPUT0", STRING, ("N", "L"))], {})


def _every_datatype(path: Path, names: Sequence[str] = tuple(DATATYPES)) -> Path:
    """y_X is x_X, for every datatype X that a graph and JSON have."""
    nodes = [node("Identity", f"x_{name}", f"y_{name}") for name in names]
    inputs: list[Value] = [(f"x_{name}", DATATYPES[name], ("N", 2)) for name in names]
    outputs: list[Value] = [(f"y_{name}", DATATYPES[name], ("N", 2)) for name in names]
    return write(path, nodes, inputs, outputs, {})


def _typed(path: Path) -> Path:
    """Those datatypes that have a field of their own in gRPC's explicit contents."""
    return _every_datatype(path, [name for name in DATATYPES if name != "FP16"])


def _embedding_files(folder: Path) -> None:
    """A tokenizer of a few words, and a graph that looks their vectors up."""
    words = Tokenizer(WordLevel({word: place for place, word in enumerate(expected.WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = WhitespaceSplit()
    words.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    words.save(str(folder / "tokenizer.json"))
    vectors = np.array([expected.vector(token) for token in range(len(expected.WORDS))], np.float32)
    inputs: list[Value] = [("input_ids", INT64, ("N", "T"))]
    outputs: list[Value] = [("hidden", FLOAT, ("N", "T", expected.HIDDEN))]
    nodes = [node("Gather", "vectors input_ids", "hidden", axis=0)]
    write(folder / "vectors.onnx", nodes, inputs, outputs, {"vectors": vectors})


def _classifier_files(folder: Path) -> None:
    _embedding_files(folder)
    constants: dict[str, Any] = {"weights": np.array(expected.class_weights(), np.float32)}
    inputs: list[Value] = [("mean", FLOAT, ("N", expected.HIDDEN))]
    outputs: list[Value] = [("logits", FLOAT, ("N", len(expected.LABELS)))]
    write(folder / "classes.onnx", [node("MatMul", "mean weights", "logits")], inputs, outputs, constants)


def _table_file(folder: Path) -> None:
    constants: dict[str, Any] = {"weights": np.array(expected.WEIGHTS, np.float32)}
    inputs: list[Value] = [("features", FLOAT, ("N", len(expected.WEIGHTS)))]
    nodes = [node("MatMul", "features weights", "prediction")]
    write(folder / "model.onnx", nodes, inputs, [("prediction", FLOAT, ("N",))], constants)
