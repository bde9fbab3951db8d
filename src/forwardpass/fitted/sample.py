"""Rows as a data scientist has them, as the estimator takes them and as a caller will send them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from forwardpass.fitted.refusal import needed, refused

ColumnKind = Literal["number", "category"]
Rows = Any
"""A pandas DataFrame or a numpy array of two axes: what the estimator was fitted with."""


@dataclass(frozen=True)
class Column:
    """``values`` are plain: float, int, str, None for missing. ``missing`` is what the estimator saw in its place."""

    name: str
    kind: ColumnKind
    values: Sequence[float | int | str | None]
    missing: Any


@dataclass(frozen=True)
class Sample:
    """``rows`` go to the estimator, ``records`` are the same rows as a caller sends them."""

    rows: Rows
    columns: tuple[Column, ...]

    @property
    def count(self) -> int:
        return len(self.columns[0].values)

    @property
    def kinds(self) -> dict[str, ColumnKind]:
        return {column.name: column.kind for column in self.columns}

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        names = [column.name for column in self.columns]
        return [
            dict(zip(names, values, strict=True))
            for values in zip(*(column.values for column in self.columns), strict=True)
        ]

    def complete_row(self) -> int:
        """The first row in which nothing is missing, else the first."""
        return next((row for row, record in enumerate(self.records) if None not in record.values()), 0)

    def changed(self, row: int, place: int, value: Any) -> tuple[Rows, dict[str, Any]]:
        """One row with another value in one column, as the estimator takes it and as a caller sends it (None: missing)."""
        column = self.columns[place]
        record = self.records[row] | {column.name: value}
        given = column.missing if value is None else value
        if isinstance(self.rows, np.ndarray):
            changed = self.rows[[row]].copy()
            changed = changed.astype(np.float64) if changed.dtype.kind in "iub" else changed
            changed[0, place] = given
            return changed, record
        pandas = needed("pandas", "pandas", "sklearn")
        frame = self.rows.iloc[[row]].copy()
        old = frame.iloc[:, place]
        if value is not None and value not in getattr(old.dtype, "categories", (value,)):
            given = None  # a column of the dtype category holds no other values: they become missing
        dtype = old.dtype
        if (
            column.kind == "number" and getattr(dtype, "kind", "") in "iub"
        ):  # these hold no fraction, and may hold no NaN
            dtype = np.float64 if isinstance(dtype, np.dtype) else "Float64"
        frame[frame.columns[place]] = pandas.Series([given], index=frame.index, dtype=dtype)
        return frame, record


def read(given: Any) -> Sample:
    """A DataFrame, an array of two axes (its columns are named x0, x1 ...) or a list of records. Raises Misconfigured."""
    if isinstance(given, Sequence) and given and all(isinstance(each, Mapping) for each in given):
        given = needed("pandas", "pandas", "sklearn").DataFrame(list(given))
    if hasattr(given, "iloc") and hasattr(given, "columns"):
        names = [str(name) for name in given.columns]
        columns = [(name, given.iloc[:, place]) for place, name in enumerate(names)]
        dtypes = [column.dtype for _, column in columns]
    elif isinstance(given, np.ndarray) and given.ndim == 2:
        columns = [(f"x{place}", given[:, place]) for place in range(given.shape[1])]
        dtypes = [given.dtype] * len(columns)
    else:
        raise refused(("sample", type(given).__name__, "a DataFrame, an array of two axes or a list of records"))
    if not len(given) or not columns:
        raise refused(("sample", "no rows or no columns", "rows as the estimator was fitted with"))
    if len({name for name, _ in columns}) < len(columns):
        raise refused(("sample", "two columns of one name", "a name of its own for each column"))
    read_columns = [_column(name, list(values), dtype) for (name, values), dtype in zip(columns, dtypes, strict=True)]
    return Sample(given, tuple(read_columns))


def is_missing(value: Any) -> bool:
    """None, NaN, and what pandas has for both."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (_is_float(value) and np.isnan(value))


def _is_float(value: Any) -> bool:
    return isinstance(value, float | np.floating)


def _column(name: str, values: Sequence[Any], dtype: Any) -> Column:
    present = [value for value in values if not is_missing(value)]
    seen = next((value for value in values if is_missing(value)), None)
    numeric = getattr(dtype, "kind", "O") in "iubf"
    if all(isinstance(value, bool | int | float | np.number | np.bool_) for value in present) and (present or numeric):
        plain = [None if is_missing(value) else _number(value) for value in values]
        return Column(name, "number", plain, np.nan if seen is None or _is_float(seen) else seen)
    if all(isinstance(value, str) for value in present):
        return Column(name, "category", [None if is_missing(value) else str(value) for value in values], seen)
    odd = next(type(value).__name__ for value in present if not isinstance(value, str))
    raise refused((f"sample.{name}", f"a value of the type {odd}", "numbers only, or text only"))


def _number(value: Any) -> float | int:
    whole = isinstance(value, bool | int | np.integer | np.bool_)
    return int(value) if whole else float(value)
