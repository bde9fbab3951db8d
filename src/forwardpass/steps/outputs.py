"""Steps on a model's outputs: ``softmax``, ``sigmoid``, ``argmax``, ``take``, ``mean_pool`` and ``l2_norm``.

All are NumPy over whole batches. NaN goes through the arithmetic ones, for the pipeline's own checks to find.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.steps.by_token import pooled_sources, pooling
from forwardpass.steps.kind import SCORES, Fit, Kind, describe, fail_nan, invalid, is_float, pick, unfit
from forwardpass.steps.options import field_name, option, whole
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared, object_column

_FLOAT = Fit("a floating tensor", is_float)
_LIST = Fit("a tensor with one axis or more per row", lambda field: field.kind == "tensor" and bool(field.shape))


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """Turns scores, in a tensor or ragged, into FP32 probabilities that sum to one over the last axis.
    NaN and infinities become NaN, for the checks to find; no row fails."""

    input: str | None = option(
        field_name(), "the scores; without it the latest floating tensor, else ragged field", None
    )
    output: str = option(field_name(), "where the probabilities go", "probabilities")


def _softmax_fields(options: Softmax, known: FieldMap) -> list[Field]:
    source = _scores(known, options.input, SCORES)
    return [Field(options.output, "FP32", source.shape, source.kind, source.given)]


def _scores(known: FieldMap, name: str | None, dense: Fit) -> Field:
    """The field named, else the latest tensor that fits, else the latest ragged field that would as a tensor."""
    if name is None and any(map(dense.test, known.values())):
        return pick(known, None, dense)
    ragged = Fit(
        f"{dense.wanted}, or such a ragged field",
        lambda field: dense.test(replace(field, kind="tensor") if field.kind == "ragged" else field),
    )
    return pick(known, name, ragged)


def _on_all(column: Column, act: Callable[[Column], Column]) -> Column:
    """What ``act`` makes of a whole tensor, or of each ragged row."""
    return object_column([act(row) for row in column]) if column.dtype == object else act(column)


def _softmax(options: Softmax, known: FieldMap, context: Context) -> Prepared:
    source = _scores(known, options.input, SCORES).name

    def shares(scores: Column) -> Column:
        scores = _widened(scores)
        with np.errstate(invalid="ignore"):  # infinities become NaN
            powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
            found: Column = powers / powers.sum(axis=-1, keepdims=True)
        return found.astype(np.float32, copy=False)

    def run(batch: Batch) -> None:
        batch.columns[options.output] = _on_all(batch.columns[source], shares)

    return run


@dataclass(frozen=True, kw_only=True)
class Sigmoid:
    """Turns each score, in a tensor or ragged, into a FP32 probability of its own. NaN goes through; no row fails."""

    input: str | None = option(
        field_name(), "the scores; without it the latest floating tensor, else ragged field", None
    )
    output: str = option(field_name(), "where the probabilities go", "probabilities")


def _sigmoid_fields(options: Sigmoid, known: FieldMap) -> list[Field]:
    source = _scores(known, options.input, _FLOAT)
    return [Field(options.output, "FP32", source.shape, source.kind, source.given)]


def _sigmoid(options: Sigmoid, known: FieldMap, context: Context) -> Prepared:
    source = _scores(known, options.input, _FLOAT).name

    def shares(scores: Column) -> Column:
        scores = _widened(scores)
        small = np.exp(-np.abs(scores))  # never overflows, whatever the sign
        return np.where(scores >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32, copy=False)

    def run(batch: Batch) -> None:
        batch.columns[options.output] = _on_all(batch.columns[source], shares)

    return run


@dataclass(frozen=True, kw_only=True)
class Argmax:
    """The place of the greatest score of the last axis; of equal ones the first. A NaN among them fails the row."""

    input: str | None = option(field_name(), "the scores; without it the latest floating tensor", None)
    output: str = option(field_name(), "where the place goes, INT64", "index")


def _argmax_fields(options: Argmax, known: FieldMap) -> list[Field]:
    return [Field(options.output, "INT64", pick(known, options.input, SCORES).shape[:-1])]


def _argmax(options: Argmax, known: FieldMap, context: Context) -> Prepared:
    field = pick(known, options.input, SCORES)

    def run(batch: Batch) -> None:
        scores = batch.columns[field.name]
        if scores.shape[-1] == 0:
            raise unfit(field, Code.BAD_OUTPUT_SHAPE, "has no element to choose from")
        fail_nan(batch, field, scores)
        batch.columns[options.output] = scores.argmax(axis=-1).astype(np.int64, copy=False)

    return run


@dataclass(frozen=True, kw_only=True)
class Take:
    """One element of the last axis, such as the positive class's probability: ``output``, without that axis.

    The batch fails with `bad_output_shape` where the axis is open and the element is not there."""

    input: str | None = option(field_name(), "the field; without it the latest that has an axis", None)
    index: int = option(whole(0, 2**31 - 1), "the element's place, from 0")
    output: str = option(field_name(), "where the element goes")


def _take_fields(options: Take, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, _LIST)
    if 0 <= source.shape[-1] <= options.index:
        raise invalid("index", str(options.index), f"below {source.shape[-1]}, the size of {describe(source)}")
    return [Field(options.output, source.datatype, source.shape[:-1], source.kind, source.given)]


def _take(options: Take, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _LIST)

    def run(batch: Batch) -> None:
        column = batch.columns[source.name]
        if column.shape[-1] <= options.index:
            why = f"has {column.shape[-1]} elements; element {options.index} is to be taken"
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, why)
        batch.columns[options.output] = np.ascontiguousarray(column[..., options.index])

    return run


@dataclass(frozen=True, kw_only=True)
class MeanPool:
    """The mean of a text's token vectors over the tokens its mask keeps. A row that keeps none fails.

    Vectors and mask may both be ragged (``tokenize`` with ``pad = "row"``).
    """

    input: str | None = option(field_name(), "[tokens, hidden]; without it the latest such tensor", None)
    mask: str = option(field_name(), "[tokens], 0 where a token does not count", "attention_mask")
    output: str = option(field_name(), "where the mean goes", "embedding")


def _mean_pool_fields(options: MeanPool, known: FieldMap) -> list[Field]:
    source, _ = pooled_sources(known, options.input, options.mask)
    return [Field(options.output, "FP32", source.shape[1:])]


def _mean_pool(options: MeanPool, known: FieldMap, context: Context) -> Prepared:
    def mean(vectors: Column, kept: Column) -> Column:
        there = _widened(vectors[kept])
        found: Column = there.sum(axis=0) / there.dtype.type(len(there))
        return found

    return pooling(*pooled_sources(known, options.input, options.mask), options.output, mean)


@dataclass(frozen=True, kw_only=True)
class L2Norm:
    """Divides vectors by their length (over the last axis), keeping their datatype. A zero vector stays zero;
    NaN goes through, and no row fails."""

    input: str | None = option(field_name(), "the vectors; without it the latest floating tensor", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)


def _l2_norm_fields(options: L2Norm, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, SCORES)
    return [Field(options.output or source.name, source.datatype, source.shape, given=source.given)]


def _l2_norm(options: L2Norm, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, SCORES)

    def run(batch: Batch) -> None:
        vectors = batch.columns[source.name]
        with np.errstate(over="ignore", invalid="ignore"):  # infinities become NaN
            # In FP64, so that no square of a FP32 number overflows or vanishes.
            lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=-1, keepdims=True))
            divided = vectors / np.where(lengths == 0, 1.0, lengths)
        batch.columns[options.output or source.name] = divided.astype(NUMPY_NAMES[source.datatype], copy=False)

    return run


def _widened(scores: Column) -> Column:
    """FP16 is too coarse to sum in; FP64 stays FP64."""
    return scores.astype(np.float32) if scores.dtype == np.float16 else scores


SOFTMAX = Kind("softmax", Softmax, _softmax_fields, _softmax, exportable=True)
SIGMOID = Kind("sigmoid", Sigmoid, _sigmoid_fields, _sigmoid, exportable=True)
ARGMAX = Kind("argmax", Argmax, _argmax_fields, _argmax, exportable=True)
TAKE = Kind("take", Take, _take_fields, _take, exportable=True)
MEAN_POOL = Kind("mean_pool", MeanPool, _mean_pool_fields, _mean_pool, exportable=True)
L2_NORM = Kind("l2_norm", L2Norm, _l2_norm_fields, _l2_norm, exportable=True)
