"""Steps that compare and order: ``similarity`` and ``rank``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import FLOATS, Fit, Kind, describe, invalid, is_float, not_finite, pick, unfit
from forwardpass.steps.options import Trouble, choice, field_name, number, option, several, whole
from forwardpass.steps.plain import least_of, plain
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

TOP_MAX = 10_000
VECTOR = Fit("a floating vector", lambda field: is_float(field) and len(field.shape) == 1)
_VECTORS = Fit(
    "floating vectors [vectors, size], in a tensor or ragged",
    lambda field: field.kind in ("tensor", "ragged") and field.datatype in FLOATS and len(field.shape) == 2,
)
_SCORES = Fit(
    "floating scores [elements], in a tensor or ragged",
    lambda field: field.kind in ("tensor", "ragged") and field.datatype in FLOATS and len(field.shape) == 1,
)
_LISTED = Fit(
    "a list: texts, json, or a tensor or ragged with an axis",
    lambda field: field.kind in ("texts", "json") or (field.kind in ("tensor", "ragged", "text") and bool(field.shape)),
)


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """Compares one vector with each of a list: ragged FP32 scores [vectors], the greater the nearer.

    ``cosine`` is 0 where a vector has no length, ``euclidean`` the distance, negated. Each is computed in FP64, row by
    row. NaN goes through, for the steps after it to find. Vectors of unlike size fail their row: `bad_output_shape`, or
    `shape_mismatch` where the caller sent one.
    """

    input: str = option(field_name(), "the vector [size]")
    others: str = option(field_name(), "the vectors [vectors, size] to compare it with")
    metric: Literal["cosine", "dot", "euclidean"] = option(
        choice("cosine", "dot", "euclidean"), "how they are compared", "cosine"
    )
    output: str = option(field_name(), "where the scores go", "scores")


def _similarity_fields(options: Similarity, known: FieldMap) -> list[Field]:
    one, others = pick(known, options.input, VECTOR), pick(known, options.others, _VECTORS, "others")
    sizes = (one.shape[0], others.shape[1])
    if -1 not in sizes and sizes[0] != sizes[1]:
        raise invalid("others", describe(others), f"vectors of size {sizes[0]}, as {describe(one)}")
    return [Field(options.output, "FP32", (-1,), "ragged")]


def _cosine(one: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.sqrt(np.square(others).sum(axis=1)) * np.sqrt(np.square(one).sum())
    return _dot(one, others) / np.where(lengths == 0, 1.0, lengths)


def _dot(one: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    products: NDArray[np.float64] = (others * one).sum(axis=1)
    return products


def _euclidean(one: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    distances: NDArray[np.float64] = np.sqrt(np.square(others - one).sum(axis=1))
    return -distances


_METRICS: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _euclidean,
}


def _similarity(options: Similarity, known: FieldMap, context: Context) -> Prepared:
    _similarity_fields(options, known)
    vector, vectors = known[options.input], known[options.others]
    measure = _METRICS[options.metric]

    def run(batch: Batch) -> None:
        scores: list[NDArray[np.float32] | None] = [None] * batch.rows
        for row, (one, others) in enumerate(
            zip(batch.columns[options.input], batch.columns[options.others], strict=True)
        ):
            if len(one) != others.shape[1]:
                size, sizes = f"has {len(one)} numbers", f"holds vectors of size {others.shape[1]}"
                batch.fail(row, _misfit(vectors, sizes, vector, size))
                continue
            with np.errstate(over="ignore", invalid="ignore"):  # infinities become NaN
                scores[row] = measure(one.astype(np.float64), others.astype(np.float64)).astype(np.float32)
        batch.columns[options.output] = object_column(scores)

    return run


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Orders a list by its scores, best first and of equal ones the lower index first: a json list of objects
    {index, score, …} with the element of each of ``fields`` under the field's name.

    A score that is not a finite number fails the row, and so does a field that has another number of elements.
    """

    input: str | None = option(field_name(), "the scores; without it the latest floating [elements]", None)
    fields: tuple[str, ...] = option(
        several(field_name(), distinct=True), "lists with one element for each score, to come along", ()
    )
    top: int | None = option(whole(1, TOP_MAX), "how many come back at most; without it all", None)
    score_min: float | None = option(number(), "the least score that comes back", None)
    output: str = option(field_name(), "where the list goes", "ranking")


def _rank_problems(options: Rank) -> list[Trouble]:
    return [
        (f"fields[{place}]", name, "another name than index and score, which every object has")
        for place, name in enumerate(options.fields)
        if name in ("index", "score")
    ]


def _rank_fields(options: Rank, known: FieldMap) -> list[Field]:
    pick(known, options.input, _SCORES)
    for place, name in enumerate(options.fields):
        pick(known, name, _LISTED, f"fields[{place}]")
    return [Field(options.output, "BYTES", (), "json")]


def _rank(options: Rank, known: FieldMap, context: Context) -> Prepared:
    _rank_fields(options, known)
    field = pick(known, options.input, _SCORES)
    source, least = field.name, least_of(options.score_min, field.datatype)

    def ranking(batch: Batch, row: int) -> list[dict[str, Any]]:
        scores = batch.columns[source][row]
        if not np.isfinite(scores).all():
            raise not_finite(field)
        lists = {name: _elements(batch.columns[name][row], known[name], len(scores), field) for name in options.fields}
        order = best_first(scores, len(scores) if options.top is None else options.top)
        return [
            {"index": int(place), "score": _element(scores[place])}
            | {name: _element(elements[place]) for name, elements in lists.items()}
            for place in order
            if scores[place] >= least
        ]

    def run(batch: Batch) -> None:
        found: list[list[dict[str, Any]] | None] = [None] * batch.rows
        for row in range(batch.rows):
            try:
                found[row] = ranking(batch, row)
            except Failure as failure:
                batch.fail(row, failure)
        batch.columns[options.output] = object_column(found)

    return run


def best_first(scores: NDArray[np.floating], top: int) -> NDArray[np.intp]:
    """Places of the ``top`` greatest scores, the greatest first, of equal ones the lower place first."""
    if top < len(scores):
        least = np.partition(scores, len(scores) - top)[len(scores) - top]
        places = np.flatnonzero(scores >= least)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:top]


def _elements(elements: Any, field: Field, count: int, source: Field) -> Any:
    if not isinstance(elements, list | np.ndarray):  # JSON, which no caller sends
        raise Failed(Code.STEP_FAILED, f"{field.name}: a list is needed here", field=field.name)
    if len(elements) != count:
        raise _misfit(field, f"has {len(elements)} elements", source, f"has {count}")
    return elements


def _misfit(field: Field, what: str, other: Field, other_what: str) -> Failure:
    """Of two that do not fit each other the one that the caller sent is at fault, or else the first."""
    if other.given and not field.given:
        field, what, other, other_what = other, other_what, field, what
    return unfit(field, Code.BAD_OUTPUT_SHAPE, f"{what}; {other.name} {other_what}")


def _element(value: Any) -> Any:
    return plain(np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value


SIMILARITY = Kind("similarity", Similarity, _similarity_fields, _similarity)
RANK = Kind("rank", Rank, _rank_fields, _rank, _rank_problems)
