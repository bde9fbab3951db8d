"""How far apart two arrays of answers are, on one scale for every datatype."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def difference(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """The largest difference of two elements, relative to the expected one where that is over 1.

    Infinite when shapes differ, or when elements that are no floating numbers do. NaN equals NaN. Elements may be
    arrays or JSON values, which are compared in the same way, number by number.
    """
    if expected.shape != found.shape:
        return math.inf
    if expected.dtype == object:
        return max(map(_apart, expected.flat, found.flat), default=0.0)
    if expected.size == 0 or same_bits(expected, found):
        return 0.0
    if expected.dtype.kind != "f":
        return math.inf
    wide, other = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(wide - other) / np.maximum(1.0, np.abs(wide))
    apart[(wide == other) | (np.isnan(wide) & np.isnan(other))] = 0.0
    largest = float(apart.max())
    return math.inf if math.isnan(largest) else largest


def same_bits(expected: NDArray[Any], found: NDArray[Any]) -> bool:
    """Whether the two are equal bit for bit."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if expected.dtype == object:
        return all(map(_same, expected.flat, found.flat))
    return expected.tobytes() == found.tobytes()


def _apart(expected: Any, found: Any) -> float:
    match expected:
        case np.ndarray() if isinstance(found, np.ndarray):
            return difference(expected, found) if expected.dtype == found.dtype else math.inf
        case list() if isinstance(found, list) and len(expected) == len(found):
            return max(map(_apart, expected, found), default=0.0)
        case dict() if isinstance(found, dict) and expected.keys() == found.keys():
            return max((_apart(value, found[key]) for key, value in expected.items()), default=0.0)
        case float() if isinstance(found, float):
            return difference(np.array([expected]), np.array([found]))
    return 0.0 if _same(expected, found) else math.inf


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return isinstance(found, np.ndarray) and same_bits(expected, found)
    return type(expected) is type(found) and bool(expected == found)
