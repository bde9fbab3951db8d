"""Steps on columns of a record: ``fill``, ``scale``, ``one_hot``, ``ordinal`` and ``columns``.

A number is FP64 with NaN for missing, a category text with None for missing. The first four work in place, on the
columns they name; a missing value stays missing unless the step says otherwise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from forwardpass.core.errors import Code, Refused, show
from forwardpass.core.pipeline import Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.steps.kind import CATEGORY, NUMBER, Fit, Kind, invalid, missing, pick
from forwardpass.steps.options import Trouble, choice, either, field_name, number, option, several, table, text
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared

_VALUE = Fit("a number or a category", lambda field: NUMBER.test(field) or CATEGORY.test(field))
_COLUMN = Fit(
    "a number or a block of numbers of known size (a category first goes through one_hot or ordinal)",
    lambda field: field.datatype in NUMPY_NAMES and len(field.shape) <= 1 and -1 not in field.shape,
)
_CATEGORIES = table(several(either(text(), number()), distinct=True))
_Categories = Mapping[str, tuple[str | float, ...]]


@dataclass(frozen=True, kw_only=True)
class Fill:
    """Puts a fixed value where a number or category is missing. No row fails."""

    values: Mapping[str, float | str] = option(table(either(number(), text())), "{column = value}")


def _fill_fields(options: Fill, known: FieldMap) -> list[Field]:
    fields = []
    for column, value in options.values.items():
        field = pick(known, column, _VALUE, f"values.{column}")
        if isinstance(value, str) == NUMBER.test(field):
            wanted = "a number" if NUMBER.test(field) else "text"
            raise invalid(f"values.{column}", show(value), f"{wanted}, as the column is")
        fields.append(field)
    return fields


def _fill(options: Fill, known: FieldMap, context: Context) -> Prepared:
    _fill_fields(options, known)

    def run(batch: Batch) -> None:
        for name, value in options.values.items():
            column = batch.columns[name]
            absent = _is_missing(column)
            if absent.any():
                batch.columns[name] = np.where(absent, np.array(value, dtype=column.dtype), column)

    return run


@dataclass(frozen=True, kw_only=True)
class Scale:
    """(number - mean) / std of each column; ``mean`` and ``std`` name the same columns. Missing stays missing; no row
    fails."""

    mean: Mapping[str, float] = option(table(number()), "{column = mean}, the training's")
    std: Mapping[str, float] = option(table(number()), "{column = standard deviation}, the training's")


def _scale_problems(options: Scale) -> list[Trouble]:
    troubles = [(f"std.{name}", str(value), "a number above 0") for name, value in options.std.items() if value <= 0]
    for name in sorted(options.mean.keys() ^ options.std.keys()):
        key = "std" if name in options.mean else "mean"
        troubles.append((f"{key}.{name}", "missing", "mean and std name the same columns"))
    return troubles


def _scale_fields(options: Scale, known: FieldMap) -> list[Field]:
    return [pick(known, column, NUMBER, f"mean.{column}") for column in options.mean]


def _scale(options: Scale, known: FieldMap, context: Context) -> Prepared:
    _scale_fields(options, known)

    def run(batch: Batch) -> None:
        for name, mean in options.mean.items():
            batch.columns[name] = (batch.columns[name] - mean) / options.std[name]

    return run


@dataclass(frozen=True, kw_only=True)
class OneHot:
    """Turns a category, or a number that names one, into a FP32 block with a one at its place in the training's order.

    What is missing is refused, gets zeros, or has a place of its own behind all others.
    """

    categories: _Categories = option(_CATEGORIES, "{column = [categories in the training's order]}")
    unknown: Literal["zeros", "refuse"] = option(choice("zeros", "refuse"), "what any other category gets", "refuse")
    missing: Literal["zeros", "refuse", "own"] = option(
        choice("zeros", "refuse", "own"), "what a missing one gets", "refuse"
    )


def _one_hot_fields(options: OneHot, known: FieldMap) -> list[Field]:
    own = options.missing == "own"
    fields = []
    for column, categories in options.categories.items():
        _pick_categories(known, column, categories)
        fields.append(Field(column, "FP32", (len(categories) + own,)))
    return fields


def _one_hot(options: OneHot, known: FieldMap, context: Context) -> Prepared:
    sizes = {field.name: field.shape[0] for field in _one_hot_fields(options, known)}
    places = {column: _places(categories) for column, categories in options.categories.items()}

    def run(batch: Batch) -> None:
        for name, found in places.items():
            place = _looked_up(batch, name, found, options.unknown == "refuse")
            absent = _is_missing(batch.columns[name])
            if options.missing == "refuse":
                _fail_missing(batch, name, absent)
            elif options.missing == "own":
                place[absent] = len(found)
            rows = np.flatnonzero(place >= 0)
            block = np.zeros((batch.rows, sizes[name]), dtype=np.float32)
            block[rows, place[rows]] = 1
            batch.columns[name] = block

    return run


@dataclass(frozen=True, kw_only=True)
class Ordinal:
    """Turns a category, or a number that names one, into its place (0, 1, ...) in the training's order.

    Makes FP64 in the column's place, NaN for missing. With "refuse" a row fails with `invalid_input` (no category of
    the training) or `missing_field`."""

    categories: _Categories = option(_CATEGORIES, "{column = [categories in the training's order]}")
    unknown: float | Literal["refuse", "missing"] = option(
        either(choice("refuse", "missing"), number()), "what any other category gets", "refuse"
    )
    missing: float | Literal["refuse", "missing"] = option(
        either(choice("refuse", "missing"), number()), "what a missing one gets", "missing"
    )


def _ordinal_fields(options: Ordinal, known: FieldMap) -> list[Field]:
    for column, categories in options.categories.items():
        _pick_categories(known, column, categories)
    return [Field(column, "FP64", (), "number") for column in options.categories]


def _ordinal(options: Ordinal, known: FieldMap, context: Context) -> Prepared:
    _ordinal_fields(options, known)
    places = {column: _places(categories) for column, categories in options.categories.items()}
    unknown, absent_becomes = (
        np.nan if isinstance(value, str) else value for value in (options.unknown, options.missing)
    )

    def run(batch: Batch) -> None:
        for name, found in places.items():
            absent = _is_missing(batch.columns[name])
            place = _looked_up(batch, name, found, options.unknown == "refuse").astype(np.float64)
            place[place < 0] = unknown
            place[absent] = absent_becomes
            if options.missing == "refuse":
                _fail_missing(batch, name, absent)
            batch.columns[name] = place

    return run


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Joins numbers and blocks, in the order named, to one row of FP32 (or FP64).

    A number that FP32 cannot hold fails its row; so does a missing one, unless ``missing = "nan"`` (for trees) or the
    list ``missing`` names its column.
    """

    names: tuple[str, ...] = option(several(field_name(), distinct=True), "the columns in the training's order")
    output: str = option(field_name(), "where the row goes", "features")
    missing: Literal["refuse", "nan"] | tuple[str, ...] = option(
        either(choice("refuse", "nan"), several(field_name(), distinct=True)),
        'what a missing number becomes; a list of columns: "nan" in these only',
        "refuse",
    )
    datatype: Literal["FP32", "FP64"] = option(choice("FP32", "FP64"), "of the numbers", "FP32")


def _columns_problems(options: Columns) -> list[Trouble]:
    among = () if isinstance(options.missing, str) else options.missing
    return [("missing", show(name), "columns that names has") for name in among if name not in options.names]


def _columns_fields(options: Columns, known: FieldMap) -> list[Field]:
    return [Field(options.output, options.datatype, (sum(size for _, size in _layout(options, known)),))]


def _columns(options: Columns, known: FieldMap, context: Context) -> Prepared:
    layout = list(_layout(options, known))
    owners = [name for name, size in layout for _ in range(size)]
    if isinstance(options.missing, str):
        may_miss = np.full(len(owners), options.missing == "nan")
    else:
        may_miss = np.isin(owners, options.missing)
    dtype = NUMPY_NAMES[options.datatype]

    def run(batch: Batch) -> None:
        blocks = [batch.columns[name].reshape(batch.rows, size) for name, size in layout]
        with np.errstate(over="ignore"):  # what overflows is found below
            features = np.concatenate(blocks, axis=1, dtype=dtype, casting="same_kind")
        accepted = np.isfinite(features) | (np.isnan(features) & may_miss)
        for row, place in zip(*np.nonzero(~accepted), strict=True):
            name = owners[place]
            batch.fail(int(row), missing(name) if np.isnan(features[row, place]) else _too_big(name))
        batch.columns[options.output] = features

    return run


def _layout(options: Columns, known: FieldMap) -> Iterator[tuple[str, int]]:
    for place, column in enumerate(options.names):
        field = pick(known, column, _COLUMN, f"names[{place}]")
        yield column, field.shape[0] if field.shape else 1


def _is_missing(column: Column) -> Column:
    if column.dtype != object:
        return np.isnan(column)
    return np.fromiter((value is None for value in column), dtype=bool, count=len(column))


def _fail_missing(batch: Batch, name: str, absent: Column) -> None:
    for row in np.flatnonzero(absent):
        batch.fail(int(row), missing(name))


def _pick_categories(known: FieldMap, column: str, categories: tuple[str | float, ...]) -> None:
    """Raises Misconfigured unless the column is there and its categories are what it holds: text or numbers."""
    field = pick(known, column, _VALUE, f"categories.{column}")
    for category in categories:
        if isinstance(category, str) == NUMBER.test(field):
            wanted = "numbers" if NUMBER.test(field) else "text"
            raise invalid(f"categories.{column}", show(category), f"{wanted}, as the column is")


def _places(categories: tuple[str | float, ...]) -> dict[str | float, int]:
    return {category: place for place, category in enumerate(categories)}


def _looked_up(batch: Batch, name: str, places: dict[str | float, int], refuse: bool) -> Column:
    """Each row's place, -1 for missing and unknown ones; the rows with an unknown one fail if ``refuse``."""
    column = batch.columns[name]
    found = np.fromiter((places.get(value, -1) for value in column), dtype=np.int64, count=batch.rows)
    if refuse:
        for row in np.flatnonzero((found < 0) & ~_is_missing(column)):
            text = f"{name}: {show(_plain(column[row]))} is not a known category"
            batch.fail(int(row), Refused(Code.INVALID_INPUT, text, field=name))
    return found


def _plain(value: object) -> object:
    """A number as it is written, not as numpy shows it."""
    return float(value) if isinstance(value, np.floating) else value


def _too_big(name: str) -> Refused:
    return Refused(Code.OUT_OF_RANGE, f"{name}: is beyond what the model's numbers hold", field=name)


FILL = Kind("fill", Fill, _fill_fields, _fill)
SCALE = Kind("scale", Scale, _scale_fields, _scale, _scale_problems, exportable=True)
ONE_HOT = Kind("one_hot", OneHot, _one_hot_fields, _one_hot, exportable=True)
ORDINAL = Kind("ordinal", Ordinal, _ordinal_fields, _ordinal, exportable=True)
COLUMNS = Kind("columns", Columns, _columns_fields, _columns, _columns_problems, exportable=True)
