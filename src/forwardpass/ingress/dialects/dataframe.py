"""Rows as a table has them: MLflow's two forms of a DataFrame, and what the lines of a CSV text become.

A column names an input, or one of a record's. Where the only input is a tensor, whose elements have no names, the
columns are its elements in the order they stand in, as MLflow does it.
"""

from collections.abc import Sequence
from math import prod

from forwardpass.core.errors import Code, show
from forwardpass.core.pipeline import Signature
from forwardpass.ingress.dialects.rows import Rows, check_count, record_of
from forwardpass.pipeline.bounds import refuse, unknown_field

SPLIT_KEYS = ("columns", "index", "data")


def split(frame: object, signature: Signature, where: str) -> Rows:
    """``{"columns", "index", "data"}``; the index is only looked at for its length. Raises Refused."""
    if not isinstance(frame, dict):
        raise refuse(Code.WRONG_TYPE, where, "expected an object with columns and data")
    for key in frame:
        if key not in SPLIT_KEYS:
            raise unknown_field(key, SPLIT_KEYS, where)
    data = _list(frame.get("data"), f"{where}/data")
    check_count(len(data), f"{where}/data")
    index = frame.get("index")
    if index is not None and len(_list(index, f"{where}/index")) != len(data):
        raise refuse(Code.SHAPE_MISMATCH, f"{where}/index", f"expected {len(data)} labels, one for each row")
    rows = [_list(row, f"{where}/data/{place}") for place, row in enumerate(data)]
    given = frame.get("columns")
    names = _names(range(len(rows[0])) if given is None else _list(given, f"{where}/columns"), f"{where}/columns")
    for place, row in enumerate(rows):
        if len(row) != len(names):
            text = f"expected {len(names)} values, one for each column, got {len(row)}"
            raise refuse(Code.SHAPE_MISMATCH, f"{where}/data/{place}", text)
    table = of_table(names, rows, signature, f"{where}/data")
    if elements_are_columns(names, signature):
        return table
    places = {name: place for place, name in enumerate(names)}
    return Rows(table.records, lambda row, name: f"{where}/data/{row}/{places.get(name, name)}")


def records(frame: object, signature: Signature, where: str) -> Rows:
    """A list of objects by the names of columns; what one of them lacks is missing. Raises Refused."""
    rows: list[dict[str, object]] = []
    for place, row in enumerate(_list(frame, where)):
        if not isinstance(row, dict):
            raise refuse(Code.WRONG_TYPE, f"{where}/{place}", "expected an object by the names of the columns")
        rows.append(row)
    check_count(len(rows), where)
    first = list(rows[0])
    if elements_are_columns(first, signature):
        for place, row in enumerate(rows):
            if row.keys() != rows[0].keys():
                raise refuse(Code.SHAPE_MISMATCH, f"{where}/{place}", "expected the columns of the first row")
        return of_table(first, [[row[name] for name in first] for row in rows], signature, where)
    found = [record_of(row, signature, f"{where}/{place}") for place, row in enumerate(rows)]
    return Rows(found, lambda row, name: f"{where}/{row}/{name}")


def of_table(names: Sequence[str], rows: Sequence[Sequence[object]], signature: Signature, where: str) -> Rows:
    """The rows under these names of columns, of which none stands there twice."""
    if elements_are_columns(names, signature):
        only = signature.inputs[0]
        wanted = prod(only.shape) if -1 not in only.shape else len(names)
        if len(names) != wanted:
            text = f"'{only.name}' has {wanted} elements; the table has {len(names)} columns"
            raise refuse(Code.SHAPE_MISMATCH, where or "the body", text)
        return Rows([{only.name: list(row)} for row in rows], lambda row, name: f"{where}/{row}")
    found = [record_of(dict(zip(names, row, strict=True)), signature, where) for row in rows]
    return Rows(found, lambda row, name: f"{where}/{row}/{name}")


def elements_are_columns(names: Sequence[str], signature: Signature) -> bool:
    """Whether a table's columns are the elements of the only input, a tensor, and not the names of inputs."""
    if len(signature.inputs) != 1 or signature.inputs[0].type != "tensor":
        return False
    only = signature.inputs[0]
    return bool(only.shape) and (len(only.shape) == 1 or -1 not in only.shape) and list(names) != [only.name]


def _names(given: Sequence[object], where: str) -> list[str]:
    """Names as text: a DataFrame without names numbers its columns."""
    names: list[str] = []
    for place, name in enumerate(given):
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise refuse(Code.WRONG_TYPE, f"{where}/{place}", "expected the name of a column")
        names.append(str(name))
    check_distinct(names, where)
    return names


def check_distinct(names: Sequence[str], where: str) -> None:
    """Raises Refused for a name that stands there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refuse(Code.INVALID_INPUT, where, f"the column '{show(name)}' is there twice")
        seen.add(name)


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise refuse(Code.WRONG_TYPE, where, "expected a list")
    return value
