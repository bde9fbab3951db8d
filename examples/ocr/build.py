"""Reading text: PP-OCR's three networks as one pipeline, from a picture of a page to the lines on it."""

import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import onnx
from examples.packages import fetch, notice

PACKAGE = "rapidocr==3.10.0"
DETECT = "rapidocr/models/PP-OCRv6_det_small.onnx"
ORIENT = "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx"
READ = "rapidocr/models/PP-OCRv6_rec_small.onnx"
FILES = {
    DETECT: "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
    ORIENT: "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    READ: "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
}
LICENCE = "Apache-2.0, https://github.com/PaddlePaddle/PaddleOCR"
LINES = (
    "The quick brown fox",
    "jumps over the lazy dog",
    "Invoice 2026-11-30",
    "Total: 1,234.56 EUR",
    "forwardpass reads pages",
)


def build(folder: Path, downloads: Path) -> str:
    files = fetch(PACKAGE, FILES, downloads)
    for name, file in ((DETECT, "detect.onnx"), (ORIENT, "orient.onnx"), (READ, "read.onnx")):
        shutil.copy(files[name], folder / file)
    characters = alphabet(files[READ])
    (folder / "alphabet.txt").write_text("\n".join(characters) + "\n", "utf-8")
    (folder / "golden").mkdir()
    (folder / "golden" / "page.png").write_bytes(page(LINES))
    shutil.copy(Path(__file__).parent / "pipeline.toml", folder)
    (folder / "NOTICE.txt").write_text(notice(PACKAGE, LICENCE, FILES))
    return f"three networks, {len(characters)} characters"


def alphabet(model: Path) -> list[str]:
    """The characters that the reading network knows, which stand in its own file."""
    found: dict[str, str] = {
        entry.key: entry.value for entry in onnx.load(model, load_external_data=False).metadata_props
    }
    return found["character"].rstrip("\n").split("\n")


def page(lines: Sequence[str], *, turned: bool = False) -> bytes:
    """A white page with these lines, as PNG; ``turned``: upside down."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (900, 60 + 85 * len(lines)), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(32)
    for number, line in enumerate(lines):
        pen.text((40, 40 + 85 * number), line, fill="black", font=font)
    file = io.BytesIO()
    (picture.rotate(180) if turned else picture).save(file, "PNG")
    return file.getvalue()
