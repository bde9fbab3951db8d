"""``map_boxes``: boxes, quads and points of the picture that a model saw, brought back to the original one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.pipeline import Field
from forwardpass.steps.boxes.fields import PLACES, SCALE, factors, make_rows, pick_if
from forwardpass.steps.kind import IMAGE, Fit, Kind, not_finite, pick
from forwardpass.steps.options import Trouble, field_name, option
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared

_PLACE = Fit("a letterbox's place (FP32 [4])", lambda field: field.datatype == "FP32" and field.shape == (4,))


@dataclass(frozen=True, kw_only=True)
class MapBoxes:
    """Brings boxes, quads or points from the picture the model saw back to the original one.

    With ``place`` (FP32 [4]: scale x, scale y, offset x, offset y, as letterbox_image makes it) a coordinate becomes
    (coordinate - offset) / scale; with ``scale`` (FP32 [2]) it is multiplied. With ``image``, the original, what lies
    outside of it is moved to its edge. A coordinate that is not finite, or a scale that is not above 0, fails the row.
    """

    input: str | None = option(field_name(), "boxes, quads or points; without it the latest such field", None)
    place: str | None = option(field_name(), "where the original lies in a letterboxed picture", None)
    scale: str | None = option(field_name(), "the original's size divided by the resized one's", None)
    image: str | None = option(field_name(), "the original, to whose size the result is clipped", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)


def _map_problems(options: MapBoxes) -> list[Trouble]:
    if (options.place is None) == (options.scale is None):
        return [("place", "none or both of place and scale", "one of place and scale")]
    return []


def _map_sources(options: MapBoxes, known: FieldMap) -> tuple[Field, Field, Field | None]:
    source = pick(known, options.input, PLACES)
    place = pick_if(known, options.place, _PLACE, "place") or pick(known, options.scale, SCALE, "scale")
    return source, place, pick_if(known, options.image, IMAGE, "image")


def _map_fields(options: MapBoxes, known: FieldMap) -> list[Field]:
    source, _, _ = _map_sources(options, known)
    return [Field(options.output or source.name, "FP32", source.shape, "ragged")]


def _map_boxes(options: MapBoxes, known: FieldMap, context: Context) -> Prepared:
    source, place, image = _map_sources(options, known)

    def mapped(columns: dict[str, Column], row: int) -> NDArray[np.float32]:
        given: NDArray[np.float32] = columns[source.name][row]
        points = given.reshape(-1, 2).astype(np.float64)
        by = factors(columns[place.name][row][:2], place)
        with np.errstate(all="ignore"):  # what is not finite is found below
            points = points * by if options.place is None else (points - columns[place.name][row][2:]) / by
        if not np.isfinite(points).all():  # before clipping makes a number of an infinity
            raise not_finite(source)
        if image is not None:
            points = points.clip(0, columns[image.name][row].shape[1::-1])
        with np.errstate(over="ignore"):
            result: NDArray[np.float32] = points.reshape(given.shape).astype(np.float32)
        if not np.isfinite(result).all():
            raise not_finite(source)
        return result

    def run(batch: Batch) -> None:
        make_rows(batch, [options.output or source.name], lambda row: [mapped(batch.columns, row)])

    return run


MAP_BOXES = Kind("map_boxes", MapBoxes, _map_fields, _map_boxes, _map_problems)
