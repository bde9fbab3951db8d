"""Pixels: what the image steps share. An image is a numpy array UINT8 [height, width, 1 or 3], never written to."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failure, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import IMAGE, describe, invalid, library_missing, pick, unfit
from forwardpass.steps.options import Rule, choice, either, several, whole
from forwardpass.steps.protocol import Batch, Column, FieldMap, object_column

Pixels = NDArray[np.uint8]
Method = Literal["bilinear", "bicubic", "area", "nearest", "lanczos"]
Layout = Literal["chw", "hwc", "cwh", "whc"]
Resize = Callable[[Pixels, int, int], Pixels]
"""(image, width, height) -> the image in that size."""

SIDE_MAX = 65_535
PIXELS_MAX = 178_956_970
"""The most a step can be set to allow: twice Pillow's MAX_IMAGE_PIXELS, past which some of its decoders refuse."""
JPEG_SIDE_MAX = 65_500  # of libjpeg


def each_row(batch: Batch, name: str, act: Callable[[int, Any], Any]) -> Column:
    """A column of ``act(row, value)`` for the field's values; where it raises a Failure, that row alone fails."""
    made: list[Any] = []
    for row, value in enumerate(batch.columns[name]):
        try:
            made.append(act(row, value))
        except Failure as failure:
            batch.fail(row, failure)
            made.append(None)
    return object_column(made)


def each_image(batch: Batch, source: Field, act: Callable[[int, Pixels], Any]) -> Column:
    """``each_row`` for decoded images: one without pixels fails its row before anything is done with it."""

    def with_pixels(row: int, pixels: Pixels) -> Any:
        if 0 in pixels.shape:
            height, width = pixels.shape[:2]
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, f"is {width} x {height} pixels: it has none")
        return act(row, pixels)

    return each_row(batch, source.name, with_pixels)


def source_image(known: FieldMap, name: str | None) -> Field:
    """The decoded image to work on, with 1 or 3 channels."""
    source = pick(known, name, IMAGE)
    if source.shape[-1] not in (1, 3):
        raise invalid("input", describe(source), "an image with 1 or 3 channels")
    return source


def image_field(name: str, channels: int) -> Field:
    return Field(name, "UINT8", (-1, -1, channels), "ragged")


def pillow(step: str) -> Any:
    """The module PIL.Image. Raises Misconfigured when the library is not installed.

    Its settings and Python's warning filters are the process's, and left alone: MAX_IMAGE_PIXELS counts for GIF and
    WebP beside a step's own bound (twice of it is refused), and a GIF above it may be warned of.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise library_missing(step, "Pillow", "image", error) from None
    return Image


def too_many_pixels(name: str, width: int, height: int, most: int) -> Refused:
    text = f"{name}: {width} x {height} are {width * height} pixels; at most {most} are allowed"
    return Refused(Code.INPUT_TOO_LARGE, text, field=name)


def check_jpeg_size(name: str, pixels: Pixels) -> None:
    """Refuse an image that is too large to be written as a JPEG."""
    height, width = pixels.shape[:2]
    if max(height, width) > JPEG_SIDE_MAX:
        text = f"{name}: is {width} x {height} pixels; a JPEG has at most {JPEG_SIDE_MAX} on a side"
        raise Refused(Code.INPUT_TOO_LARGE, text, field=name)


def by_rows(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """A view [height, width, channels] of an array whose axes are in this order."""
    return array.transpose([layout.index(axis) for axis in "hwc"])


def as_picture(image_module: Any, pixels: Pixels) -> Any:
    """A Pillow image of these pixels."""
    return image_module.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def as_pixels(picture: Any) -> Pixels:
    """The pixels of a Pillow image in mode L or RGB."""
    pixels: Pixels = np.asarray(picture, dtype=np.uint8)
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


def grey(pixels: Pixels) -> Pixels:
    """One channel by ITU-R 601-2 luma, in the integer arithmetic of Pillow's convert("L")."""
    if pixels.shape[-1] == 1:
        return pixels
    luma = pixels[..., 0] * np.uint32(19595)
    luma += pixels[..., 1] * np.uint32(38470)
    luma += pixels[..., 2] * np.uint32(7471)
    luma += np.uint32(0x8000)
    luma >>= np.uint32(16)
    return luma.astype(np.uint8)[..., np.newaxis]


def resizer(step: str, method: Method, antialias: bool) -> Resize:
    """Pillow's filters, which widen when they shrink; bilinear without that is OpenCV's INTER_LINEAR."""
    return _opencv(step) if method == "bilinear" and not antialias else _filters(step, method)


def _filters(step: str, method: Method) -> Resize:
    image_module = pillow(step)
    names = {"bilinear": "BILINEAR", "bicubic": "BICUBIC", "area": "BOX", "nearest": "NEAREST", "lanczos": "LANCZOS"}
    kernel = image_module.Resampling[names[method]]

    def resize(pixels: Pixels, width: int, height: int) -> Pixels:
        if pixels.shape[:2] == (height, width):
            return pixels
        return as_pixels(as_picture(image_module, pixels).resize((width, height), kernel))

    return resize


def load_opencv(step: str) -> Any:
    """The module cv2. Its threads are the process's: a worker starts with one, and a caller's own are left alone."""
    try:
        import cv2
    except ImportError as error:
        raise library_missing(step, "OpenCV", "vision", error) from None
    return cv2


def _opencv(step: str) -> Resize:
    cv2 = load_opencv(step)

    def resize(pixels: Pixels, width: int, height: int) -> Pixels:
        if pixels.shape[:2] == (height, width):
            return pixels
        resized: Pixels = np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)
        return resized[..., np.newaxis] if resized.ndim == 2 else resized

    return resize


LAYOUT = choice("chw", "hwc", "cwh", "whc")
LEVEL = whole(0, 255)
COLOR: Rule = either(LEVEL, several(LEVEL, least=1))
"""One level for all channels, or one for each."""


def fill_color(value: int | tuple[int, ...], channels: int, key: str = "fill") -> Pixels:
    """The colour of what an image does not cover, for each channel. Raises Misconfigured."""
    levels = (value,) * channels if isinstance(value, int) else value
    if len(levels) != channels:
        raise invalid(key, f"{len(levels)} levels", f"one level, or {channels}: one for each channel")
    return np.array(levels, dtype=np.uint8)
