"""Steps that place an image in a frame of a fixed size: ``crop_image`` and ``letterbox_image``."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.image.pixels import (
    COLOR,
    PIXELS_MAX,
    SIDE_MAX,
    Method,
    Pixels,
    each_image,
    fill_color,
    image_field,
    resizer,
    source_image,
)
from forwardpass.steps.image.resize import METHOD, ROUNDING, Rounding, antialias_problems, divided
from forwardpass.steps.kind import Kind
from forwardpass.steps.options import Rule, Trouble, choice, field_name, flag, option, several, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

_PLACE = whole(-SIDE_MAX, SIDE_MAX)
_SIZE: Rule = several(whole(1, SIDE_MAX), least=2)


@dataclass(frozen=True, kw_only=True)
class CropImage:
    """Cuts a piece out of a decoded image: ``size`` from its middle, or the ``box`` of the pixels x1 to x2, y1 to y2.

    The middle is torchvision's CenterCrop. What lies outside of the image is refused (``out_of_range``) or, with
    ``outside = "pad"``, filled with ``fill``. Makes ragged UINT8 [height, width, channels].
    """

    input: str | None = option(field_name(), "the image; without it the latest decoded one", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)
    size: tuple[int, ...] | None = option(_SIZE, "[width, height] of a piece from the middle", None)
    box: tuple[int, ...] | None = option(several(_PLACE, least=4), "[x1, y1, x2, y2]; x2 and y2 are left out", None)
    outside: Literal["refuse", "pad"] = option(choice("refuse", "pad"), "what a smaller image gets", "refuse")
    fill: int | tuple[int, ...] = option(COLOR, "the level or levels of what is padded", 0)


def _crop_problems(options: CropImage) -> list[Trouble]:
    troubles: list[Trouble] = []
    if (options.size is None) == (options.box is None):
        troubles.append(("size", "none or both of size and box", "one of size and box"))
    if options.size is not None and len(options.size) != 2:
        troubles.append(("size", str(list(options.size)), "two numbers: [width, height]"))
    if options.box is not None and (
        len(options.box) != 4 or options.box[0] >= options.box[2] or options.box[1] >= options.box[3]
    ):
        troubles.append(("box", str(list(options.box)), "four numbers: [x1, y1, x2, y2], x1 below x2 and y1 below y2"))
    return troubles or _area_problems(options)


def _area_problems(options: CropImage) -> list[Trouble]:
    width, height = options.size or _lengths(options.box or (0, 0, 0, 0))
    if width * height <= PIXELS_MAX:
        return []
    return [("size" if options.size else "box", f"{width} x {height} pixels", f"at most {PIXELS_MAX} pixels")]


def _lengths(box: tuple[int, ...]) -> tuple[int, int]:
    return box[2] - box[0], box[3] - box[1]


def _cropped_fields(options: CropImage, known: FieldMap) -> list[Field]:
    source = source_image(known, options.input)
    fill_color(options.fill, source.shape[-1])
    return [image_field(options.output or source.name, source.shape[-1])]


def _crop(options: CropImage, known: FieldMap, context: Context) -> Prepared:
    field = source_image(known, options.input)
    source, fill = field.name, fill_color(options.fill, field.shape[-1])

    def cropped(_: int, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        left, top, right, bottom = options.box or _middle(options.size or (), width, height)
        if left >= 0 and top >= 0 and right <= width and bottom <= height:
            return np.ascontiguousarray(pixels[top:bottom, left:right])
        if options.outside == "refuse":
            wanted = f"the piece from ({left}, {top}) to ({right}, {bottom}) is not within it"
            text = f"{source}: is {width} x {height} pixels; {wanted}"
            raise Refused(Code.OUT_OF_RANGE, text, field=source)
        frame = np.empty((bottom - top, right - left, pixels.shape[-1]), dtype=np.uint8)
        frame[:] = fill
        inside = pixels[max(0, top) : max(0, bottom), max(0, left) : max(0, right)]
        y, x = max(0, -top), max(0, -left)
        frame[y : y + inside.shape[0], x : x + inside.shape[1]] = inside
        return frame

    def run(batch: Batch) -> None:
        batch.columns[options.output or source] = each_image(batch, field, cropped)

    return run


def _middle(size: tuple[int, ...], width: int, height: int) -> tuple[int, int, int, int]:
    """torchvision pads a small image first, the smaller half in front, and halves to the even pixel when it cuts."""
    left, top = (
        round((side - wanted) / 2) if side >= wanted else -((wanted - side) // 2)
        for side, wanted in ((width, size[0]), (height, size[1]))
    )
    return left, top, left + size[0], top + size[1]


@dataclass(frozen=True, kw_only=True)
class LetterboxImage:
    """Fits a decoded image into ``width`` x ``height`` in proportion and fills the rest, as YOLO models want it.

    Makes ragged UINT8 [height, width, channels] and, if ``place`` names a field, FP32 [4]: scale x, scale y, offset x,
    offset y, in pixels of the frame. A point of the frame is one of the original by
    ``original = (point - offset) / scale`` for x and y each; the scales are resized / original and differ by rounding
    alone. The defaults are ultralytics' letterbox without antialias; ``align = "top_left", rounding = "down"`` YOLOX's.
    A row fails when its image has no pixels (`bad_output_shape`).
    """

    input: str | None = option(field_name(), "the image; without it the latest decoded one", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)
    width: int = option(whole(1, 8192), "the width of the frame")
    height: int = option(whole(1, 8192), "the height of the frame")
    fill: int | tuple[int, ...] = option(COLOR, "the level or levels of what the image does not cover", 114)
    align: Literal["center", "top_left"] = option(choice("center", "top_left"), "where the image lies", "center")
    enlarge: bool = option(flag(), "also make small images larger", True)
    rounding: Rounding = option(ROUNDING, "how the sides of the resized image are rounded", "nearest")
    method: Method = option(METHOD, "the filter, as in resize_image", "bilinear")
    antialias: bool = option(flag(), "as in resize_image; false = OpenCV's INTER_LINEAR", True)
    place: str | None = option(field_name(), "a field for scale x, scale y, offset x, offset y", None)


def _letterbox_problems(options: LetterboxImage) -> list[Trouble]:
    return antialias_problems(options.method, options.antialias)


def _letterboxed_fields(options: LetterboxImage, known: FieldMap) -> list[Field]:
    source = source_image(known, options.input)
    fill_color(options.fill, source.shape[-1])
    made = [image_field(options.output or source.name, source.shape[-1])]
    if options.place is not None:
        made.append(Field(options.place, "FP32", (4,)))
    return made


def _letterbox(options: LetterboxImage, known: FieldMap, context: Context) -> Prepared:
    source = source_image(known, options.input)
    fill = fill_color(options.fill, source.shape[-1])
    resize = resizer("letterbox_image", options.method, options.antialias)

    def run(batch: Batch) -> None:
        places = np.zeros((batch.rows, 4), dtype=np.float32)

        def framed(row: int, pixels: Pixels) -> Pixels:
            height, width = pixels.shape[:2]
            new_width, new_height = _fitted(options, width, height)
            x, y = (options.width - new_width) // 2, (options.height - new_height) // 2
            if options.align == "top_left":
                x, y = 0, 0
            frame = np.empty((options.height, options.width, pixels.shape[-1]), dtype=np.uint8)
            frame[:] = fill
            frame[y : y + new_height, x : x + new_width] = resize(pixels, new_width, new_height)
            places[row] = new_width / width, new_height / height, x, y
            return frame

        batch.columns[options.output or source.name] = each_image(batch, source, framed)
        if options.place is not None:
            batch.columns[options.place] = places

    return run


def _fitted(options: LetterboxImage, width: int, height: int) -> tuple[int, int]:
    """(width, height) of the image inside the frame."""
    if not options.enlarge and width <= options.width and height <= options.height:
        return width, height
    if options.width * height <= options.height * width:  # the width is what limits
        return options.width, divided(height * options.width, width, options.rounding)
    return divided(width * options.height, height, options.rounding), options.height


CROP_IMAGE = Kind("crop_image", CropImage, _cropped_fields, _crop, _crop_problems)
LETTERBOX_IMAGE = Kind("letterbox_image", LetterboxImage, _letterboxed_fields, _letterbox, _letterbox_problems)
