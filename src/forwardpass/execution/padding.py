"""Rows of different length made one array, and answers cut back to their own length."""

from collections.abc import Sequence

import numpy as np

from forwardpass.core.pipeline import Field, Padding
from forwardpass.steps.protocol import Column


def padded_length(lengths: Sequence[int], buckets: Sequence[int]) -> int:
    """What rows of these lengths are padded to: the first bucket that holds the longest, or the longest itself."""
    longest = max(lengths)
    return next((bucket for bucket in buckets if bucket >= longest), longest)


def pad(arrays: Sequence[Column], padding: Padding, name: str) -> Column:
    """The rows of all arrays end to end, row axis 0 filled up at its end with the field's padding value."""
    length = padded_length([array.shape[1] for array in arrays], padding.buckets)
    rows = sum(len(array) for array in arrays)
    padded = np.full((rows, length, *arrays[0].shape[2:]), padding.fields[name], dtype=arrays[0].dtype)
    start = 0
    for array in arrays:
        padded[start : start + len(array), : array.shape[1]] = array
        start += len(array)
    return padded


def cut(column: Column, field: Field, length: int, padded: int) -> Column:
    """Rows of an output without their padding: only where row axis 0 is free and as long as the rows were padded to.

    A ragged output's rows have lengths of their own, whatever the rows were padded to.
    """
    if field.kind == "ragged":
        return column
    if field.shape[:1] == (-1,) and column.shape[1] == padded:
        return column[:, :length]
    return column
