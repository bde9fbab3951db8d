"""Tiny models of the families that ``init`` recognises, with the files that lie beside real ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from tests.fixtures_onnx import FLOAT, INT64, Value, node, write
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "small", "green", "river", "sings", "why", "not", "?", ".")
HIDDEN = 4
INPUTS: list[Value] = [("input_ids", INT64, ("N", "T")), ("attention_mask", INT64, ("N", "T"))]


def vectors() -> NDArray[np.float32]:
    """A vector for each word."""
    return np.random.default_rng(1).normal(size=(len(WORDS), HIDDEN)).astype(np.float32)


def weights(labels: int) -> NDArray[np.float32]:
    return np.random.default_rng(2).normal(size=(HIDDEN, labels)).astype(np.float32)


def write_json(folder: Path, name: str, content: object) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content))


def tokenizer(folder: Path) -> Tokenizer:
    """Words, each text between [CLS] and [SEP]."""
    made = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    made.save(str(folder / "tokenizer.json"))
    return made


def _mean() -> list[Any]:
    """The mean of a text's vectors, as ``mean``."""
    return [
        node("Gather", "vectors input_ids", "all", axis=0),
        node("Cast", "attention_mask", "mask", to=FLOAT),
        node("Unsqueeze", "mask last", "column"),
        node("Mul", "all column", "kept"),
        node("ReduceSum", "kept tokens", "sum", keepdims=0),
        node("ReduceSum", "mask tokens", "count", keepdims=1),
        node("Div", "sum count", "mean"),
    ]


def text_classifier(folder: Path, config: Mapping[str, Any], labels: int, inner: str = "") -> Path:
    """Logits of a text from the mean of its words' vectors."""
    nodes = [*_mean(), node("MatMul", "mean weights", "logits")]
    constants = {"vectors": vectors(), "weights": weights(labels), "last": np.array([2]), "tokens": np.array([1])}
    write(folder / inner / "model.onnx", nodes, INPUTS, [("logits", FLOAT, ("N", labels))], constants)
    named = {"id2label": {str(place): f"label {place}" for place in range(labels)}}
    write_json(folder, "config.json", {"architectures": ["BertForSequenceClassification"], **named, **config})
    tokenizer(folder)
    return folder


def token_classifier(folder: Path, labels: Sequence[str]) -> Path:
    nodes = [node("Gather", "vectors input_ids", "all", axis=0), node("MatMul", "all weights", "logits"),
             node("Identity", "attention_mask", "unused")]  # fmt: skip
    constants = {"vectors": vectors(), "weights": weights(len(labels))}
    outputs: list[Value] = [("logits", FLOAT, ("N", "T", len(labels)))]
    write(folder / "model.onnx", nodes, INPUTS, outputs, constants)
    config = {"architectures": ["BertForTokenClassification"], "max_position_embeddings": 64}
    write_json(folder, "config.json", {**config, "id2label": dict(enumerate(labels))})
    tokenizer(folder)
    return folder


def embedder(folder: Path, pooling: str = "pooling_mode_mean_tokens", *more: str) -> Path:
    """A vector for each token, and the files of sentence-transformers."""
    nodes = [
        node("Gather", "vectors input_ids", "last_hidden_state", axis=0),
        node("Identity", "attention_mask", "unused"),
    ]
    outputs: list[Value] = [("last_hidden_state", FLOAT, ("N", "T", HIDDEN))]
    write(folder / "model.onnx", nodes, INPUTS, outputs, {"vectors": vectors()})
    kinds = ("Transformer", "Pooling", *more)
    modules = [
        {"path": "" if place == 0 else f"{place}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for place, kind in enumerate(kinds)
    ]
    write_json(folder, "modules.json", modules)
    write_json(folder, "1_Pooling/config.json", {"pooling_mode_max_tokens": False, pooling: True})
    write_json(folder, "config.json", {"architectures": ["BertModel"], "max_position_embeddings": 512})
    write_json(folder, "sentence_bert_config.json", {"max_seq_length": 16})
    tokenizer(folder)
    return folder


def picture_classifier(path: Path, shape: Sequence[int | str], labels: int, *, softmax: bool = False) -> Path:
    """Scores from the mean of each channel."""
    channels_first = shape[1] in (1, 3)
    channels = shape[1] if channels_first else shape[3]
    assert isinstance(channels, int)
    nodes = [
        node("ReduceMean", "picture", "mean", axes=[2, 3] if channels_first else [1, 2], keepdims=0),
        node("MatMul", "mean weights", "logits" if softmax else "scores"),
    ]
    if softmax:
        nodes.append(node("Softmax", "logits", "scores", axis=-1))
    constants = {"weights": weights(labels)[:channels]}
    return write(path, nodes, [("picture", FLOAT, shape)], [("scores", FLOAT, (shape[0], labels))], constants)


def detector(path: Path, metadata: Mapping[str, str], answer: NDArray[np.float32], side: int | str = 64) -> Path:
    """Answers every picture with the same boxes, [numbers, boxes]."""
    nodes = [
        node("ReduceMax", "images", "most", axes=[1, 2, 3], keepdims=0),
        node("Mul", "most zero", "nothing"),
        node("Reshape", "nothing shape", "column"),
        node("Add", "column answer", "output0"),
    ]
    constants = {"zero": np.float32(0), "shape": np.array([-1, 1, 1]), "answer": answer[np.newaxis]}
    write(path, nodes, [("images", FLOAT, ("N", 3, side, side))], [("output0", FLOAT, ("N", *answer.shape))], constants)
    model = onnx.load(str(path))
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, str(path))
    return path
