"""What the peers are asked: workloads, the bytes of their requests, and the answers onnxruntime alone gives.

``python bench/peers/models.py`` makes everything under build/bench/models: the models, ``bodies/`` with one file for
each workload and form, ``answers/`` with one array for each workload.
"""

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

WORK = ROOT / "build" / "bench"
MODELS = WORK / "models"

FIELDS, TOKENS, SIDE = 30, 32, 224
SENTENCE = "the quick brown fox jumps over one lazy dog and then it runs away " * 2 + "the quick"
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of request: one item for a model. ``networks`` are its ONNX files, in the order they run."""

    name: str
    networks: tuple[str, ...]
    forms: tuple[str, ...]
    says: str
    tolerance: float = 1e-4  # of an answer against onnxruntime's own, one row alone, absolute


WORKLOADS = {
    each.name: each
    for each in (
        Workload("tabular", ("tabular",), ("v2", "record", "rows"), "network 30-64-32-1, one row, JSON"),
        Workload("tabular_binary", ("tabular",), ("v2_binary", "floats"), "the same row as 120 bytes"),
        Workload("minilm", ("minilm",), ("v2", "record", "rows"), "MiniLM, 32 token ids, JSON"),
        Workload(
            "sentence", ("minilm",), ("record", "v2"), "MiniLM from text: tokenized by the server to the same 32 ids"
        ),
        Workload("image", ("squeezenet",), ("v2_binary", "floats"), "SqueezeNet, 3x224x224 FP32 as bytes"),
        Workload(
            "jpeg",
            ("squeezenet",),
            ("jpeg", "v2_file"),
            "SqueezeNet from a JPEG of 512x512: decoded, resized, scaled",
            1e-3,
        ),
        Workload(
            "cascade",
            ("first", "second"),
            ("v2", "record"),
            "two networks on one row; the second decides where the first is unsure",
        ),
    )
}


def inputs(workload: str, folder: Path = MODELS) -> dict[str, Any]:
    """What one request of this workload holds: arrays with one row, a text, or the bytes of a file."""
    match workload:
        case "tabular" | "tabular_binary" | "cascade":
            return {"x": row(cascade=workload == "cascade")}
        case "minilm":
            return token_ids(folder)
        case "sentence":
            return {"text": SENTENCE}
        case "image":
            return {"image": np.random.default_rng(2).standard_normal((1, 3, SIDE, SIDE)).astype("f4")}
        case "jpeg":
            return {"picture": photo()}
    raise KeyError(workload)


def row(*, cascade: bool) -> Array:
    """Thirty numbers of four decimals; the cascade's is one that its first network is unsure about (see the tests)."""
    return np.random.default_rng(CASCADE_SEED if cascade else 0).standard_normal((1, FIELDS)).round(4).astype("f4")


CASCADE_SEED = 3


def token_ids(folder: Path = MODELS) -> dict[str, Any]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    ids = np.array([tokenizer.encode(SENTENCE).ids], "i8")
    assert ids.shape == (1, TOKENS), ids.shape
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def photo() -> bytes:
    """The astronaut, 512 x 512, as a JPEG of quality 90."""
    from bench.peers.networks import DOWNLOADS
    from examples.photos import photos
    from PIL import Image

    written = io.BytesIO()
    Image.open(photos(DOWNLOADS)["astronaut"]).convert("RGB").save(written, "JPEG", quality=90)
    return written.getvalue()


def expected(workload: str, folder: Path = MODELS) -> Array:
    """The answer of onnxruntime alone, without optimising the graph: one row, flat."""
    given = inputs(workload, folder)
    if workload == "sentence":
        given = token_ids(folder)
    if workload == "jpeg":
        given = {"image": pixels(given["picture"])}
    made: dict[str, Any] = dict(given)
    for name in WORKLOADS[workload].networks:
        settings = onnxruntime.SessionOptions()
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx", settings, providers=["CPUExecutionProvider"])
        wanted = {each.name: made[each.name] for each in session.get_inputs()}
        made |= dict(zip((each.name for each in session.get_outputs()), session.run(None, wanted), strict=True))
    answer: Array = np.asarray(list(made.values())[-1]).ravel()
    return np.array([answer.argmax(), answer.max()]) if workload == "jpeg" else answer


def pixels(file: bytes) -> Array:
    """Pillow's decoding and resizing, then as torchvision's models want it."""
    from PIL import Image

    picture = Image.open(io.BytesIO(file)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    levels = (np.asarray(picture, "f4") / 255 - np.array(MEAN, "f4")) / np.array(SPREAD, "f4")
    return np.ascontiguousarray(levels.transpose(2, 0, 1)[None])


def make(folder: Path = MODELS) -> None:
    """Models, bodies and answers; what is there already stays."""
    from bench.peers.forms import FORMS
    from bench.peers.networks import write_all

    write_all(folder)
    for part in ("bodies", "answers"):
        (folder / part).mkdir(exist_ok=True)
    for workload, asked in WORKLOADS.items():
        given = inputs(workload, folder)
        for form in asked.forms:
            request = FORMS[form](given)
            body_path(workload, form, folder).write_bytes(request.body)
            headers_path(workload, form, folder).write_text(json.dumps(dict(request.headers)))
        np.save(folder / "answers" / f"{workload}.npy", expected(workload, folder))


def body_path(workload: str, form: str, folder: Path = MODELS) -> Path:
    return folder / "bodies" / f"{workload}.{form}"


def headers_path(workload: str, form: str, folder: Path = MODELS) -> Path:
    return folder / "bodies" / f"{workload}.{form}.headers.json"


def answer(workload: str, folder: Path = MODELS) -> Array:
    found: Array = np.load(folder / "answers" / f"{workload}.npy")
    return found


if __name__ == "__main__":
    make()
