"""Recommendation: a catalogue of books with a vector each, and those nearest to the ones that somebody likes."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from examples.sentences.build import LICENCE, PACKAGE, write_model
from numpy.typing import NDArray

from forwardpass import Batch, Pipeline, Prediction, use

HERE = Path(__file__).parent
NOTICE = f"""The catalogue was written for this example. Licence: Apache-2.0, as the rest of this project.
Its vectors were made with a model from the Python package {PACKAGE}.
Licence of the model: {LICENCE}.
"""


def build(folder: Path, downloads: Path) -> str:
    with TemporaryDirectory() as model:
        write_model(Path(model), downloads)
        count = write_catalogue(folder, Path(model))
    shutil.copy(HERE / "pipeline.toml", folder)
    (folder / "NOTICE.txt").write_text(NOTICE)
    return f"{count} books with their vectors"


def write_catalogue(folder: Path, model: Path) -> int:
    """The books and, in the same order, the vector of what each is about. Returns how many there are."""
    shutil.copy(HERE / "books.jsonl", folder)
    books = [json.loads(line) for line in (HERE / "books.jsonl").read_text("utf-8").splitlines()]
    np.save(folder / "vectors.npy", embedded(model, [f"{book['title']}. {book['about']}" for book in books]))
    return len(books)


def embedded(model: Path, texts: Sequence[str]) -> NDArray[np.float32]:
    """A vector for each text, by the same steps that a query goes through when it is served."""
    tokenize = use.tokenize(model / "tokenizer.json", tokens_max=256)
    steps = [tokenize, use.model(model / "model.onnx"), use.mean_pool(), use.l2_norm()]
    with Pipeline(steps, inputs={"text": "text"}, batch=Batch(rows_max=8)) as pipeline:
        outcomes = pipeline.predict([{"text": text} for text in texts])
    vectors = [outcome.outputs["embedding"] for outcome in outcomes if isinstance(outcome, Prediction)]
    if len(vectors) != len(texts):
        raise RuntimeError("the model did not embed every book")
    return np.array(vectors, dtype=np.float32)
