"""How near one engine's answers are to another's: the largest difference, and the smallest cosine of two rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.engines.protocol import Arrays


@dataclass(frozen=True, slots=True)
class Closeness:
    """Of floating numbers; ``other`` says what else is not the same, where something must be and is not."""

    absolute: float = 0.0
    cosine: float = 1.0
    other: str = ""

    def within(self, tolerance: Mapping[str, float]) -> bool:
        """Whether both are as near as is written, and the rest is the same."""
        absolute, cosine = tolerance.get("absolute", math.inf), tolerance.get("cosine", -1.0)
        return not self.other and self.absolute <= absolute and self.cosine >= cosine

    def farther(self, of: "Closeness") -> "Closeness":
        """The worse of the two in each."""
        return Closeness(max(self.absolute, of.absolute), min(self.cosine, of.cosine), self.other or of.other)

    def __str__(self) -> str:
        return self.other or f"differs by {self.absolute:.2g}, cosine {self.cosine:.7f}"


def closeness(expected: Arrays, found: Arrays) -> Closeness:
    """Of two answers to the same inputs, over all outputs."""
    total = Closeness()
    for name, array in expected.items():
        other = found.get(name)
        if other is None or other.dtype != array.dtype or other.shape != array.shape:
            return Closeness(other=f"{name} has another shape or datatype")
        if array.dtype.kind != "f":
            if not np.array_equal(array, other):
                total = total.farther(Closeness(other=f"{name} has other values"))
        elif array.size:
            total = total.farther(_of_floats(name, array.astype(np.float64), other.astype(np.float64)))
    return total


def _of_floats(name: str, expected: NDArray[Any], found: NDArray[Any]) -> Closeness:
    finite = np.isfinite(expected) & np.isfinite(found)
    if not np.array_equal(expected[~finite], found[~finite], equal_nan=True):
        return Closeness(other=f"{name} has other values that are not finite")
    expected, found = np.where(finite, expected, 0.0), np.where(finite, found, 0.0)
    rows = len(expected) if expected.ndim > 1 and expected[0].size > 1 else 1  # one number points nowhere
    one, two = expected.reshape(rows, -1), found.reshape(rows, -1)
    lengths = np.linalg.norm(one, axis=1), np.linalg.norm(two, axis=1)
    if one.size == 1:  # nor does it in an answer by itself: the smaller of the two numbers over the larger
        larger = np.maximum(np.abs(one), np.abs(two))
        ratio = float((one * two)[0, 0] / max(float(larger[0, 0]) ** 2, np.finfo(np.float64).tiny))
        return Closeness(float(np.abs(one - two)[0, 0]), 1.0 if larger[0, 0] == 0.0 else ratio)
    alike = (lengths[0] == 0.0) & (lengths[1] == 0.0)
    products = np.maximum(lengths[0] * lengths[1], np.finfo(np.float64).tiny)
    cosines = np.where(alike, 1.0, np.minimum((one * two).sum(axis=1) / products, 1.0))
    return Closeness(float(np.abs(expected - found).max()), float(cosines.min()))
