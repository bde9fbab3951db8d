"""``nms``: of boxes that overlap, one is kept."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.boxes.fields import BOXES, CLASSES, CONFIDENCES, NAMES, make_rows, unequal
from forwardpass.steps.kind import Fit, Kind, not_finite, pick, unfit
from forwardpass.steps.options import Trouble, choice, field_name, flag, number, option, several, whole
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared

BOXES_MAX = 100_000
_ALONG = Fit(
    "a field with one element a box (ragged, texts or json)", lambda field: field.kind in ("ragged", "texts", "json")
)


@dataclass(frozen=True, kw_only=True)
class Nms:
    """Keeps the best boxes and drops each that overlaps a better one by more than ``iou_max``; in place, best first.

    Greedy suppression by intersection over union, as torchvision and OpenCV do it, or with ``share_of = "smaller"``
    by intersection over the smaller box, which also drops a part of a thing; of equal scores the box that stood first
    wins. Only boxes of one class suppress each other. ``boxes`` ragged FP32 [-1, 4], ``scores`` ragged FP32 [-1], the
    class numbers and each field of ``also`` keep the elements of the boxes that stay. A row fails when one of
    these has another number of elements, and when a score is NaN or a box not finite.
    """

    boxes: str = option(field_name(), "the boxes, x1, y1, x2, y2", "boxes")
    scores: str = option(field_name(), "their scores", "scores")
    classes: str | None = option(field_name(), 'their class numbers, by default "classes" unless across_classes', None)
    also: tuple[str, ...] | None = option(
        several(field_name(), distinct=True),
        'further fields with one element a box; without it "names" and "classes" where there are such',
        None,
    )
    iou_max: float = option(number(), "the overlap that is still allowed, 0 to 1", 0.45)
    share_of: Literal["union", "smaller"] = option(
        choice("union", "smaller"),
        "what the shared area is divided by: both boxes' area, or the smaller box's",
        "union",
    )
    across_classes: bool = option(flag(), "let boxes suppress those of other classes too", False)
    count_max: int = option(whole(1, BOXES_MAX), "the most boxes that stay", 300)
    score_min: float | None = option(number(), "the least score that stays", None)


def _nms_problems(options: Nms) -> list[Trouble]:
    troubles: list[Trouble] = []
    if not 0 <= options.iou_max <= 1:
        troubles.append(("iou_max", str(options.iou_max), "a number from 0 to 1"))
    if options.across_classes and options.classes is not None:
        troubles.append(("classes", options.classes, "not with across_classes; also keeps a field along"))
    return troubles


def _nms_sources(options: Nms, known: FieldMap) -> tuple[Field, Field, Field | None, list[Field]]:
    """The boxes, their scores, their classes if these matter, and all fields that are kept along."""
    boxes, scores = pick(known, options.boxes, BOXES, "boxes"), pick(known, options.scores, CONFIDENCES, "scores")
    classes = None if options.across_classes else pick(known, options.classes or "classes", CLASSES, "classes")
    usual = [name for name, fit in (("names", NAMES), ("classes", CLASSES)) if name in known and fit.test(known[name])]
    along = [pick(known, name, _ALONG, "also") for name in (usual if options.also is None else options.also)]
    along += [boxes, scores, *([] if classes is None else [classes])]
    return boxes, scores, classes, list({field.name: field for field in along}.values())


def _nms_fields(options: Nms, known: FieldMap) -> list[Field]:
    return _nms_sources(options, known)[3]


def _nms(options: Nms, known: FieldMap, context: Context) -> Prepared:
    boxes, scores, classes, along = _nms_sources(options, known)

    def kept(columns: dict[str, Column], row: int) -> NDArray[np.int64]:
        count = len(columns[boxes.name][row])
        for field in along:
            value = columns[field.name][row]
            if not isinstance(value, np.ndarray | list):  # JSON may be anything
                raise unfit(field, Code.BAD_OUTPUT_SHAPE, "is no list")
            if len(value) != count:
                raise unequal(field, len(value), boxes, count)
        if not np.isfinite(columns[boxes.name][row]).all():
            raise not_finite(boxes)
        if np.isnan(columns[scores.name][row]).any():
            raise not_finite(scores)
        groups = None if classes is None else columns[classes.name][row]
        return _best(columns[boxes.name][row], columns[scores.name][row], groups, options)

    def run(batch: Batch) -> None:
        def of_those_kept(row: int) -> list[Any]:
            stay = kept(batch.columns, row)
            return [_of(batch.columns[field.name][row], stay) for field in along]

        make_rows(batch, [field.name for field in along], of_those_kept)

    return run


def _best(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], groups: NDArray[np.int64] | None, options: Nms
) -> NDArray[np.int64]:
    """The places of the boxes that stay, best first. An empty box overlaps nothing."""
    order = np.argsort(-scores, kind="stable")
    if options.score_min is not None:
        order = order[scores[order] >= np.float32(options.score_min)]
    # In FP64, so that an overlap of exactly iou_max is not more than it.
    left, top, right, bottom = np.ascontiguousarray(boxes[order].T, dtype=np.float64)
    areas = np.maximum(right - left, 0) * np.maximum(bottom - top, 0)
    group = None if groups is None else groups[order]
    waiting = np.arange(len(order))
    stay: list[int] = []
    while len(waiting) and len(stay) < options.count_max:
        best, waiting = waiting[0], waiting[1:]
        stay.append(int(best))
        width = np.minimum(right[best], right[waiting]) - np.maximum(left[best], left[waiting])
        height = np.minimum(bottom[best], bottom[waiting]) - np.maximum(top[best], top[waiting])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        if options.share_of == "smaller":
            whole_area = np.minimum(areas[best], areas[waiting])
        else:
            whole_area = areas[best] + areas[waiting] - shared
        dropped = shared / np.where(whole_area > 0, whole_area, 1) > options.iou_max
        if group is not None:
            dropped &= group[waiting] == group[best]
        waiting = waiting[~dropped]
    places: NDArray[np.int64] = order[stay] if stay else order[:0]
    return places


def _of(values: Any, places: NDArray[np.int64]) -> Any:
    return values[places] if isinstance(values, np.ndarray) else [values[place] for place in places]


NMS = Kind("nms", Nms, _nms_fields, _nms, _nms_problems)
