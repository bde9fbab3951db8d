"""What a model carries from one step to the next, and inputs that are the same in every call.

A state is an input that takes an output of the step before, and zeros at the start; ``carried.py`` makes the steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, show
from forwardpass.core.pipeline import Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.engines.protocol import Arrays, ModelFile, ModelSignature
from forwardpass.steps.kind import describe, invalid
from forwardpass.steps.protocol import Column

States = dict[str, Column]
"""By graph input; rows first, whatever axis the graph has them on."""

_CONSTANT_KINDS = {"b": "b", "i": "iuf", "u": "iuf", "f": "f", "U": "O"}
"""Kind of a written value -> kinds of graph inputs that take it without a loss (a fraction may be rounded)."""


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One state. ``axis`` is where the graph has its rows; None: it takes one row at a time, and all of it is the row's."""

    input: str
    output: str
    datatype: str
    shape: tuple[int, ...]  # of one row
    axis: int | None

    def zeros(self, rows: int) -> Column:
        return np.zeros((rows, *self.shape), dtype=NUMPY_NAMES[self.datatype])

    def whole(self, column: Column) -> NDArray[Any]:
        """All rows as the graph takes them."""
        assert self.axis is not None, "rows go in one by one"
        return np.ascontiguousarray(np.moveaxis(column, 0, self.axis))

    def rows_of(self, outputs: Arrays, rows: int) -> Column:
        """The state after a step of ``rows`` rows. Raises Failed when the output is not what the input takes."""
        array = outputs.get(self.output)
        if array is not None and self.axis is not None and array.ndim > self.axis:
            array = np.moveaxis(array, self.axis, 0)
        if array is None or array.dtype != NUMPY_NAMES[self.datatype] or array.shape != (rows, *self.shape):
            came = "nothing" if array is None else f"{array.dtype}{list(array.shape[1:])} a row"
            text = (
                f"{self.output}: the model returned {came}; its input {self.input} is {self.datatype}{list(self.shape)}"
            )
            raise Failed(Code.BAD_OUTPUT_SHAPE, text, field=self.output)
        return array


def states_of(file: ModelFile, signature: ModelSignature) -> tuple[StateTensor, ...]:
    """The states that the step names, as the graph has them. Raises Misconfigured."""
    inputs = {field.name: field for field in signature.whole_inputs}
    outputs = {field.name: field for field in signature.whole_outputs}
    states: list[StateTensor] = []
    for name, output in file.state.items():
        key = f"state.{name}"
        given = _known(name, key, inputs, signature.inputs, "inputs")
        made = _known(output, key, outputs, signature.outputs, "outputs")
        if given.datatype not in NUMPY_NAMES or made.datatype != given.datatype:
            raise invalid(key, f"{describe(given)} cannot take {describe(made)}", "numbers of the same datatype")
        free = [axis for axis, size in enumerate(given.shape) if size < 0]
        if signature.batched and len(free) == 1:
            shape = given.shape[: free[0]] + given.shape[free[0] + 1 :]
            states.append(StateTensor(name, output, given.datatype, shape, free[0]))
        elif not signature.batched and signature.fixed_rows in (None, 1) and not free:
            states.append(StateTensor(name, output, given.datatype, given.shape, None))
        else:
            raise invalid(key, *_no_rows(given, signature))
    return tuple(states)


def constants_of(file: ModelFile, signature: ModelSignature) -> Arrays:
    """The constants that the step names, as the graph takes them. Raises Misconfigured."""
    inputs = {field.name: field for field in signature.whole_inputs}
    return {
        name: _constant(value, _known(name, f"constants.{name}", inputs, signature.inputs, "inputs"))
        for name, value in file.constants.items()
    }


def _known(name: str, key: str, whole: Mapping[str, Field], others: Sequence[Field], what: str) -> Field:
    if name not in whole:
        there = f"{what} of the model: {', '.join(map(describe, (*others, *whole.values())))}"
        raise invalid(key, f"the model has no {name!r} among its {what}", there)
    return whole[name]


def _no_rows(given: Field, signature: ModelSignature) -> tuple[str, str]:
    if signature.fixed_rows not in (None, 1):
        return (
            f"the model takes exactly {signature.fixed_rows} rows at a time",
            "a model of any number of rows, or of one",
        )
    if signature.batched:
        found = f"{describe(given)} has {sum(size < 0 for size in given.shape)} free axes"
        return found, "one free axis, that of the rows; all others of fixed size"
    return f"{describe(given)} has a free axis, and the model takes one row at a time", "fixed sizes"


def _constant(value: Any, field: Field) -> NDArray[Any]:
    unfit = invalid(f"constants.{field.name}", show(value), f"a value that fits {describe(field)}")
    dtype = np.dtype(NUMPY_NAMES.get(field.datatype, "object"))
    try:
        written = np.array(value)
        array = written.astype(dtype)
    except (ValueError, OverflowError):
        raise unfit from None
    if array.ndim == 0 and field.shape == (1,):
        array = array[np.newaxis]
    fits = len(array.shape) == len(field.shape) and all(
        size in (-1, found) for size, found in zip(field.shape, array.shape, strict=True)
    )
    exact = written.dtype.kind not in "iu" or bool(np.array_equal(written.reshape(-1), array.reshape(-1)))
    if not fits or not exact or dtype.kind not in _CONSTANT_KINDS.get(written.dtype.kind, ""):
        raise unfit
    return np.asarray(array)
