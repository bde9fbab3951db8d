"""Steps of detectors in stages: ``refine_boxes`` moves the sides of boxes, ``place_points`` finds points in them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.pipeline import Field
from forwardpass.steps.boxes.fields import BOXES, make_rows, pick_if, unequal
from forwardpass.steps.kind import IMAGE, Fit, Kind, describe, invalid, not_finite, pick
from forwardpass.steps.options import Trouble, choice, field_name, flag, number, option, several
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

_POINTS = Fit(
    "points of each box (ragged FP32 [-1, numbers] or [-1, points, 2])",
    lambda field: (
        field.kind == "ragged" and field.datatype == "FP32" and (len(field.shape) == 2 or field.shape[2:] == (2,))
    ),
)


@dataclass(frozen=True, kw_only=True)
class RefineBoxes:
    """Corrects boxes by the four numbers that a detector gives for each, and makes squares of them if told to.

    ``form`` "sides": x1, y1, x2 and y2 are moved by these shares of the box's width and height, as in MTCNN. "center":
    the centre is moved by the first two, and width and height are multiplied by exp of the last two, as in R-CNN.
    The numbers are multiplied by ``std`` first. ``square`` makes of each box then the square around its centre whose
    side is the longer one.

    Makes boxes ragged FP32 [-1, 4]. A row fails when there is another number of offsets than of boxes, and when a
    box becomes one that is not finite.
    """

    boxes: str = option(field_name(), "the boxes, x1, y1, x2, y2", "boxes")
    offsets: str | None = option(field_name(), "their offsets (ragged FP32 [-1, 4]); without it none are applied", None)
    form: Literal["sides", "center"] | None = option(choice("sides", "center"), 'by default "sides"', None)
    std: tuple[float, ...] | None = option(several(number()), "four numbers, by default 1", None)
    square: bool = option(flag(), "make squares", False)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)


def _refine_problems(options: RefineBoxes) -> list[Trouble]:
    troubles: list[Trouble] = []
    if options.std is not None and len(options.std) != 4:
        troubles.append(("std", str(list(options.std)), "four numbers"))
    if options.offsets is None:
        troubles += [(key, "without offsets", "only with offsets") for key in ("form", "std") if getattr(options, key)]
        if not options.square:
            troubles.append(("offsets", "this step changes nothing", "offsets, square or both"))
    return troubles


def _refine_sources(options: RefineBoxes, known: FieldMap) -> tuple[Field, Field | None]:
    return pick(known, options.boxes, BOXES, "boxes"), pick_if(known, options.offsets, BOXES, "offsets")


def _refine_fields(options: RefineBoxes, known: FieldMap) -> list[Field]:
    source, _ = _refine_sources(options, known)
    return [Field(options.output or source.name, "FP32", (-1, 4), "ragged")]


def _refine(options: RefineBoxes, known: FieldMap, context: Context) -> Prepared:
    source, offsets = _refine_sources(options, known)
    std = np.array(options.std or (1.0,) * 4)

    def refined(boxes: NDArray[np.float32], moves: NDArray[np.float32] | None) -> NDArray[np.float32]:
        corners = boxes.astype(np.float64)
        with np.errstate(all="ignore"):  # what is not finite is found below
            if moves is not None:
                corners = _moved(corners, moves * std, options.form == "center")
            result: NDArray[np.float32] = (_squares(corners) if options.square else corners).astype(np.float32)
        if not np.isfinite(result).all():
            raise not_finite(offsets or source)
        return result

    def moved(batch: Batch, row: int) -> NDArray[np.float32]:
        boxes = batch.columns[source.name][row]
        moves = None if offsets is None else batch.columns[offsets.name][row]
        if offsets is not None and moves is not None and len(moves) != len(boxes):
            raise unequal(offsets, len(moves), source, len(boxes))
        return refined(boxes, moves)

    def run(batch: Batch) -> None:
        make_rows(batch, [options.output or source.name], lambda row: [moved(batch, row)])

    return run


def _moved(boxes: NDArray[np.float64], moves: NDArray[Any], center: bool) -> NDArray[np.float64]:
    first, sizes = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    if not center:
        corners: NDArray[np.float64] = boxes + moves * np.tile(sizes, 2)
        return corners
    middle, half = first + sizes / 2 + moves[:, :2] * sizes, sizes * np.exp(moves[:, 2:]) / 2
    return np.concatenate([middle - half, middle + half], axis=1)


def _squares(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    half = (boxes[:, 2:] - boxes[:, :2]).max(axis=1, keepdims=True, initial=-np.inf) / 2
    return np.concatenate([middle - half, middle + half], axis=1)


@dataclass(frozen=True, kw_only=True)
class PlacePoints:
    """Brings points that a network found in the crops of boxes (landmarks, joints) to the picture they were cut from.

    A point (x, y) of a crop whose box is x1, y1, x2, y2 is (x1 + x * width, y1 + y * height) of the picture, x and y
    divided by ``size`` first: [1, 1] where they are shares of the crop, the crop's size where they are pixels of it.
    ``order`` says how they are written: "xy", x1, y1, x2, y2, ...; "xxyy", first each x and then each y, as in MTCNN.

    Makes ``output`` ragged FP32 [-1, points, 2]; with ``image``, the picture, what lies outside of it is moved to its
    edge. A row fails when there is another number of them than of boxes, and when one is not finite.
    """

    input: str | None = option(field_name(), "the points; without it the latest such field", None)
    boxes: str = option(field_name(), "the boxes whose crops these are", "boxes")
    order: Literal["xy", "xxyy"] = option(choice("xy", "xxyy"), "how the numbers of a box are written", "xy")
    size: tuple[float, ...] = option(several(number()), "[width, height] of a crop in the points' own unit", (1.0, 1.0))
    image: str | None = option(field_name(), "the picture, to whose size the result is clipped", None)
    output: str = option(field_name(), "where the points go", "points")


def _points_problems(options: PlacePoints) -> list[Trouble]:
    if len(options.size) != 2 or min(options.size) <= 0:
        return [("size", str(list(options.size)), "[width, height], both above 0")]
    return []


def _points_sources(options: PlacePoints, known: FieldMap) -> tuple[Field, Field, Field | None]:
    source = pick(known, options.input, _POINTS, besides=(options.boxes,))
    boxes = pick(known, options.boxes, BOXES, "boxes")
    if len(source.shape) == 2 and (source.shape[1] < 2 or source.shape[1] % 2):
        raise invalid("input", describe(source), "an even number of numbers for each box")
    if len(source.shape) == 3 and options.order != "xy":
        raise invalid("order", options.order, f"only with points in one row; {describe(source)} has pairs")
    return source, boxes, pick_if(known, options.image, IMAGE, "image")


def _points_fields(options: PlacePoints, known: FieldMap) -> list[Field]:
    source, _, _ = _points_sources(options, known)
    count = source.shape[1] if len(source.shape) == 3 else source.shape[1] // 2
    return [Field(options.output, "FP32", (-1, count, 2), "ragged")]


def _place_points(options: PlacePoints, known: FieldMap, context: Context) -> Prepared:
    source, boxes, image = _points_sources(options, known)
    size = np.array(options.size)

    def placed(found: NDArray[np.float32], around: NDArray[np.float32]) -> NDArray[np.float64]:
        if len(found) != len(around):
            raise unequal(source, len(found), boxes, len(around))
        count = len(found)
        if found.ndim == 2 and options.order == "xxyy":
            found = found.reshape(count, 2, found.shape[1] // 2).transpose(0, 2, 1)
        points = found.reshape(count, found.shape[1] if found.ndim == 3 else found.shape[1] // 2, 2)
        first, second = around[:, np.newaxis, :2].astype(np.float64), around[:, np.newaxis, 2:].astype(np.float64)
        with np.errstate(all="ignore"):  # what is not finite is found below
            result: NDArray[np.float64] = first + points / size * (second - first)
        if not np.isfinite(result).all():
            raise not_finite(source)
        return result

    def clipped(batch: Batch, row: int) -> NDArray[np.float32]:
        points = placed(batch.columns[source.name][row], batch.columns[boxes.name][row])
        if image is not None:
            points = points.clip(0, batch.columns[image.name][row].shape[1::-1])
        return points.astype(np.float32)

    def run(batch: Batch) -> None:
        make_rows(batch, [options.output], lambda row: [clipped(batch, row)])

    return run


REFINE_BOXES = Kind("refine_boxes", RefineBoxes, _refine_fields, _refine, _refine_problems)
PLACE_POINTS = Kind("place_points", PlacePoints, _points_fields, _place_points, _points_problems)
