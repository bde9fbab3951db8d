"""What the steps on boxes, masks and pictures share: the fields they take, their rows' failures, and OpenCV."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Field
from forwardpass.steps.image.pixels import library_missing
from forwardpass.steps.kind import FLOATS, Fit, pick
from forwardpass.steps.protocol import Column, FieldMap, object_column


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


def empty_column(rows: int) -> Column:
    """An object column to be filled row by row; the rows that fail stay None."""
    return object_column([None] * rows)


def not_finite(name: str) -> Failed:
    return Failed(Code.NON_FINITE_OUTPUT, f"{name}: the model's output is not a number", field=name)


def unequal(name: str, count: int, source: str, wanted: int) -> Failed:
    """A field that should have one element a box has another number of them."""
    text = f"{name}: has {count} elements where {source} has {wanted}"
    return Failed(Code.BAD_OUTPUT_SHAPE, text, field=name)


def score_map(values: NDArray[Any], name: str) -> NDArray[np.float32]:
    """A row's map as [height, width]. Raises Failed when it has another form or holds NaN."""
    if values.ndim == 3 and values.shape[0] == 1:
        values = values[0]
    if values.ndim != 2 or 0 in values.shape:
        raise Failed(Code.BAD_OUTPUT_SHAPE, f"{name}: has shape {list(values.shape)}; one map is needed", field=name)
    if np.isnan(values).any():
        raise not_finite(name)
    return np.ascontiguousarray(values, dtype=np.float32)


def load_opencv(step: str) -> Any:
    try:
        import cv2
    except ImportError as error:
        raise library_missing(step, "OpenCV", "vision", error) from None
    cv2.setNumThreads(1)  # the worker's threads are its engine's
    return cv2
