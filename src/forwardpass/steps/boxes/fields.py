"""What the steps on boxes, masks and pictures share: the fields they take, and what their rows fail with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import FLOATS, IMAGE, Fit, not_finite, pick, unfit
from forwardpass.steps.options import Trouble
from forwardpass.steps.protocol import Batch, FieldMap, object_column

AREAS_MAX = 100_000  # of one map; each is followed by itself


def _is_boxes(field: Field) -> bool:
    return _is_ragged(field, "FP32", 2) and field.shape[1] == 4


def _is_quads(field: Field) -> bool:
    return _is_ragged(field, "FP32", 3) and field.shape[1:] == (4, 2)


def _is_points(field: Field) -> bool:
    return _is_ragged(field, "FP32", 3) and field.shape[2] == 2


def _is_ragged(field: Field, datatype: str, rank: int) -> bool:
    return field.kind == "ragged" and field.datatype == datatype and len(field.shape) == rank


BOXES = Fit("boxes (ragged FP32 [-1, 4])", _is_boxes)
OUTLINES = Fit("boxes or quads (ragged FP32 [-1, 4] or [-1, 4, 2])", lambda field: _is_boxes(field) or _is_quads(field))
PLACES = Fit(
    "boxes or points (ragged FP32 [-1, 4] or [-1, points, 2])", lambda field: _is_boxes(field) or _is_points(field)
)
POINTS = Fit("points of each box (ragged FP32 [-1, points, 2])", _is_points)
CONFIDENCES = Fit("one score a box (ragged FP32 [-1])", lambda field: _is_ragged(field, "FP32", 1))
CLASSES = Fit("one class number a box (ragged INT64 [-1])", lambda field: _is_ragged(field, "INT64", 1))
NAMES = Fit("a list of text", lambda field: field.kind == "texts" and not field.shape)
SCALE = Fit("a scale (FP32 [2])", lambda field: field.datatype == "FP32" and field.shape == (2,))
MAP = Fit(
    "a map of scores (floating [height, width] or [1, height, width])",
    lambda field: (
        field.kind in ("tensor", "ragged")
        and field.datatype in FLOATS
        and (len(field.shape) == 2 or (len(field.shape) == 3 and field.shape[0] in (1, -1)))
    ),
)


def pick_if(known: FieldMap, name: str | None, fit: Fit, key: str) -> Field | None:
    """The field of this name, or None where no name is given."""
    return None if name is None else pick(known, name, fit, key)


def map_sources(
    known: FieldMap, name: str | None, scale: str | None, image: str | None
) -> tuple[Field, Field | None, Field | None]:
    """The map of scores, and what says how large the original is, if anything does."""
    source = pick(known, name, MAP)
    return source, pick_if(known, scale, SCALE, "scale"), pick_if(known, image, IMAGE, "image")


def map_problems(least: Mapping[str, float], scale: str | None, image: str | None) -> list[Trouble]:
    """Options of ``least`` below 0, and two that both say how large the original is."""
    troubles = [(name, str(value), "0 or more") for name, value in least.items() if value < 0]
    if scale is not None and image is not None:
        troubles.append(("scale", scale, "not beside image"))
    return troubles


def make_rows(batch: Batch, names: Sequence[str], make: Callable[[int], Sequence[Any]]) -> None:
    """Columns of these names, of what ``make`` gives for each row; where it raises a Failure, that row alone fails."""
    rows: list[Sequence[Any]] = []
    for row in range(batch.rows):
        try:
            rows.append(make(row))
        except Failure as failure:
            batch.fail(row, failure)
            rows.append([None] * len(names))
    for place, name in enumerate(names):
        batch.columns[name] = object_column([values[place] for values in rows])


def unequal(field: Field, count: int, source: Field, wanted: int) -> Refused | Failed:
    """A field that should have one element a box has another number of them."""
    return unfit(field, Code.BAD_OUTPUT_SHAPE, f"has {count} elements where {source.name} has {wanted}")


def score_map(values: NDArray[Any], field: Field) -> NDArray[np.float32]:
    """A row's map as [height, width]. Raises a Failure when it has another form or holds NaN."""
    if values.ndim == 3 and values.shape[0] == 1:
        values = values[0]
    if values.ndim != 2 or 0 in values.shape:
        raise unfit(field, Code.BAD_OUTPUT_SHAPE, f"has shape {list(values.shape)}; one map is needed")
    if np.isnan(values).any():
        raise not_finite(field)
    return np.ascontiguousarray(values, dtype=np.float32)


def factors(values: NDArray[np.float32], field: Field) -> NDArray[np.float64]:
    """A row's scale in x and y. Raises a Failure unless both are finite and above 0."""
    if not np.isfinite(values).all():
        raise not_finite(field)
    if (values <= 0).any():
        raise unfit(field, Code.OUTPUT_OUT_OF_RANGE, "a scale must be above 0")
    return values.astype(np.float64)


def check_areas(cv2: Any, inside: NDArray[np.uint8], field: Field, *, holes: bool = False) -> None:
    """Raise a Failure when a map marks more areas (and with ``holes`` leaves out more) than can be followed in time."""
    count = cv2.connectedComponents(inside)[0] - 1
    if holes:
        count += cv2.connectedComponents(1 - inside, connectivity=4)[0] - 1
    if count > AREAS_MAX:
        raise unfit(field, Code.OUTPUT_TOO_LARGE, f"marks {count} areas; at most {AREAS_MAX} are followed")
