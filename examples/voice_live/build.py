"""Voice activity, live: the network of the voice example on sound that comes in pieces."""

import shutil
from pathlib import Path

from examples.voice.build import pcm, two_vowels, write_model


def build(folder: Path, downloads: Path) -> str:
    write_model(folder, downloads)
    (folder / "golden" / "two_vowels.pcm").write_bytes(pcm(two_vowels()))
    shutil.copy(Path(__file__).parent / "pipeline.toml", folder)
    return "when speech starts and ends, while it is spoken"
