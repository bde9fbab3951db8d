"""Ranking: which of some documents fit a query best, by the embeddings of the sentences example's network."""

import shutil
from pathlib import Path

from examples.sentences.build import write_model


def build(folder: Path, downloads: Path) -> str:
    write_model(folder, downloads)
    shutil.copy(Path(__file__).parent / "pipeline.toml", folder)
    return "the network of sentences, once for the query and once for every document"
