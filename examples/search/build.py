"""Search: the books of the recommendation example by what they are about, in one's own words."""

import shutil
from pathlib import Path

from examples.recommendation.build import write_catalogue
from examples.sentences.build import write_model


def build(folder: Path, downloads: Path) -> str:
    write_model(folder, downloads)
    count = write_catalogue(folder, folder)
    shutil.copy(Path(__file__).parent / "pipeline.toml", folder)
    return f"{count} books, embedded, and the model that embeds a query"
