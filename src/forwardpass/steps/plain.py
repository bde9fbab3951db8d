"""NumPy values as the plain Python ones that a field of kind ``json`` holds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.tensor import NUMPY_NAMES


def plain(values: NDArray[Any]) -> Any:
    """Numbers and lists of them; a float is the shortest decimal that is the same number in its own precision.

    So 0.9 in FP32 is shown as 0.9, as it is where the array itself is answered, and not as 0.8999999761581421.
    """
    if values.dtype in (np.float16, np.float32):
        return np.array(values, dtype=np.str_).astype(np.float64).tolist()
    return values.tolist()


def shortest(value: float) -> float:
    """One score, in FP32."""
    return float(str(np.float32(value)))


def least_of(score_min: float | None, datatype: str) -> float:
    """What a score must reach, in the scores' own precision: 0.7 in FP32 reaches 0.7. Without a bound any score does."""
    if score_min is None:
        return -np.inf
    with np.errstate(over="ignore"):
        return float(np.array(score_min).astype(NUMPY_NAMES[datatype]))
