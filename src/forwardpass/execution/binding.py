"""Which field a graph input is taken from, and its rows as the graph wants them: never with a loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import ENCODED, Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.execution.model import fits
from forwardpass.steps.kind import describe, invalid, missing
from forwardpass.steps.protocol import Batch, Column, FieldMap

Rows = NDArray[np.int64]
ALL: Any = np.empty(0, dtype=np.int64)
"""All rows of a batch, in their order, known by identity: nothing is copied for it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A graph input and the field it is taken from."""

    wanted: Field
    source: str

    ragged: bool = False

    def rows_of(self, batch: Batch, rows: Rows) -> Column:
        """These rows of the field as the graph takes them; ragged ones are of equal shape.

        Raises Refused when a free dimension has a size it cannot have.
        """
        column = batch.columns[self.source]
        column = np.stack([column[row] for row in rows]) if self.ragged else column if rows is ALL else column[rows]
        if self.wanted.shape == (1,) and column.ndim == 1:
            column = column[:, np.newaxis]
        elif self.wanted.shape == () and column.ndim == 2:
            column = column[:, 0]
        shape = column.shape[1:]
        if not fits(shape, self.wanted.shape) or (0 in shape and 0 not in self.wanted.shape):
            text = f"{self.source}: rows of shape {list(shape)} came; the model takes {list(self.wanted.shape)}"
            raise Refused(Code.SHAPE_MISMATCH, text, field=self.source)
        if self.wanted.datatype == "BYTES":
            return column
        return np.ascontiguousarray(column, dtype=NUMPY_NAMES[self.wanted.datatype])


def bind(wanted: Field, mapped: Mapping[str, str], known: FieldMap, own_code: bool, *, alone: bool) -> Bound:
    """Mapped, or of equal name, or for the only input the latest that fits. Raises Misconfigured naming both."""
    source = mapped.get(wanted.name, wanted.name)
    key = f"inputs.{wanted.name}"
    there = f"fields here: {', '.join(map(describe, known.values())) or 'none'}"
    if alone and wanted.name not in mapped and not (source in known and _takes(wanted, known[source], own_code)):
        for field in reversed(list(known.values())):
            if _takes(wanted, field, own_code):
                return Bound(wanted, known[field.name].name, field.kind == "ragged")
    if source not in known:
        advice = f'{there}; say which with inputs = {{ {wanted.name} = "field" }}'
        raise invalid(
            key, f"no field is named {source!r}, which the model's input {describe(wanted)} is to take", advice
        )
    if not _takes(wanted, known[source], own_code):
        found = f"the field {describe(known[source])} does not fit the model's input {describe(wanted)}"
        advice = "the same datatype and shape are needed; the step columns makes FP32 of numbers"
        raise invalid(key, found, advice)
    return Bound(wanted, source, known[source].kind == "ragged")


def _takes(wanted: Field, field: Field, own_code: bool) -> bool:
    """Whether the field can be the graph's input without losing anything."""
    if field.kind in ("json", "texts") or (field.kind in ENCODED and not own_code):  # a graph's strings are text
        return False
    shapes_fit = len(field.shape) == len(wanted.shape) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(field.shape, wanted.shape, strict=True)
    )
    if not shapes_fit and {field.shape, wanted.shape} != {(), (1,)}:
        return False
    return _lossless(field.datatype, wanted.datatype)


def _lossless(given: str, wanted: str) -> bool:
    if given == wanted:
        return True
    if given not in NUMPY_NAMES or wanted not in NUMPY_NAMES or given == "BOOL":
        return False
    rounds = given in ("INT64", "UINT64") and wanted == "FP64"  # numpy calls that safe
    return not rounds and np.can_cast(NUMPY_NAMES[given], NUMPY_NAMES[wanted], "safe")


def fail_unfit(batch: Batch, source: str) -> None:
    """Fail the rows with a missing value, or with text that is no UTF-8: an engine would refuse the whole batch."""
    for row, values in enumerate(batch.columns[source].reshape(batch.rows, -1)):
        for value in values:
            if value is None:
                batch.fail(row, missing(source))
            elif isinstance(value, str) and not value.isascii() and not _is_utf8(value):
                batch.fail(row, Refused(Code.INVALID_UTF8, f"{source}: the text is not valid UTF-8", field=source))


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
