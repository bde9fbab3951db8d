"""``image_tensor``: decoded images as the numbers a model takes."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.image.pixels import LAYOUT, SIDE_MAX, Layout, Pixels, by_rows, each_image, grey, source_image
from forwardpass.steps.kind import Kind, describe, invalid
from forwardpass.steps.options import Trouble, choice, field_name, number, option, several, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

Array = NDArray[Any]
Write = Callable[[Pixels, Array], None]
"""Writes the numbers of an image into an array [height, width, channels]."""
_NUMPY = {"FP32": np.float32, "FP16": np.float16, "UINT8": np.uint8}
_SIDES = several(whole(1, SIDE_MAX))


@dataclass(frozen=True, kw_only=True)
class ImageTensor:
    """Turns a decoded image into numbers: ``(level * scale - mean) / std`` for each channel, computed as a * level + b.

    Computed in float32, within 3e-7 of the greater of |level * scale / std| and |mean / std|. ``mean`` and ``std`` are
    in the order of ``color``, one for each channel or one for all. Makes ``datatype`` [channels, height,
    width] ("chw") or in another order of these axes: one tensor of all rows when ``size`` says what every image
    measures (another fails its row with ``shape_mismatch``), else ragged, -1 in place of height and width.

    Ragged images can be padded at their right and bottom with ``pad`` (a value of the tensor, after mean and std):
    ``width_buckets`` to the next of these widths, so that few shapes reach the model (a wider one fails its row with
    ``input_too_large``); ``sides_multiple`` to the next multiple of both sides.
    """

    input: str | None = option(field_name(), "the image; without it the latest decoded one", None)
    output: str = option(field_name(), "where the numbers go", "tensor")
    color: Literal["rgb", "bgr", "gray"] = option(choice("rgb", "bgr", "gray"), "which channels, in which order", "rgb")
    scale: float = option(number(), "what levels (0 to 255) are multiplied with first, e.g. 0.00392156862745098", 1.0)
    mean: tuple[float, ...] = option(several(number()), "subtracted then", (0.0,))
    std: tuple[float, ...] = option(several(number()), "what is divided by last", (1.0,))
    layout: Layout = option(LAYOUT, "the order of the axes: channels, height, width", "chw")
    datatype: Literal["FP32", "FP16", "UINT8"] = option(choice("FP32", "FP16", "UINT8"), "of the numbers", "FP32")
    size: tuple[int, ...] | None = option(several(whole(1, SIDE_MAX), least=2), "[width, height] of every image", None)
    width_buckets: tuple[int, ...] = option(_SIDES, "widths to pad up to, ascending", ())
    sides_multiple: int = option(whole(1, 4096), "both sides are padded to a multiple of this", 1)
    pad: float = option(number(), "the value of what is padded", 0.0)


def _tensor_problems(options: ImageTensor) -> list[Trouble]:
    troubles: list[Trouble] = []
    channels = 1 if options.color == "gray" else 3
    for key, values in (("mean", options.mean), ("std", options.std)):
        if len(values) not in (1, channels):
            troubles.append((key, f"{len(values)} numbers", "one" if channels == 1 else f"one, or {channels}"))
    if 0 in options.std:
        troubles.append(("std", "0", "numbers other than 0"))
    if options.datatype == "UINT8" and (options.scale != 1 or any(options.mean) or set(options.std) != {1.0}):
        troubles.append(("datatype", "UINT8 with scale, mean or std", "FP32 or FP16 beside these"))
    if options.datatype == "UINT8" and not (options.pad.is_integer() and 0 <= options.pad <= 255):
        troubles.append(("pad", str(options.pad), "a whole number from 0 to 255 with UINT8"))
    if not troubles and not _fits(options):
        troubles.append(("scale", f"numbers too large for {options.datatype}", "a scale, mean, std and pad that fit"))
    if options.size is not None and len(options.size) != 2:
        troubles.append(("size", str(list(options.size)), "two numbers: [width, height]"))
    if (options.size is not None) + bool(options.width_buckets) + (options.sides_multiple > 1) > 1:
        troubles.append(("size", "several ways to a size", "one of size, width_buckets and sides_multiple"))
    if any(a >= b for a, b in zip(options.width_buckets, options.width_buckets[1:], strict=False)):
        troubles.append(("width_buckets", str(list(options.width_buckets)), "ascending widths"))
    return troubles


def _fits(options: ImageTensor) -> bool:
    """Whether the numbers of the darkest and the brightest level, and the padding, are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        levels = np.array([[0.0], [255.0]]) * options.scale
        extremes = (levels - np.array(options.mean)) / np.array(options.std)
        numbers = np.append(extremes, (options.pad, *(options.scale * 255 / np.array(options.std))))
        return bool(np.isfinite(numbers.astype(_NUMPY[options.datatype])).all())


def _source(options: ImageTensor, known: FieldMap) -> Field:
    source = source_image(known, options.input)
    if source.shape[-1] == 1 and options.color != "gray":
        raise invalid("color", f"{options.color} of {describe(source)}", 'an image with 3 channels, or color = "gray"')
    return source


def _shape(options: ImageTensor, width: int, height: int) -> tuple[int, int, int]:
    sizes = {"c": 1 if options.color == "gray" else 3, "h": height, "w": width}
    first, second, third = (sizes[axis] for axis in options.layout)
    return first, second, third


def _tensor_fields(options: ImageTensor, known: FieldMap) -> list[Field]:
    _source(options, known)
    if options.size is not None:
        return [Field(options.output, options.datatype, _shape(options, *options.size))]
    return [Field(options.output, options.datatype, _shape(options, -1, -1), "ragged")]


def _tensor(options: ImageTensor, known: FieldMap, context: Context) -> Prepared:
    source = _source(options, known)
    write = _writer(options)
    return _dense(options, source, write) if options.size is not None else _ragged(options, source, write)


def _dense(options: ImageTensor, source: Field, write: Write) -> Prepared:
    width, height = options.size or (0, 0)

    def run(batch: Batch) -> None:
        tensor = np.zeros((batch.rows, *_shape(options, width, height)), dtype=_NUMPY[options.datatype])

        def written(row: int, pixels: Pixels) -> None:
            if pixels.shape[:2] != (height, width):
                found = f"{source.name}: is {pixels.shape[1]} x {pixels.shape[0]} pixels"
                raise Refused(Code.SHAPE_MISMATCH, f"{found}; {width} x {height} are needed", field=source.name)
            write(pixels, by_rows(tensor[row], options.layout))

        each_image(batch, source, written)
        batch.columns[options.output] = tensor

    return run


def _ragged(options: ImageTensor, source: Field, write: Write) -> Prepared:
    def numbers(_: int, pixels: Pixels) -> Array:
        height, width = pixels.shape[:2]
        if options.width_buckets and width > options.width_buckets[-1]:
            text = f"{source.name}: is {width} pixels wide; at most {options.width_buckets[-1]} are taken"
            raise Refused(Code.INPUT_TOO_LARGE, text, field=source.name)
        shape = _shape(options, *_padded(options, width, height))
        tensor = np.full(shape, options.pad, dtype=_NUMPY[options.datatype])
        write(pixels, by_rows(tensor, options.layout)[:height, :width])
        return tensor

    def run(batch: Batch) -> None:
        batch.columns[options.output] = each_image(batch, source, numbers)

    return run


def _padded(options: ImageTensor, width: int, height: int) -> tuple[int, int]:
    """(width, height) with what is padded."""
    if options.width_buckets:
        return options.width_buckets[bisect_left(options.width_buckets, width)], height
    multiple = options.sides_multiple
    return -(-width // multiple) * multiple, -(-height // multiple) * multiple


def _writer(options: ImageTensor) -> Write:
    channels = 1 if options.color == "gray" else 3
    mean, std = (np.broadcast_to(np.array(each, dtype=np.float64), channels) for each in (options.mean, options.std))
    factor, addend = (options.scale / std).astype(np.float32), (-mean / std).astype(np.float32)
    plain = bool((factor == 1).all() and (addend == 0).all())
    order = (2, 1, 0) if options.color == "bgr" else range(channels)

    def write(pixels: Pixels, tensor: Array) -> None:
        levels = grey(pixels) if options.color == "gray" else pixels
        for channel, stored in enumerate(order):
            numbers = tensor[..., channel]
            if plain:
                numbers[...] = levels[..., stored]
            elif options.datatype == "FP32":
                numbers[...] = levels[..., stored]
                numbers *= factor[channel]
                numbers += addend[channel]
            else:  # FP16 is rounded once, at the end
                numbers[...] = levels[..., stored] * factor[channel] + addend[channel]

    return write


IMAGE_TENSOR = Kind("image_tensor", ImageTensor, _tensor_fields, _tensor, _tensor_problems)
