"""``image_pyramid``: an image in many sizes, so that a network which sees one size finds things of every size."""

import math
from dataclasses import dataclass

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
from forwardpass.steps.image.resize import METHOD, antialias_problems
from forwardpass.steps.kind import Kind
from forwardpass.steps.options import Trouble, field_name, flag, number, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

LARGEST_MAX = 16.0
FACTOR_MAX = 0.95


@dataclass(frozen=True, kw_only=True)
class ImagePyramid:
    """Makes smaller and smaller copies of a decoded image; from here on, until ``fold``, a row is one copy.

    The first is ``largest`` times as large as the image, each other ``factor`` times as large as the one before, down
    to the last whose shorter side, not yet rounded, is at least ``side_min``: none of an image that is too small. Sides
    are rounded up. MTCNN, which sees 12 pixels, finds faces of 20 with ``largest = 0.6`` (12 / 20).

    Makes ``output``, ragged UINT8 [height, width, channels], and ``scale``, FP32 [2]: x and y of original / copy, so a
    box found in the copy, multiplied by it (``map_boxes``), is one of the original. ``method`` and ``antialias`` are
    those of ``resize_image``. A copy over ``pixels_max`` fails the row.
    """

    input: str | None = option(field_name(), "the image; without it the latest decoded one", None)
    output: str = option(field_name(), "where a copy goes", "copy")
    scale: str = option(field_name(), "a field for original / copy of x and y", "scale")
    largest: float = option(number(), f"size of the first copy, above 0, at most {LARGEST_MAX:g}", 1.0)
    factor: float = option(number(), f"size of each copy to the one before, 0.1 to {FACTOR_MAX}", 0.709)
    side_min: int = option(whole(1, SIDE_MAX), "the least shorter side of a copy", 12)
    method: Method = option(METHOD, "the filter's name", "bilinear")
    antialias: bool = option(flag(), "widen the filter when shrinking; false only with bilinear", True)
    pixels_max: int = option(whole(1, PIXELS_MAX), "the most pixels of a copy", 25_000_000)


def _pyramid_problems(options: ImagePyramid) -> list[Trouble]:
    troubles: list[Trouble] = []
    if not 0 < options.largest <= LARGEST_MAX:
        troubles.append(("largest", str(options.largest), f"a number above 0, at most {LARGEST_MAX:g}"))
    if not 0.1 <= options.factor <= FACTOR_MAX:
        troubles.append(("factor", str(options.factor), f"a number from 0.1 to {FACTOR_MAX}"))
    return troubles + antialias_problems(options.method, options.antialias)


def _pyramid_fields(options: ImagePyramid, known: FieldMap) -> list[Field]:
    source = source_image(known, options.input)
    return [image_field(options.output, source.shape[-1]), Field(options.scale, "FP32", (2,))]


def _pyramid(options: ImagePyramid, known: FieldMap, context: Context) -> Prepared:
    source = source_image(known, options.input)
    resize = resizer("image_pyramid", options.method, options.antialias)

    def run(batch: Batch) -> None:
        each_image(batch, source, sizes)
        batch.settle()  # rows have other numbers once they are copies
        counts: list[int] = []
        copies: list[Pixels] = []
        scales: list[tuple[float, float]] = []
        for row, pixels in enumerate(batch.columns[source.name]):
            height, width = pixels.shape[:2]
            wanted = sizes(row, pixels)
            counts.append(len(wanted))
            copies += [resize(pixels, *size) for size in wanted]
            scales += [(width / new_width, height / new_height) for new_width, new_height in wanted]
        scale = np.array(scales, dtype=np.float32).reshape(len(copies), 2)
        batch.expand(counts, {options.output: object_column(copies), options.scale: scale})

    def sizes(_: int, pixels: Pixels) -> list[tuple[int, int]]:
        return _sizes(options, source.name, *pixels.shape[:2])

    return run


def _sizes(options: ImagePyramid, source: str, height: int, width: int) -> list[tuple[int, int]]:
    """(width, height) of each copy. Raises Refused for one that is too large."""
    found: list[tuple[int, int]] = []
    size = options.largest
    while min(height, width) * size >= options.side_min:
        found.append((math.ceil(width * size), math.ceil(height * size)))
        size *= options.factor
    if found and math.prod(found[0]) > options.pixels_max:
        raise too_many_pixels(source, *found[0], options.pixels_max)
    return found


IMAGE_PYRAMID = Kind("image_pyramid", ImagePyramid, _pyramid_fields, _pyramid, _pyramid_problems, level=1)
