"""Elements of rows: ``expand`` makes each a row, ``fold`` makes rows of them again, ``records`` lists them as JSON.

Between the two, the elements of all rows are one batch (the crops of all pages, the windows of all texts).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.pipeline import Field, FieldKind
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.steps.kind import NUMBER, Fit, Kind, fail_nan, invalid, is_float, pick, unfit
from forwardpass.steps.options import Trouble, choice, field_name, option, several, table, whole
from forwardpass.steps.plain import plain
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared, object_column

ELEMENTS_MAX = 1_000_000
_LIST = Fit(
    "a list in each row: texts, JSON or a ragged field that is free in its first axis, or a tensor",
    lambda field: field.kind in ("texts", "json") or (field.datatype in NUMPY_NAMES and bool(field.shape)),
)
_ANY = Fit("a field", lambda field: True)
_POOLED = Fit("numbers", lambda field: field.kind in ("tensor", "number") and field.datatype in NUMPY_NAMES)
_JOINED = Fit(
    "a list in each element: texts, or numbers [n, ...] whose other axes are not free",
    lambda field: (
        field.kind == "texts" or (field.datatype in NUMPY_NAMES and bool(field.shape) and -1 not in field.shape[1:])
    ),
)
Pooling = Literal["mean", "max", "min", "sum", "first", "last"]


@dataclass(frozen=True, kw_only=True)
class Expand:
    """Makes each element of a row's lists a row of its own, until ``fold``: detections, documents, pages.

    The lists of one row are of equal length, which may be 0. Inside, there are their elements, under the names that
    ``over`` gives (texts: a text; ragged or tensor [n, ...]: a tensor [...]; JSON: a JSON value), and the fields in
    ``keep``, repeated. Lists of unequal length or more than ``count_max`` elements fail their row, as does a JSON value
    that is no list.
    """

    over: Mapping[str, str] = option(table(field_name()), "list field = the name of one element of it")
    keep: tuple[str, ...] = option(several(field_name(), distinct=True), "fields of the row that the elements need", ())
    count_max: int = option(whole(1, ELEMENTS_MAX), "the most elements of one row", 1000)


def _expanded_fields(options: Expand, known: FieldMap) -> list[Field]:
    made = [pick(known, name, _ANY, "keep") for name in options.keep]
    for source, name in options.over.items():
        field = pick(known, source, _LIST, f"over.{source}")
        match field.kind:
            case "texts":
                made.append(Field(name, "BYTES", (), "text", given=field.given))
            case "json":
                made.append(Field(name, "BYTES", (), "json", given=field.given))
            case _:
                inner = field.shape[1:]
                ragged = field.kind == "ragged" and -1 in inner
                made.append(Field(name, field.datatype, inner, "ragged" if ragged else "tensor", given=field.given))
    return made


def _expand(options: Expand, known: FieldMap, context: Context) -> Prepared:
    made = {field.name: field for field in _expanded_fields(options, known)}
    sources = [known[source] for source in options.over]

    def run(batch: Batch) -> None:
        for row in range(batch.rows):
            lists = {source.name: batch.columns[source.name][row] for source in sources}
            failure = _unequal(sources, lists) or _too_many(options, sources[0], lists)
            if failure is not None:
                batch.fail(row, failure)
        batch.settle()
        first = batch.columns[next(iter(options.over))]
        counts = [len(value) for value in first]
        parents = np.repeat(np.arange(batch.rows), counts)
        columns = {name: batch.columns[name][parents] for name in options.keep}
        for source, name in options.over.items():
            elements = [element for value in batch.columns[source] for element in value]
            columns[name] = _column(made[name], elements)
        batch.expand(counts, columns)

    return run


def _unequal(sources: Sequence[Field], lists: Mapping[str, Any]) -> Failure | None:
    """Why these are no lists of one length: the caller's fault if all of them were sent."""
    for source, values in zip(sources, lists.values(), strict=True):
        if not isinstance(values, list | np.ndarray):
            return unfit(source, Code.BAD_OUTPUT_SHAPE, "a list is needed here")
    if len({len(values) for values in lists.values()}) == 1:
        return None
    said = ", ".join(f"{name} has {len(values)}" for name, values in lists.items())
    blamed = next((source for source in sources if not source.given), sources[0])
    return unfit(blamed, Code.BAD_OUTPUT_SHAPE, f"the lists differ in length: {said}")


def _too_many(options: Expand, source: Field, lists: Mapping[str, Any]) -> Failure | None:
    count = len(lists[source.name])
    if count <= options.count_max:
        return None
    text = f"has {count} elements; at most {options.count_max} are allowed"
    return unfit(source, Code.OUTPUT_TOO_LARGE, text)


def _column(field: Field, elements: Sequence[Any]) -> Column:
    if field.kind in ("text", "json", "ragged"):
        return object_column(elements)
    if not elements:
        return np.empty((0, *field.shape), dtype=NUMPY_NAMES[field.datatype])
    return np.stack(elements)


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Makes rows of their elements again; every field of the row from before ``expand`` is back.

    ``lists`` keeps all elements of a field as one list (tensors: ragged [n, ...]; text: texts; JSON: JSON); ``join``
    puts the lists of all elements one behind the other (the boxes found in each copy or tile of an image);
    ``records`` makes one JSON list of objects of ``fields``, in order; ``pool`` joins the numbers of all elements into
    one tensor; ``best`` keeps ``fields`` of the element with the greatest ``by``, of equal ones the first. A row
    without elements gets empty lists; with ``pool`` or ``best`` it fails.
    """

    lists: Mapping[str, str] | None = option(table(field_name()), "element field = list field", None)
    join: Mapping[str, str] | None = option(table(field_name()), "list field of an element = list field", None)
    records: str | None = option(field_name(), "the JSON list of objects", None)
    fields: tuple[str, ...] = option(several(field_name(), distinct=True), "what each object holds", ())
    pool: Mapping[str, Pooling] | None = option(
        table(choice("mean", "max", "min", "sum", "first", "last")), "element field = how", None
    )
    best: str | None = option(field_name(), "the field whose greatest number picks the element", None)
    keep: tuple[str, ...] = option(several(field_name(), distinct=True), "what is kept of that element", ())


def _fold_problems(options: Fold) -> list[Trouble]:
    troubles: list[Trouble] = []
    if not (options.lists or options.join or options.records or options.pool or options.best):
        troubles.append(("records", "this fold keeps nothing", "lists, join, records, pool or best"))
    if (options.records is None) != (not options.fields):
        troubles.append(("fields", "records and fields stand together", "both or neither"))
    if (options.best is None) != (not options.keep):
        troubles.append(("keep", "best and keep stand together", "both or neither"))
    return troubles


def _folded_fields(options: Fold, known: FieldMap) -> list[Field]:
    made = [
        _list_of(pick(known, source, _ANY, f"lists.{source}"), name) for source, name in (options.lists or {}).items()
    ]
    for source, name in (options.join or {}).items():
        field = pick(known, source, _JOINED, f"join.{source}")
        shape = () if field.kind == "texts" else (-1, *field.shape[1:])
        kind: FieldKind = "texts" if field.kind == "texts" else "ragged"
        made.append(Field(name, field.datatype, shape, kind, given=field.given))
    for name in options.fields:
        pick(known, name, _ANY, "fields")
    if options.records is not None:
        made.append(Field(options.records, "BYTES", (), "json"))
    for name, how in (options.pool or {}).items():
        made.append(pick(known, name, _POOLED, f"pool.{name}"))
        if how == "mean" and not is_float(made[-1]) and made[-1].kind != "number":
            raise invalid(f"pool.{name}", "mean of whole numbers", "a floating field")
    if options.best is not None:
        pick(known, options.best, NUMBER, "best")
    return made + [pick(known, name, _ANY, "keep") for name in options.keep]


def _list_of(field: Field, name: str) -> Field:
    if field.kind in ("text", "category", "tensor") and field.datatype == "BYTES" and not field.shape:
        return Field(name, "BYTES", (), "texts", given=field.given)
    if field.kind == "json":
        return Field(name, "BYTES", (), "json", given=field.given)
    if field.kind in ("tensor", "number") and field.datatype in NUMPY_NAMES:
        return Field(name, field.datatype, (-1, *field.shape), "ragged", given=field.given)
    raise invalid(
        f"lists.{field.name}",
        f"{field.name} cannot be an element of a list",
        "tensors, text or JSON; records takes all",
    )


def _fold(options: Fold, known: FieldMap, context: Context) -> Prepared:
    _folded_fields(options, known)

    def run(batch: Batch) -> None:
        inner = {name: batch.columns[name] if batch.rows else _nothing(field) for name, field in known.items()}
        parents = batch.fold()
        places = [np.flatnonzero(parents == row) for row in range(batch.rows)] if batch.rows else []
        for source, name in (options.lists or {}).items():
            batch.columns[name] = object_column([_listed(known[source], inner[source][place]) for place in places])
        for source, name in (options.join or {}).items():
            batch.columns[name] = object_column([_joined(known[source], inner[source][place]) for place in places])
        if options.records is not None:
            rows = [[_object(options.fields, known, inner, int(p)) for p in place] for place in places]
            batch.columns[options.records] = object_column(rows)
        for row, place in enumerate(places):
            if not len(place) and (options.pool or options.best):
                batch.fail(row, Failed(Code.STEP_FAILED, "there is no element to make an answer of"))
        for name, how in (options.pool or {}).items():
            batch.columns[name] = _pooled(inner[name], places, how)
        if options.best is not None:
            fail_best(batch, known[options.best], inner[options.best], places)
            picked = [int(place[np.argmax(inner[options.best][place])]) if len(place) else 0 for place in places]
            for name in options.keep:
                batch.columns[name] = _picked(inner[name], picked, len(parents))

    return run


def fail_best(batch: Batch, field: Field, scores: Column, places: Sequence[NDArray[np.int64]]) -> None:
    """Fail the rows among whose scores one is not a number."""
    worst = np.array([np.nan if np.isnan(scores[place]).any() else 0.0 for place in places])
    fail_nan(batch, field, worst[:, np.newaxis])


def _nothing(field: Field) -> Column:
    if field.datatype in NUMPY_NAMES and field.kind != "ragged":
        return np.empty((0, *(max(size, 0) for size in field.shape)), dtype=NUMPY_NAMES[field.datatype])
    return np.empty(0, dtype=object)


def _listed(field: Field, elements: Column) -> Any:
    return elements if field.datatype in NUMPY_NAMES else list(elements)


def _joined(field: Field, lists: Column) -> Any:
    if field.kind == "texts":
        return [text for texts in lists for text in texts]
    return np.concatenate([np.empty((0, *field.shape[1:]), NUMPY_NAMES[field.datatype]), *lists])


def _pooled(column: Column, places: Sequence[NDArray[np.int64]], how: Pooling) -> Column:
    shape = (len(places), *column.shape[1:])
    pooled = np.zeros(shape, dtype=column.dtype)
    for row, place in enumerate(places):
        if len(place):
            elements = column[place]
            match how:
                case "mean":
                    pooled[row] = elements.mean(axis=0, dtype=np.float64)
                case "max":
                    pooled[row] = elements.max(axis=0)
                case "min":
                    pooled[row] = elements.min(axis=0)
                case "sum":
                    pooled[row] = elements.sum(axis=0)
                case "first":
                    pooled[row] = elements[0]
                case "last":
                    pooled[row] = elements[-1]
    return pooled


def _picked(column: Column, places: Sequence[int], there: int) -> Column:
    if not there:  # every row failed; there is nothing to take
        return np.zeros((len(places), *column.shape[1:]), dtype=column.dtype)
    return column[np.array(places, dtype=np.int64)]


@dataclass(frozen=True, kw_only=True)
class Records:
    """Makes one JSON list of objects of several lists: ``{ box = "boxes", score = "scores" }`` of boxes and scores.

    The lists of one row are of equal length, which may be 0; a tensor's first axis is such a list. FP32 becomes the
    JSON number with the fewest digits that is that FP32. Lists of unlike length, and a JSON value that is no list, fail
    their row: `bad_output_shape`, or `shape_mismatch` where the caller sent all of them.
    """

    fields: Mapping[str, str] = option(table(field_name()), "key of each object = list field")
    output: str = option(field_name(), "where the JSON goes", "records")


def _records_fields(options: Records, known: FieldMap) -> list[Field]:
    for key, name in options.fields.items():
        pick(known, name, _LIST, f"fields.{key}")
    return [Field(options.output, "BYTES", (), "json")]


def _records(options: Records, known: FieldMap, context: Context) -> Prepared:
    sources = [known[name] for name in options.fields.values()]

    def run(batch: Batch) -> None:
        rows: list[list[dict[str, Any]]] = []
        for row in range(batch.rows):
            lists = {key: _plain(batch.columns[name][row]) for key, name in options.fields.items()}
            failure = _unequal(sources, lists)
            if failure is not None:
                batch.fail(row, failure)
                rows.append([])
                continue
            rows.append([dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)])
        batch.columns[options.output] = object_column(rows)

    return run


def _object(fields: Sequence[str], known: FieldMap, inner: Mapping[str, Column], place: int) -> dict[str, Any]:
    return {name: _plain(inner[name][place]) for name in fields}


def _plain(value: Any) -> Any:
    """A value of a column as JSON has it."""
    return plain(np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value


EXPAND = Kind("expand", Expand, _expanded_fields, _expand, level=1)
FOLD = Kind("fold", Fold, _folded_fields, _fold, _fold_problems, level=-1)
RECORDS = Kind("records", Records, _records_fields, _records)
