"""Graphs that take text themselves: a text input goes straight into the model, with no step before it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.fixtures_onnx import FLOAT, STRING, node, text_identity, write

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.execution.model_step import ModelStep
from forwardpass.steps.protocol import Batch, Column, Context, text_column

TEXT = Field("text", "BYTES", (), "text")
CATEGORY = Field("text", "BYTES", (), "category")
ONNX = {"engine": "onnxruntime", "file": "m.onnx"}


def normalizer(path: Path) -> Path:
    """Small letters, of one axis or of one row as the operator wants it."""
    nodes = [node("StringNormalizer", "x", "y", case_change_action="LOWER", is_case_sensitive=1, locale="C")]
    return write(path, nodes, [("x", STRING, ("N",))], [("y", STRING, ("N",))], {})


def label_encoder(path: Path, shape: Sequence[Any] = ("N",)) -> Path:
    """A number for each category, as sklearn's OrdinalEncoder is exported: 1 for red, 2 for blue, -1 for any other."""
    encode = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["red", "blue"], values_int64s=[1, 2],
        default_int64=-1,
    )  # fmt: skip
    graph = helper.make_graph(
        [encode],
        "graph",
        [helper.make_tensor_value_info("x", STRING, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, shape)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


def word_counts(path: Path) -> Path:
    """How often "good" and "bad" are there, in a row of words."""
    nodes = [
        node(
            "TfIdfVectorizer",
            "x",
            "y",
            mode="TF",
            min_gram_length=1,
            max_gram_length=1,
            max_skip_count=0,
            ngram_counts=[0],
            ngram_indexes=[0, 1],
            pool_strings=["good", "bad"],
        )
    ]
    return write(path, nodes, [("x", STRING, ("N", 3))], [("y", FLOAT, ("N", 2))], {})


def run(folder: Path, make: Callable[[Path], Path], field: Field, column: Column) -> Batch:
    make(folder / "m.onnx")
    context = Context(folder)
    step = ModelStep(context)
    batch = Batch({field.name: column}, len(column), list(range(len(column))))
    step.prepare(ONNX, {field.name: field}, context)(batch)
    batch.settle()
    step.close()
    return batch


def test_text_comes_back_from_a_graph_as_it_went_in(tmp_path: Path) -> None:
    texts = ["plain", "", "caf\u00e9 \U0001f600", "a\x00b"]
    assert run(tmp_path, text_identity, TEXT, text_column(texts)).columns["y"].tolist() == texts


def test_a_graph_can_change_text(tmp_path: Path) -> None:
    assert run(tmp_path, normalizer, TEXT, text_column(["RED", "Blue"])).columns["y"].tolist() == ["red", "blue"]


@pytest.mark.parametrize("field", [TEXT, CATEGORY])
def test_a_graph_can_encode_categories_itself(tmp_path: Path, field: Field) -> None:
    column = text_column(["red", "green", "blue"])
    assert run(tmp_path, label_encoder, field, column).columns["y"].tolist() == [1, -1, 2]


def test_an_axis_of_one_takes_a_text_too(tmp_path: Path) -> None:
    batch = run(tmp_path, lambda path: label_encoder(path, ("N", 1)), CATEGORY, text_column(["blue", "red"]))
    assert batch.columns["y"].tolist() == [[2], [1]]


def test_rows_of_words_can_be_counted_in_the_graph(tmp_path: Path) -> None:
    words = np.array([["good", "bad", "good"], ["x", "y", "bad"]], dtype=object)
    batch = run(tmp_path, word_counts, Field("words", "BYTES", (3,)), words)
    assert batch.columns["y"].tolist() == [[2, 1], [0, 1]]


def test_a_missing_text_and_one_that_is_no_unicode_fail_alone(tmp_path: Path) -> None:
    batch = run(tmp_path, label_encoder, CATEGORY, text_column(["red", None, "\ud800", "blue"]))
    assert {row: failure.code for row, failure in batch.failures.items()} == {
        1: Code.MISSING_FIELD,
        2: Code.INVALID_UTF8,
    }
    assert batch.columns["y"].tolist() == [1, 2]
