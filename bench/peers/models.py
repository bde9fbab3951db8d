"""What the peers are asked: workloads, the bytes of their requests, and the answers onnxruntime alone gives.

Each workload has VARIANTS different requests, the same for every peer. ``python bench/peers/models.py`` makes everything
under build/bench/models: the models, ``bodies/`` with a file for each workload, form and variant, ``answers/`` with one
array for each workload, a row for each variant.
"""

import hashlib
import io
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
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

FIELDS, TOKENS, SIDE, PHOTO = 30, 32, 224, 512
VARIANTS = 32
WORDS = """the quick brown fox jumps over one lazy dog and then it runs away from big house near old river where people wait
for some news about new music while children play with small red ball"""
"""Each of them one token."""
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
        Workload("image", ("squeezenet",), ("v2_binary", "floats"), "SqueezeNet, 3x224x224 FP32 as bytes", 1e-5),
        Workload(
            "jpeg",
            ("squeezenet",),
            ("jpeg", "v2_file"),
            "SqueezeNet from a JPEG of 512x512: decoded, resized, scaled",
            2e-4,
        ),
        Workload(
            "cascade",
            ("first", "second"),
            ("v2", "record"),
            "two networks on one row; the second decides where the first is unsure",
        ),
    )
}


def inputs(workload: str, variant: int = 0, folder: Path = MODELS) -> dict[str, Any]:
    """What one request of this workload holds: arrays with one row, a text, or the bytes of a file."""
    match workload:
        case "tabular" | "tabular_binary" | "cascade":
            return {"x": row(variant)}
        case "minilm":
            return token_ids(sentence(variant), folder)
        case "sentence":
            return {"text": sentence(variant)}
        case "image":
            return {"image": np.random.default_rng(variant).standard_normal((1, 3, SIDE, SIDE)).astype("f4")}
        case "jpeg":
            return {"picture": photo(variant)}
    raise KeyError(workload)


def row(variant: int) -> Array:
    """Thirty numbers of four decimals; the cascade's first network is unsure about some and sure about others."""
    return np.random.default_rng(variant).standard_normal((1, FIELDS)).round(4).astype("f4")


def sentence(variant: int) -> str:
    """Thirty words, which are TOKENS tokens with the two that frame them."""
    return " ".join(np.random.default_rng(variant).choice(WORDS.split(), TOKENS - 2))


def token_ids(text: str, folder: Path = MODELS) -> dict[str, Any]:
    ids = np.array([_tokenizer(folder).encode(text).ids], "i8")
    assert ids.shape == (1, TOKENS), ids.shape
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


@cache
def _tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    return tokenizer


def photo(variant: int) -> bytes:
    """A square of one of three photos, 512 x 512, as a JPEG of quality 90; the first is all of the astronaut."""
    from PIL import Image

    names = ("astronaut", "coffee", "chelsea")
    whole = _photos()[names[variant % len(names)]]
    random = np.random.default_rng(variant)
    side = min(whole.size) - (int(random.integers(1, min(whole.size) // 4)) if variant else 0)
    left, top = (int(random.integers(0, length - side + 1)) for length in whole.size)
    square = whole.crop((left, top, left + side, top + side)).resize((PHOTO, PHOTO), Image.Resampling.BILINEAR)
    written = io.BytesIO()
    square.save(written, "JPEG", quality=90)
    return written.getvalue()


@cache
def _photos() -> dict[str, Any]:
    from bench.peers.networks import DOWNLOADS
    from examples.photos import photos
    from PIL import Image

    return {name: Image.open(path).convert("RGB") for name, path in photos(DOWNLOADS).items()}


def expected(workload: str, folder: Path = MODELS) -> Callable[[Mapping[str, Any]], Array]:
    """The answer of onnxruntime alone to a request's inputs, without optimising the graph: one row, flat."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    sessions = [
        onnxruntime.InferenceSession(folder / f"{name}.onnx", settings, providers=["CPUExecutionProvider"])
        for name in WORKLOADS[workload].networks
    ]

    def answered(given: Mapping[str, Any]) -> Array:
        made = dict(given)
        if workload == "sentence":
            made = token_ids(made["text"], folder)
        if workload == "jpeg":
            made = {"image": pixels(made["picture"])}
        for session in sessions:
            wanted = {each.name: made[each.name] for each in session.get_inputs()}
            made |= dict(zip((each.name for each in session.get_outputs()), session.run(None, wanted), strict=True))
        answer: Array = np.asarray(list(made.values())[-1]).ravel()
        return np.array([answer.argmax(), answer.max()]) if workload == "jpeg" else answer

    return answered


def pixels(file: bytes) -> Array:
    """Pillow's decoding and resizing, then as torchvision's models want it."""
    from PIL import Image

    picture = Image.open(io.BytesIO(file)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    levels = (np.asarray(picture, "f4") / 255 - np.array(MEAN, "f4")) / np.array(SPREAD, "f4")
    return np.ascontiguousarray(levels.transpose(2, 0, 1)[None])


def make(folder: Path = MODELS) -> None:
    """Models, bodies and answers, once for each state of the code that makes them."""
    from bench.peers.forms import FORMS
    from bench.peers.networks import write_all

    write_all(folder)
    here = Path(__file__).parent
    code = b"".join((here / f"{name}.py").read_bytes() for name in ("models", "forms", "networks"))
    state, stamp = hashlib.sha256(code).hexdigest(), folder / ".asked"
    if stamp.exists() and stamp.read_text() == state:
        return
    for part in ("bodies", "answers"):
        (folder / part).mkdir(exist_ok=True)
    for workload, asked in WORKLOADS.items():
        answered, answers = expected(workload, folder), []
        for variant in range(VARIANTS):
            given = inputs(workload, variant, folder)
            answers.append(answered(given))
            for form in asked.forms:
                request = FORMS[form](given)
                body_path(workload, form, variant, folder).write_bytes(request.body)
                headers_path(workload, form, variant, folder).write_text(json.dumps(dict(request.headers)))
        np.save(folder / "answers" / f"{workload}.npy", np.stack(answers))
    stamp.write_text(state)


def body_path(workload: str, form: str, variant: int, folder: Path = MODELS) -> Path:
    return folder / "bodies" / f"{workload}.{form}.{variant}"


def headers_path(workload: str, form: str, variant: int, folder: Path = MODELS) -> Path:
    return folder / "bodies" / f"{workload}.{form}.{variant}.headers.json"


def answer(workload: str, variant: int, folder: Path = MODELS) -> Array:
    found: Array = np.load(folder / "answers" / f"{workload}.npy")[variant]
    return found


if __name__ == "__main__":
    make()
