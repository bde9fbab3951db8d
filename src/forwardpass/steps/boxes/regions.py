"""``text_regions``: the map of a text detector (DBNet) becomes the quads of its lines of text."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.boxes.fields import check_areas, factors, make_rows, map_problems, map_sources, score_map
from forwardpass.steps.image.pixels import load_opencv
from forwardpass.steps.kind import Kind, unfit
from forwardpass.steps.options import Trouble, field_name, flag, number, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

REGIONS_MAX = 10_000
SIDE_MAX = 1_000_000
SIDE_MIN = 3  # of a quad in the original; a line of text is higher
LINE_APART = 10  # quads whose tops are nearer than this stand in one line

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class TextRegions:
    """Finds the lines of text in the probability map [height, width] of a DBNet detector, as PaddleOCR and RapidOCR do.

    Each area above ``threshold`` gets the smallest rectangle around it; one whose mean probability reaches
    ``score_min`` is grown by area x ``unclip`` / perimeter on every side. Makes ``quads`` ragged FP32 [-1, 4, 2],
    whole pixels clockwise from top left, and ``scores`` ragged FP32 [-1], sorted in lines from top to bottom, in a line
    from left to right. They are in pixels of the map or, with ``scale`` (FP32 [2]) or ``image``, of the original. A map
    that holds NaN or has over 100,000 areas and holes fails its row, as does a scale that makes no size of a picture.
    Source: Liao et al., Real-time Scene Text Detection with Differentiable Binarization.
    """

    input: str | None = option(field_name(), "the probability map; without it the latest such field", None)
    threshold: float = option(number(), "a pixel is text when its probability is above this", 0.3)
    score_min: float = option(number(), "the least mean probability of a region", 0.5)
    unclip: float = option(number(), "how far regions are grown, as the share of area / perimeter", 1.6)
    size_min: float = option(
        number(), "the least shorter side of a region before it is grown, in pixels of the map", 3.0
    )
    count_max: int = option(whole(1, REGIONS_MAX), "the most areas that are looked at", 1000)
    dilate: bool = option(
        flag(), "thicken the areas by a pixel to the right and below first, which joins broken ones", False
    )
    scale: str | None = option(field_name(), "the original's size divided by the map's", None)
    image: str | None = option(field_name(), "the original, instead of scale", None)
    quads: str = option(field_name(), "where the quads go", "quads")
    scores: str = option(field_name(), "where their scores go", "scores")


def _problems(options: TextRegions) -> list[Trouble]:
    least = {"unclip": options.unclip, "size_min": options.size_min}
    return map_problems(least, options.scale, options.image)


def _fields(options: TextRegions, known: FieldMap) -> list[Field]:
    map_sources(known, options.input, options.scale, options.image)
    return [Field(options.quads, "FP32", (-1, 4, 2), "ragged"), Field(options.scores, "FP32", (-1,), "ragged")]


def _text_regions(options: TextRegions, known: FieldMap, context: Context) -> Prepared:
    source, scale, image = map_sources(known, options.input, options.scale, options.image)
    cv2 = load_opencv("text_regions")

    def regions(batch: Batch, row: int) -> tuple[Floats, Floats]:
        page = score_map(batch.columns[source.name][row], source)
        width, height = page.shape[::-1]
        if image is not None:
            width, height = batch.columns[image.name][row].shape[1::-1]
        elif scale is not None:
            width, height = _scaled(width, height, batch.columns[scale.name][row], scale)
        text = (page > np.float32(options.threshold)).astype(np.uint8)
        if options.dilate:
            text = cv2.dilate(text, np.ones((2, 2), dtype=np.uint8))
        check_areas(cv2, text, source, holes=True)
        return _regions(cv2, page, text, (width, height), options)

    def run(batch: Batch) -> None:
        make_rows(batch, [options.quads, options.scores], lambda row: regions(batch, row))

    return run


def _scaled(width: int, height: int, by: Floats, scale: Field) -> tuple[int, int]:
    sides = factors(by, scale) * (width, height)
    if sides.min() < 0.5 or sides.max() > SIDE_MAX:
        text = f"makes the original {sides[0]:g} x {sides[1]:g} pixels"
        raise unfit(scale, Code.OUTPUT_OUT_OF_RANGE, f"{text}; each side may be 1 to {SIDE_MAX}")
    return round(sides[0]), round(sides[1])


def _regions(
    cv2: Any, page: Floats, text: NDArray[np.uint8], size: tuple[int, int], options: TextRegions
) -> tuple[Floats, Floats]:
    contours, _ = cv2.findContours(text, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    quads: list[Floats] = []
    scores: list[float] = []
    for contour in contours[: options.count_max]:
        quad, score = _region(cv2, page, contour, size, options)
        if quad is not None:
            quads.append(quad)
            scores.append(score)
    found = np.array(quads, dtype=np.float32).reshape(-1, 4, 2)
    order = _reading_order(found)
    return found[order], np.array(scores, dtype=np.float32)[order]


def _region(
    cv2: Any, page: Floats, contour: NDArray[Any], size: tuple[int, int], options: TextRegions
) -> tuple[Floats | None, float]:
    """The quad around one area in the original and its score, or None when it is too small or too weak."""
    rectangle = cv2.minAreaRect(contour)
    if min(rectangle[1]) < options.size_min:
        return None, 0.0
    corners = _clockwise(cv2.boxPoints(rectangle))
    score = _mean_inside(cv2, page, corners)
    if score < options.score_min:
        return None, score
    rectangle = cv2.minAreaRect(_grown(corners, options.unclip))
    if min(rectangle[1]) < options.size_min + 2:
        return None, score
    quad = np.round(
        cv2.boxPoints(rectangle) / np.array(page.shape[::-1], dtype=np.float32) * np.array(size, dtype=np.float32)
    )
    quad = _clockwise(quad).clip(0, np.array(size, dtype=np.float32) - 1)
    sides = int(np.linalg.norm(quad[0] - quad[1])), int(np.linalg.norm(quad[0] - quad[3]))
    return (quad if min(sides) > SIDE_MIN else None), score


def _grown(corners: Floats, unclip: float) -> NDArray[np.int32]:
    """Points around a rectangle grown by area x unclip / perimeter, with round corners.

    Whole numbers and the arcs' steps are those of the Clipper library (arc tolerance 0.25), which the authors of these
    detectors use: where a region ends up differs by pixels otherwise.
    """
    shape = corners.astype(np.float64)
    edges = np.roll(shape, -1, axis=0) - shape
    perimeter = np.hypot(*edges.T).sum()
    if perimeter == 0:
        return np.trunc(shape).astype(np.int32)
    distance = unclip * abs(_cross(shape, np.roll(shape, -1, axis=0)).sum() / 2) / perimeter
    shape = np.trunc(shape)
    edges = np.roll(shape, -1, axis=0) - shape
    long = edges.any(axis=1)
    if distance == 0 or long.sum() < 2:
        return shape.astype(np.int32)
    shape, edges = shape[long], edges[long]
    normals = np.stack([edges[:, 1], -edges[:, 0]], axis=1) / np.hypot(*edges.T)[:, np.newaxis]
    steps_full = min(np.pi / np.arccos(1 - min(distance, 1.0) * 0.25 / distance), distance * np.pi)
    around: list[NDArray[np.float64]] = []
    for corner, before, after in zip(shape, np.roll(normals, 1, axis=0), normals, strict=True):
        turn = np.arctan2(_cross(before, after), before @ after)
        steps = max(int(steps_full / (2 * np.pi) * abs(turn) + 0.5), 1)
        angles = np.arctan2(before[1], before[0]) + np.arange(steps) * np.copysign(2 * np.pi / steps_full, turn)
        around += [corner + distance * np.stack([np.cos(angles), np.sin(angles)], axis=1)]
        around += [(corner + distance * after)[np.newaxis]]
    points = np.concatenate(around)
    return np.trunc(points + np.copysign(0.5, points)).astype(np.int32)


def _cross(first: NDArray[np.float64], second: NDArray[np.float64]) -> Any:
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]


def _clockwise(corners: Floats) -> Floats:
    """Top left first: the upper of the two leftmost, the upper and lower of the two others, the lower leftmost."""
    across = corners[np.argsort(corners[:, 0], kind="stable")]
    left, right = (pair[np.argsort(pair[:, 1], kind="stable")] for pair in (across[:2], across[2:]))
    return np.stack([left[0], right[0], right[1], left[1]])


def _mean_inside(cv2: Any, page: Floats, quad: Floats) -> float:
    """The mean probability of the pixels in a quad."""
    most = np.array(page.shape[::-1]) - 1
    left, top = np.floor(quad.min(axis=0)).astype(int).clip(0, most)
    right, bottom = np.ceil(quad.max(axis=0)).astype(int).clip(0, most)
    inside = np.zeros((bottom - top + 1, right - left + 1), dtype=np.uint8)
    cv2.fillPoly(inside, (quad - np.array([left, top], dtype=np.float32)).astype(np.int32)[np.newaxis], 1)
    return float(cv2.mean(page[top : bottom + 1, left : right + 1], inside)[0])


def _reading_order(quads: Floats) -> NDArray[np.int64]:
    tops = quads[:, 0, 1]
    down = np.argsort(tops, kind="stable")
    lines = np.cumsum(np.diff(tops[down], prepend=tops[down[:1]]) >= LINE_APART)
    order: NDArray[np.int64] = down[np.lexsort((quads[down, 0, 0], lines))]
    return order


TEXT_REGIONS = Kind("text_regions", TextRegions, _fields, _text_regions, _problems)
