"""What every answer must be before it leaves a worker: as declared, finite, in range."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Checks, Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.execution.model import fits
from forwardpass.steps.kind import FLOATS
from forwardpass.steps.protocol import Batch, Column


def check(outputs: Sequence[Field], checks: Checks, batch: Batch) -> None:
    """Fail the rows whose outputs break a rule. Raises Failed where it is not one row's fault."""
    for output in outputs:
        column = batch.columns[output.name]
        if output.kind == "ragged":
            _check_ragged(output, checks, column, batch)
            continue
        expected = NUMPY_NAMES.get(output.datatype, "object")
        if len(column) != batch.rows or column.dtype != expected or not fits(column.shape[1:], output.shape):
            raise _misshapen(output, f"{column.dtype}{list(column.shape)} for {output} and {batch.rows} rows")
        if output.kind == "json":
            _check_json(output, checks, column, batch)
        elif checks.finite and output.datatype in FLOATS and not (finite := np.isfinite(column)).all():
            _fail(batch, finite, _not_finite(output))
        if output.name in checks.range:
            low, high = checks.range[output.name]
            inside = (column >= low) & (column <= high)
            inside[[(origin, output.name) in batch.withheld for origin in batch.origin]] = True  # nobody will see it
            _fail(batch, inside, _out_of_range(output, low, high))


def no_rows(field: Field) -> Column:
    """A column without rows."""
    dtype = "object" if field.kind == "ragged" else NUMPY_NAMES.get(field.datatype, "object")
    return np.empty((0, *(() if field.kind == "ragged" else (max(size, 0) for size in field.shape))), dtype=dtype)


def _check_ragged(output: Field, checks: Checks, column: Column, batch: Batch) -> None:
    low, high = checks.range.get(output.name, (-math.inf, math.inf))
    for row, value in enumerate(column):
        if value.dtype != NUMPY_NAMES[output.datatype] or not fits(value.shape, output.shape):
            raise _misshapen(output, f"{value.dtype}{list(value.shape)} for {output}")
        if checks.finite and output.datatype in FLOATS and not np.isfinite(value).all():
            batch.fail(row, _not_finite(output))
        elif output.name in checks.range and not ((value >= low) & (value <= high)).all():
            batch.fail(row, _out_of_range(output, low, high))


def _check_json(output: Field, checks: Checks, column: Column, batch: Batch) -> None:
    """JSON has no NaN: without the check for finite numbers it becomes null."""
    if checks.finite:
        for row, value in enumerate(column):
            if not _finite(value):
                batch.fail(row, _not_finite(output))


def _finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_finite, value.values()))
        case list() | tuple():
            return all(map(_finite, value))
        case _:
            return True


def _not_finite(output: Field) -> Failed:
    text = f"{output.name}: the answer holds a value that is not a finite number"
    return Failed(Code.NON_FINITE_OUTPUT, text, field=output.name)


def _out_of_range(output: Field, low: float, high: float) -> Failed:
    text = f"{output.name}: the answer is outside {low:g} to {high:g}"
    return Failed(Code.OUTPUT_OUT_OF_RANGE, text, field=output.name)


def _misshapen(output: Field, detail: str) -> Failed:
    text = f"{output.name}: the pipeline's answer is not of the declared shape"
    return Failed(Code.BAD_OUTPUT_SHAPE, text, field=output.name, detail=detail)


def _fail(batch: Batch, right: NDArray[Any], failure: Failed) -> None:
    """Fail every row in which an element is not right."""
    for row in np.flatnonzero(~right.reshape(batch.rows, -1).all(axis=1)):
        batch.fail(int(row), failure)
