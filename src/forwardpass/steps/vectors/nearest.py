"""Steps on a catalogue of items with a vector each: ``nearest`` and ``item_vectors``.

The search is exact. A query's scores are one product of the catalogue with that query alone: with a batch's queries
together it would be quicker, and its last bits would depend on who else asks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failure, Refused, show
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import Fit, Kind, describe, invalid, missing, not_finite, pick, unfit
from forwardpass.steps.options import Trouble, choice, field_name, file_name, number, option, text, whole
from forwardpass.steps.plain import least_of, shortest
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column
from forwardpass.steps.vectors.items import Items, load_items
from forwardpass.steps.vectors.ranking import TOP_MAX, VECTOR, best_first

_NAMED = Fit(
    "a text, a category or a list of texts",
    lambda field: field.kind in ("text", "category", "texts") and not field.shape,
)


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """The catalogue's items most like a vector, best first and of equal ones the earlier in the file first: a json list
    of the items' own objects, each with its score.

    ``vectors`` is a NumPy file (.npy) of FP32 [items, size], ``items`` has one JSON object a line in the same order.
    The search is exact, up to 1 000 000 items. ``cosine`` is 0 where a vector has no length. A vector that is not finite
    fails the row.
    """

    input: str | None = option(field_name(), "the vector; without it the latest floating vector", None)
    vectors: str = option(file_name(), "the items' vectors, a .npy file")
    items: str = option(file_name(), "the items, one JSON object a line")
    metric: Literal["cosine", "dot"] = option(choice("cosine", "dot"), "how they are compared", "cosine")
    top: int = option(whole(1, TOP_MAX), "how many items come back at most", 10)
    score_min: float | None = option(number(), "the least score that comes back", None)
    exclude: str | None = option(
        field_name(),
        "ids that must not come back (text, category or texts); others than the catalogue's are fine",
        None,
    )
    id: str | None = option(text(), 'the key of an item\'s id, a text of its own, by default "id"', None)
    score: str = option(text(), "the key that an item's score gets", "score")
    output: str = option(field_name(), "where the list goes", "nearest")


def _nearest_problems(options: Nearest) -> list[Trouble]:
    if options.id is not None and options.exclude is None:
        return [("id", options.id, "only with exclude")]
    return []


def _nearest_fields(options: Nearest, known: FieldMap) -> list[Field]:
    pick(known, options.input, VECTOR)
    if options.exclude is not None:
        pick(known, options.exclude, _NAMED, "exclude")
    return [Field(options.output, "BYTES", (), "json")]


def _nearest(options: Nearest, known: FieldMap, context: Context) -> Prepared:
    _nearest_fields(options, known)
    source = pick(known, options.input, VECTOR)
    key = None if options.exclude is None else options.id or "id"
    items = load_items(context.folder, options.vectors, options.items, key, taken=options.score)
    size = items.vectors.shape[1]
    if source.shape[0] not in (-1, size):
        raise invalid("vectors", f"vectors of size {size}", f"{source.shape[0]}, the size of {describe(source)}")
    scores_of = _measure(items.vectors, options.metric)
    least = least_of(options.score_min, "FP32")

    def nearest(query: NDArray[np.floating], excluded: Sequence[str]) -> list[dict[str, Any]]:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = scores_of(query)
        if not np.isfinite(scores).all():
            raise not_finite(source)
        out = [items.places[name] for name in excluded if name in items.places]
        scores[out] = -np.inf
        order = best_first(scores, options.top)
        kept = [place for place in order if scores[place] >= least and scores[place] != -np.inf]
        return [orjson.loads(items.lines[place]) | {options.score: shortest(scores[place])} for place in kept]

    def run(batch: Batch) -> None:
        queries = batch.columns[source.name]
        if queries.shape[1] != size:
            why = f"has {queries.shape[1]} numbers; the catalogue's vectors have {size}"
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, why)
        found: list[list[dict[str, Any]] | None] = [None] * batch.rows
        for row, query in enumerate(queries):
            excluded = _named(batch.columns[options.exclude][row]) if options.exclude else ()
            try:
                found[row] = nearest(query, excluded)
            except Failure as failure:
                batch.fail(row, failure)
        batch.columns[options.output] = object_column(found)

    return run


def _measure(vectors: NDArray[np.float32], metric: str) -> Callable[[NDArray[np.floating]], NDArray[np.float32]]:
    """A query's score with every vector."""
    if metric == "dot":
        return lambda query: vectors @ query.astype(np.float32)
    inverse = _inverse(np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)))

    def cosine(query: NDArray[np.floating]) -> NDArray[np.float32]:
        unit = query.astype(np.float64)
        unit *= _inverse(np.sqrt(np.square(unit).sum()))
        scores: NDArray[np.float64] = (vectors @ unit.astype(np.float32)) * inverse
        return scores.astype(np.float32)

    return cosine


def _inverse(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / length, 0 for a vector without length."""
    return np.where(lengths == 0, 0, 1 / np.where(lengths == 0, 1, lengths))


def _named(value: str | list[str] | None) -> Sequence[str]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class ItemVectors:
    """The mean of the vectors of the items that a caller names, FP32 [size]: what somebody who likes these is like.

    The files are those of ``nearest``. An item named twice counts twice. A missing id, an empty list and an id that the
    catalogue does not have refuse the row, naming it.
    """

    input: str | None = option(
        field_name(), "the ids (text, category or texts); without it the latest such field", None
    )
    vectors: str = option(file_name(), "the items' vectors, a .npy file of FP32 [items, size]")
    items: str = option(file_name(), "the items, one JSON object a line")
    id: str = option(text(), "the key of an item's id, a text of its own", "id")
    output: str = option(field_name(), "where the mean goes", "embedding")


def _item_fields(options: ItemVectors, known: FieldMap) -> list[Field]:
    pick(known, options.input, _NAMED)
    return [Field(options.output, "FP32", (-1,))]  # the size stands in the file


def _item_vectors(options: ItemVectors, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _NAMED).name
    items = load_items(context.folder, options.vectors, options.items, options.id)

    def run(batch: Batch) -> None:
        means = np.zeros((batch.rows, items.vectors.shape[1]), dtype=np.float32)
        for row, value in enumerate(batch.columns[source]):
            refusal = _refusal(items, source, value)
            if refusal is not None:
                batch.fail(row, refusal)
                continue
            places = [items.places[name] for name in _named(value)]
            means[row] = items.vectors[places].mean(axis=0, dtype=np.float64)
        batch.columns[options.output] = means

    return run


def _refusal(items: Items, source: str, value: str | list[str] | None) -> Refused | None:
    if value is None:
        return missing(source)
    for name in _named(value):
        if name not in items.places:
            return Refused(Code.INVALID_INPUT, f"{source}: there is no item {show(name)}", field=source)
    return None if value else Refused(Code.INVALID_INPUT, f"{source}: names no item", field=source)


NEAREST = Kind("nearest", Nearest, _nearest_fields, _nearest, _nearest_problems)
ITEM_VECTORS = Kind("item_vectors", ItemVectors, _item_fields, _item_vectors)
