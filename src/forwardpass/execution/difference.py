"""How far apart two arrays of answers are, on one scale for every datatype."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def difference(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """The largest difference of two elements, relative to the expected one where that is over 1.

    Infinite when shapes differ, or when elements that are no floating numbers do. NaN equals NaN.
    """
    if expected.shape != found.shape:
        return math.inf
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
        return bool((expected == found).all())
    return expected.tobytes() == found.tobytes()
