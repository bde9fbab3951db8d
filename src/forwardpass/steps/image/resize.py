"""``resize_image``: decoded images in another size, exact or by one side, with what maps boxes back."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from forwardpass.core.pipeline import Field
from forwardpass.steps.image.pixels import (
    PIXELS_MAX,
    SIDE_MAX,
    Method,
    Pixels,
    each_image,
    image_field,
    resizer,
    source_image,
    too_many_pixels,
)
from forwardpass.steps.kind import Kind
from forwardpass.steps.options import Trouble, choice, field_name, flag, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

Rounding = Literal["down", "nearest", "up"]
_SIDE = whole(1, SIDE_MAX)
METHOD = choice("bilinear", "bicubic", "area", "nearest", "lanczos")
ROUNDING = choice("down", "nearest", "up")


def antialias_problems(method: Method, antialias: bool) -> list[Trouble]:
    if antialias or method == "bilinear":
        return []
    return [("antialias", f"false with {method}", "false only with bilinear")]


@dataclass(frozen=True, kw_only=True)
class ResizeImage:
    """Brings a decoded image to another size; ragged UINT8 [height, width, channels] as before.

    The size is ``width`` and ``height``; or one of them, ``short_side`` or ``long_side``, and the other side follows
    in proportion, rounded by ``rounding``; ``short_side`` beside ``long_side`` means: no longer than that. Without any,
    ``multiple`` alone. ``when`` = "smaller" or "larger" leaves an image alone whose named side is large or small
    enough. Then ``width_max`` squeezes, and ``multiple`` rounds both sides to one, at least one of it.
    PP-OCR's detection: ``short_side = 736, when = "smaller", multiple = 32`` (limit_type min) or
    ``long_side = 960, when = "larger", multiple = 32`` (max). Its recognition: ``height = 48, rounding = "up"``.

    ``method`` is Pillow's filter of that name (area = BOX), which widens when it shrinks, pixel for pixel, and
    torchvision's with antialias within one level. ``antialias = false`` is OpenCV's INTER_LINEAR: bilinear between
    pixel centres at any scale. ``scale`` names a field FP32 [2]: x and y of original / resized, so a box found in the
    resized image, multiplied by it, is one of the original. A result over ``pixels_max`` fails its row.
    """

    input: str | None = option(field_name(), "the image; without it the latest decoded one", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)
    width: int | None = option(_SIDE, "the width in pixels", None)
    height: int | None = option(_SIDE, "the height in pixels", None)
    short_side: int | None = option(_SIDE, "the length of the shorter side", None)
    long_side: int | None = option(_SIDE, "the length of the longer side, or its limit beside short_side", None)
    when: Literal["always", "smaller", "larger"] = option(
        choice("always", "smaller", "larger"), "resize only what is smaller or larger on the named side", "always"
    )
    rounding: Rounding = option(ROUNDING, "how the side that follows is rounded", "down")
    multiple: int = option(whole(1, 4096), "both sides become a multiple of this", 1)
    multiple_rounding: Rounding = option(ROUNDING, "to which multiple; nearest takes the even one of two", "nearest")
    width_max: int | None = option(_SIDE, "a wider result is squeezed to this width", None)
    method: Method = option(METHOD, "the filter's name", "bilinear")
    antialias: bool = option(flag(), "widen the filter when shrinking; false only with bilinear", True)
    scale: str | None = option(field_name(), "a field for original / resized of x and y", None)
    pixels_max: int = option(whole(1, PIXELS_MAX), "the most pixels of a result", 25_000_000)


def _resize_problems(options: ResizeImage) -> list[Trouble]:
    troubles: list[Trouble] = []
    exact = [name for name in ("width", "height") if getattr(options, name) is not None]
    relative = [name for name in ("short_side", "long_side") if getattr(options, name) is not None]
    if exact and relative:
        troubles.append((relative[0], f"beside {exact[0]}", "width and height, or short_side and long_side"))
    if not exact and not relative and options.multiple == 1:
        troubles.append(("width", "this step changes nothing", "width, height, short_side, long_side or multiple"))
    if options.when != "always" and len(exact) + len(relative) != 1:
        troubles.append(("when", options.when, "only with exactly one of width, height, short_side, long_side"))
    if len(relative) == 2 and (options.long_side or 0) < (options.short_side or 0):
        troubles.append(("long_side", str(options.long_side), f"at least short_side ({options.short_side})"))
    if options.width_max is not None and options.width is not None:
        troubles.append(("width_max", str(options.width_max), "not beside width"))
    if options.width_max is not None and options.width_max < options.multiple:
        troubles.append(("width_max", str(options.width_max), f"at least multiple ({options.multiple})"))
    return troubles + antialias_problems(options.method, options.antialias)


def _resized_fields(options: ResizeImage, known: FieldMap) -> list[Field]:
    source = source_image(known, options.input)
    made = [image_field(options.output or source.name, source.shape[-1])]
    if options.scale is not None:
        made.append(Field(options.scale, "FP32", (2,)))
    return made


def _resize(options: ResizeImage, known: FieldMap, context: Context) -> Prepared:
    source = source_image(known, options.input)
    resize = resizer("resize_image", options.method, options.antialias)

    def run(batch: Batch) -> None:
        scales = np.zeros((batch.rows, 2), dtype=np.float32)

        def resized(row: int, pixels: Pixels) -> Pixels:
            height, width = pixels.shape[:2]
            new_width, new_height = new_size(options, width, height)
            if new_width * new_height > options.pixels_max:
                raise too_many_pixels(source.name, new_width, new_height, options.pixels_max)
            scales[row] = width / new_width, height / new_height
            return resize(pixels, new_width, new_height)

        images = each_image(batch, source, resized)
        batch.columns[options.output or source.name] = images
        if options.scale is not None:
            batch.columns[options.scale] = scales

    return run


def new_size(options: ResizeImage, width: int, height: int) -> tuple[int, int]:
    """(width, height) of the result for an image of this size."""
    width, height = _proportional(options, width, height)
    if options.width_max is not None:
        width = min(width, options.width_max)
    if options.multiple > 1:
        width, height = (_to_multiple(side, options.multiple, options.multiple_rounding) for side in (width, height))
        if options.width_max is not None and width > options.width_max:
            width = options.width_max // options.multiple * options.multiple
    return width, height


def _proportional(options: ResizeImage, width: int, height: int) -> tuple[int, int]:
    if options.width is not None and options.height is not None:
        return options.width, options.height
    if options.width is not None:
        wide, wanted = True, options.width
    elif options.height is not None:
        wide, wanted = False, options.height
    elif options.short_side is not None:
        wide, wanted = width <= height, options.short_side
    elif options.long_side is not None:
        wide, wanted = width >= height, options.long_side
    else:
        return width, height
    side, other = (width, height) if wide else (height, width)
    if (options.when == "smaller" and side >= wanted) or (options.when == "larger" and side <= wanted):
        return width, height
    follows = divided(other * wanted, side, options.rounding)
    if options.short_side is not None and options.long_side is not None and follows > options.long_side:
        wanted, follows = divided(options.long_side * wanted, follows, options.rounding), options.long_side
    return (wanted, follows) if wide else (follows, wanted)


def _to_multiple(side: int, multiple: int, rounding: Rounding) -> int:
    return divided(side, multiple, rounding) * multiple


def divided(length: int, by: int, rounding: Rounding) -> int:
    """A quotient of whole numbers, at least 1; half goes to the even one, as Python's round."""
    quotient, rest = divmod(length, by)
    match rounding:
        case "nearest":
            quotient += 2 * rest > by or (2 * rest == by and quotient % 2 == 1)
        case "up":
            quotient += rest > 0
    return max(1, quotient)


RESIZE_IMAGE = Kind("resize_image", ResizeImage, _resized_fields, _resize, _resize_problems)
