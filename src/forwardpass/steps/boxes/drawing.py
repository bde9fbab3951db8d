"""Steps that make a picture to look at: ``draw_boxes`` and ``encode_image``."""

import io
import zlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.boxes.fields import (
    CLASSES,
    CONFIDENCES,
    NAMES,
    OUTLINES,
    POINTS,
    pick_if,
    unequal,
)
from forwardpass.steps.image.pixels import Pixels, as_picture, check_jpeg_size, each_image, pillow, source_image
from forwardpass.steps.kind import Kind, not_finite, pick, unfit
from forwardpass.steps.options import Trouble, choice, field_name, option, whole
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared

BOXES_MAX = 100_000
PNG_COMPRESSION = 3  # less than half the time of the usual 6
LABEL_CHARACTERS_MAX = 64
PALETTE = (
    (230, 25, 75), (60, 180, 75), (0, 130, 200), (245, 130, 48), (145, 30, 180), (0, 128, 128), (240, 50, 230),
    (128, 128, 0), (170, 110, 40), (128, 0, 0), (0, 0, 128), (70, 70, 70),
)  # fmt: skip
"""White letters can be read on each of these."""

Colour = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class DrawBoxes:
    """Draws boxes or quads and what they are onto the picture: ``output``, the bytes of a PNG file (RGB).

    The colour follows the class number or else the name; lines and letters grow with the picture. The same input gives
    the same bytes. A row fails when ``names``, ``scores``, ``classes`` or ``points`` has another number of elements
    than there are boxes, when a box or a point is not finite, and when there are more boxes than ``count_max``.
    """

    image: str | None = option(field_name(), "the picture; without it the latest decoded one", None)
    input: str | None = option(field_name(), "the boxes or quads; without it the latest such field", None)
    names: str | None = option(field_name(), "what to write at each box", None)
    scores: str | None = option(field_name(), "the scores to write behind it", None)
    classes: str | None = option(field_name(), "the class numbers, for the colours", None)
    points: str | None = option(
        field_name(), "points of each box (ragged FP32 [-1, points, 2]), such as landmarks", None
    )
    count_max: int = option(whole(1, BOXES_MAX), "the most boxes of one picture", 1000)
    output: str = option(field_name(), "where the file goes", "drawing")


def _draw_sources(options: DrawBoxes, known: FieldMap) -> tuple[Field, Field, dict[str, Field]]:
    """The picture, the boxes, and what is known of each box, by option."""
    fits = {"names": NAMES, "scores": CONFIDENCES, "classes": CLASSES, "points": POINTS}
    given = {key: pick_if(known, getattr(options, key), fit, key) for key, fit in fits.items()}
    details = {key: field for key, field in given.items() if field is not None}
    source = pick(known, options.input, OUTLINES, besides=(options.points,))
    return source_image(known, options.image), source, details


def _draw_fields(options: DrawBoxes, known: FieldMap) -> list[Field]:
    _draw_sources(options, known)
    return [Field(options.output, "BYTES", (), "image")]


def _draw_boxes(options: DrawBoxes, known: FieldMap, context: Context) -> Prepared:
    image, source, details = _draw_sources(options, known)
    image_module = pillow("draw_boxes")

    def drawn(columns: dict[str, Column], row: int, pixels: Pixels) -> bytes:
        outlines = _outlines(columns[source.name][row], source)
        if len(outlines) > options.count_max:
            text = f"has {len(outlines)} boxes; at most {options.count_max} are drawn"
            raise unfit(source, Code.OUTPUT_TOO_LARGE, text)
        said: dict[str, Any] = {}
        for key, field in details.items():
            said[key] = columns[field.name][row]
            if len(said[key]) != len(outlines):
                raise unequal(field, len(said[key]), source, len(outlines))
        points = said.get("points", [])
        if len(points) and not np.isfinite(points).all():
            raise not_finite(details["points"])
        colours = [_colour(said, place) for place in range(len(outlines))]
        texts = [_written(said, place) for place in range(len(outlines))]
        picture = as_picture(image_module, pixels).convert("RGB")
        _draw(picture, outlines, texts, colours)
        _draw_points(picture, points, colours)
        return _encoded(picture, "png", 0)

    def run(batch: Batch) -> None:
        batch.columns[options.output] = each_image(batch, image, partial(drawn, batch.columns))

    return run


def _outlines(boxes: NDArray[np.float32], field: Field) -> NDArray[np.float32]:
    """The four corners of each box or quad."""
    if not np.isfinite(boxes).all():
        raise not_finite(field)
    return boxes if boxes.ndim == 3 else boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]


def _colour(said: dict[str, Any], place: int) -> Colour:
    if "classes" in said:
        return PALETTE[int(said["classes"][place]) % len(PALETTE)]
    if "names" in said:
        return PALETTE[zlib.crc32(said["names"][place].encode("utf-8", "replace")) % len(PALETTE)]
    return PALETTE[0]


def _written(said: dict[str, Any], place: int) -> str:
    parts = [str(said["names"][place])] if "names" in said else []
    if not parts and "classes" in said:
        parts = [str(said["classes"][place])]
    if "scores" in said:
        parts.append(f"{said['scores'][place]:.2f}")
    text = " ".join(parts)[:LABEL_CHARACTERS_MAX]
    return "".join(character if character.isprintable() else " " for character in text)


def _draw(picture: Any, outlines: NDArray[np.float32], texts: list[str], colours: list[Colour]) -> None:
    """Boxes first and labels above all of them, the first box's on top of the others."""
    from PIL import ImageDraw, ImageFont

    canvas = ImageDraw.Draw(picture)
    around = (picture.width + picture.height) / 2
    thick, font = max(2, round(around * 0.003)), ImageFont.load_default(max(12, round(around * 0.02)))
    corners = outlines.astype(np.float64).clip(0, np.array(picture.size) - 1)
    for outline, colour in reversed(list(zip(corners, colours, strict=True))):
        canvas.polygon([tuple(point) for point in outline], outline=colour, width=thick)
    for outline, text, colour in reversed(list(zip(corners, texts, colours, strict=True))):
        if text:
            _draw_label(canvas, picture.size, outline, text, colour, font)


def _draw_points(picture: Any, points: Any, colours: list[Colour]) -> None:
    from PIL import ImageDraw

    canvas = ImageDraw.Draw(picture)
    radius = max(2, round((picture.width + picture.height) * 0.002))
    for group, colour in zip(points, colours, strict=False):  # none where no points are drawn
        for x, y in group.astype(np.float64).clip(-2 * radius, np.array(picture.size) + 2 * radius):
            canvas.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline=(255, 255, 255))


def _draw_label(canvas: Any, size: tuple[int, int], outline: Any, text: str, colour: Colour, font: Any) -> None:
    """Above the outline where there is room, else inside its top; always within the picture."""
    _, _, right, bottom = canvas.textbbox((0, 0), text, font=font)
    width, height = right + 4, bottom + 4
    x, y = outline[:, 0].min(), outline[:, 1].min()
    x = max(0, min(x, size[0] - width))
    y = y - height if y >= height else y
    canvas.rectangle((x, y, x + width, y + height), fill=colour)
    canvas.text((x + 2, y + 2), text, fill=(255, 255, 255), font=font)


@dataclass(frozen=True, kw_only=True)
class EncodeImage:
    """Turns a decoded picture into the bytes of a PNG or JPEG file: ``output``, an image.

    It has 1 (grey) or 3 (RGB) channels. A picture without pixels fails its row, as does one too large for JPEG.
    """

    input: str | None = option(field_name(), "the picture; without it the latest decoded one", None)
    format: Literal["png", "jpeg"] = option(choice("png", "jpeg"), "the kind of file", "png")
    quality: int | None = option(whole(1, 100), "of JPEG; without it 90", None)
    output: str = option(field_name(), "where the file goes", "encoded")


def _encode_problems(options: EncodeImage) -> list[Trouble]:
    if options.quality is not None and options.format != "jpeg":
        return [("quality", str(options.quality), 'only with format = "jpeg"')]
    return []


def _encode_fields(options: EncodeImage, known: FieldMap) -> list[Field]:
    source_image(known, options.input)
    return [Field(options.output, "BYTES", (), "image")]


def _encode_image(options: EncodeImage, known: FieldMap, context: Context) -> Prepared:
    source = source_image(known, options.input)
    image_module = pillow("encode_image")

    def encoded(_: int, pixels: Pixels) -> bytes:
        if options.format == "jpeg":
            check_jpeg_size(source.name, pixels)
        return _encoded(as_picture(image_module, pixels), options.format, options.quality or 90)

    def run(batch: Batch) -> None:
        batch.columns[options.output] = each_image(batch, source, encoded)

    return run


def _encoded(picture: Any, kind: str, quality: int) -> bytes:
    file = io.BytesIO()
    if kind == "png":
        picture.save(file, "PNG", compress_level=PNG_COMPRESSION)
    else:
        picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


DRAW_BOXES = Kind("draw_boxes", DrawBoxes, _draw_fields, _draw_boxes)
ENCODE_IMAGE = Kind("encode_image", EncodeImage, _encode_fields, _encode_image, _encode_problems)
