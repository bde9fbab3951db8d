"""``mask_polygons``: a map of scores becomes the outlines of what it marks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.pipeline import Field
from forwardpass.steps.boxes.fields import (
    AREAS_MAX,
    check_areas,
    factors,
    make_rows,
    map_problems,
    map_sources,
    score_map,
)
from forwardpass.steps.image.pixels import load_opencv
from forwardpass.steps.kind import Kind
from forwardpass.steps.options import Trouble, field_name, number, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared


@dataclass(frozen=True, kw_only=True)
class MaskPolygons:
    """Finds the areas of a map [height, width] whose scores are above ``threshold``; their outer outlines, largest first.

    Makes a JSON list of polygons, each a list of [x, y] through the centres of the pixels at its edge, in pixels of the
    map or, with ``scale`` (FP32 [2]) or ``image``, of the original. Holes are not followed; what is only a point or a
    line is left out. A map that holds NaN or marks over 100,000 areas fails its row, as does a scale that is not above
    0. OpenCV's findContours and approxPolyDP do the work.
    """

    input: str | None = option(field_name(), "the map of scores; without it the latest such field", None)
    threshold: float = option(number(), "a pixel belongs to an area when its score is above this", 0.5)
    area_min: float = option(number(), "the least area of a polygon, in pixels of the map", 0.0)
    epsilon: float = option(number(), "how far, in pixels of the map, a simpler outline may be from the real one", 0.0)
    count_max: int = option(whole(1, AREAS_MAX), "the most polygons that come back", 1000)
    scale: str | None = option(field_name(), "the original's size divided by the map's", None)
    image: str | None = option(field_name(), "the original, instead of scale", None)
    output: str = option(field_name(), "where the polygons go", "polygons")


def _problems(options: MaskPolygons) -> list[Trouble]:
    least = {"area_min": options.area_min, "epsilon": options.epsilon}
    return map_problems(least, options.scale, options.image)


def _fields(options: MaskPolygons, known: FieldMap) -> list[Field]:
    map_sources(known, options.input, options.scale, options.image)
    return [Field(options.output, "BYTES", (), "json")]


def _mask_polygons(options: MaskPolygons, known: FieldMap, context: Context) -> Prepared:
    source, scale, image = map_sources(known, options.input, options.scale, options.image)
    cv2 = load_opencv("mask_polygons")

    def polygons(batch: Batch, row: int) -> list[Any]:
        scores = score_map(batch.columns[source.name][row], source)
        by: NDArray[np.float64] | None = None
        if scale is not None:
            by = factors(batch.columns[scale.name][row], scale)
        elif image is not None:
            by = np.divide(batch.columns[image.name][row].shape[1::-1], scores.shape[::-1])
        inside = (scores > np.float32(options.threshold)).astype(np.uint8)
        check_areas(cv2, inside, source)
        return [(line if by is None else line * by).tolist() for line in _outlines(cv2, inside, options)]

    def run(batch: Batch) -> None:
        make_rows(batch, [options.output], lambda row: [polygons(batch, row)])

    return run


def _outlines(cv2: Any, inside: NDArray[np.uint8], options: MaskPolygons) -> list[NDArray[Any]]:
    """Integer points of each area, largest first; of equal ones the one that was found first."""
    contours, _ = cv2.findContours(inside, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if options.epsilon:
        contours = [cv2.approxPolyDP(contour, options.epsilon, True) for contour in contours]
    sized = [(cv2.contourArea(contour), contour) for contour in contours]
    real = [(area, contour) for area, contour in sized if area > 0 and area >= options.area_min]
    real.sort(key=lambda one: -one[0])
    return [contour.reshape(-1, 2) for _, contour in real[: options.count_max]]


MASK_POLYGONS = Kind("mask_polygons", MaskPolygons, _fields, _mask_polygons, _problems)
