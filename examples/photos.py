"""Photos to show and to test with, from the scikit-image package: an astronaut, a cat and a cup of coffee."""

from collections.abc import Iterable
from pathlib import Path

from examples.packages import fetch, notice

PACKAGE = "scikit-image==0.26.0"
FILES = {
    "skimage/data/astronaut.png": "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
    "skimage/data/chelsea.png": "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
    "skimage/data/coffee.png": "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
}
LICENCE = "public domain (the astronaut, by NASA) and CC0 (the cat and the coffee)"


def photos(downloads: Path) -> dict[str, Path]:
    """The photos by their names: astronaut, chelsea (the cat), coffee. Raises Unavailable."""
    return {path.stem: path for path in fetch(PACKAGE, FILES, downloads).values()}


def photo_notice(names: Iterable[str]) -> str:
    """Where these photos come from."""
    used = {name: digest for name, digest in FILES.items() if Path(name).stem in names}
    return notice(PACKAGE, LICENCE, used, what="photos")
