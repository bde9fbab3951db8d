"""What every peer in Python runs: a benchmark's model in onnxruntime, its inputs out of requests, its answers.

A peer's own file is only its framework. Environment: WORKLOAD, MODELS (the folder of models), THREADS.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import orjson

MODELS = Path(os.environ.get("MODELS", "."))
WORKLOAD = os.environ.get("WORKLOAD", "tabular")
THREADS = int(os.environ.get("THREADS", "1"))
BATCH = int(os.environ.get("BATCH", "64"))
WORKERS = int(os.environ.get("WORKERS", "1"))

Arrays = dict[str, Any]
SIDE = 224
MEAN, SPREAD = np.array([0.485, 0.456, 0.406], "f4"), np.array([0.229, 0.224, 0.225], "f4")


def session(name: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(MODELS / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])


def tokenizer() -> Any:
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(str(MODELS / "tokenizer.json"))
    made.enable_padding()
    made.enable_truncation(256)
    return made


def pixels(file: bytes) -> Any:
    """A JPEG as numbers [3,224,224]."""
    import simplejpeg
    from PIL import Image

    picture = Image.fromarray(simplejpeg.decode_jpeg(file)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    levels = np.asarray(picture, np.float32)
    return np.ascontiguousarray(((levels / 255 - MEAN) / SPREAD).transpose(2, 0, 1))


class Rows:
    """x [30] as a list of numbers -> y, one number."""

    def __init__(self) -> None:
        self._run = session("tabular").run

    def decode(self, body: bytes) -> Any:
        return self.item(orjson.loads(body))

    def item(self, fields: Any) -> Any:
        return np.array(fields["x"], np.float32)

    def run(self, items: Sequence[Any]) -> list[Any]:
        return list(self._run(None, {"x": np.stack(items)})[0])

    def encode(self, answer: Any) -> bytes:
        return orjson.dumps({"y": answer}, option=orjson.OPT_SERIALIZE_NUMPY)


class RowsBinary(Rows):
    """x as 30 floats, little-endian -> y as one."""

    def decode(self, body: bytes) -> Any:
        return np.frombuffer(body, np.float32)

    def encode(self, answer: Any) -> bytes:
        return bytes(answer.tobytes())


class Cascade(Rows):
    """x -> y: the first network, then the second on the row and the first one's score."""

    def __init__(self) -> None:
        self._first, self._second = session("first").run, session("second").run

    def run(self, items: Sequence[Any]) -> list[Any]:
        x = np.stack(items)
        (first,) = self._first(None, {"x": x})
        return list(self._second(None, {"x": x, "first": first})[0])


class Tokens(Rows):
    """input_ids and attention_mask, lists of 32 integers -> y, the embedding."""

    def __init__(self) -> None:
        self._run = session("minilm").run

    def item(self, fields: Any) -> Any:
        return np.array([fields["input_ids"], fields["attention_mask"]], np.int64)

    def run(self, items: Sequence[Any]) -> list[Any]:
        ids = np.stack(items)
        return list(self._run(None, {"input_ids": ids[:, 0], "attention_mask": ids[:, 1]})[0])


class Sentences(Tokens):
    """text -> y, the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self._tokenizer = tokenizer()

    def item(self, fields: Any) -> Any:
        return fields["text"]

    def run(self, items: Sequence[Any]) -> list[Any]:
        found = self._tokenizer.encode_batch(list(items))
        return super().run([np.array([each.ids, each.attention_mask], np.int64) for each in found])


class Images(Rows):
    """3 x 224 x 224 floats, little-endian -> 1000 probabilities, the same way."""

    def __init__(self) -> None:
        self._run = session("squeezenet").run

    def decode(self, body: bytes) -> Any:
        return np.frombuffer(body, np.float32).reshape(3, SIDE, SIDE)

    def run(self, items: Sequence[Any]) -> list[Any]:
        return list(self._run(None, {"image": np.stack(items)})[0])

    def encode(self, answer: Any) -> bytes:
        return bytes(answer.tobytes())


class Photos(Images):
    """A JPEG file -> the place and the probability of the likeliest class."""

    def decode(self, body: bytes) -> Any:
        return pixels(body)

    def encode(self, answer: Any) -> bytes:
        best = int(answer.argmax())
        return orjson.dumps({"label": str(best), "score": float(answer.ravel()[best])})


KINDS: dict[str, type[Rows]] = {
    "tabular": Rows,
    "tabular_binary": RowsBinary,
    "cascade": Cascade,
    "minilm": Tokens,
    "sentence": Sentences,
    "image": Images,
    "jpeg": Photos,
}


def network() -> Rows:
    return KINDS[WORKLOAD]()
