"""The rows of a request, however its body writes them, and where each of its values stands there."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import ENCODED, Signature
from forwardpass.core.tensor import Tensor
from forwardpass.pipeline import fields
from forwardpass.pipeline.bounds import refuse, unknown_field

ROWS_MAX = 10_000
BASE64 = "b64"
"""TensorFlow Serving's and Vertex AI's form of bytes in JSON: ``{"b64": "..."}``."""

Record = Mapping[str, object]


class Rows(NamedTuple):
    """``at`` names, for refusals, the value that a row has of a column: a JSON pointer into the body."""

    records: Sequence[Record]
    at: Callable[[int, str], str]


def check_count(rows: int, where: str) -> None:
    """Raises Refused for no row and for too many."""
    if not rows:
        raise refuse(Code.MISSING_FIELD, where, "at least one row is required")
    if rows > ROWS_MAX:
        raise refuse(Code.BATCH_TOO_LARGE, where, f"at most {ROWS_MAX} rows are allowed, got {rows}")


def encode(signature: Signature, rows: Rows) -> tuple[list[Tensor], int]:
    """The tensors of a request. Raises Refused, naming the value as its body does."""
    try:
        return fields.encode(signature, rows.records, root="")
    except Refused as refused:
        raise _placed(refused, rows, signature) from None


def _placed(refused: Refused, rows: Rows, signature: Signature) -> Refused:
    _, row, *names = refused.field.split("/")
    if not row.isdigit() or not names:
        return refused
    if len(names) > 1 and any(given.name == names[0] and given.type == "record" for given in signature.inputs):
        del names[0]  # a record's columns are named without it
    place = "/".join([rows.at(int(row), names[0]), *names[1:]])
    return Refused(refused.code, refused.text.replace(refused.field, place, 1), field=place, detail=refused.detail)


def record_of(cells: Mapping[str, object], signature: Signature, where: str) -> Record:
    """One row by the names of its inputs; those of a record may stand by themselves. Raises Refused for another name."""
    names = {given.name: given.type for given in signature.inputs}
    if "record" not in names.values() and not any(isinstance(cell, dict) for cell in cells.values()):
        return cells  # as nearly every row: the names are checked with the values
    owners = {column: given.name for given in signature.inputs for column in given.columns}
    record: dict[str, object] = {}
    apart: dict[str, dict[str, object]] = {name: {} for name, type in names.items() if type == "record"}
    for name, cell in cells.items():
        if name in names and not (name in owners and not isinstance(cell, dict)):
            record[name] = undone(cell) if names[name] in ENCODED else cell
        elif name in owners:
            apart[owners[name]][name] = cell
        else:
            raise unknown_field(name, [*names, *owners] if len(names) > 1 else [*owners] or [*names], where)
    for name, columns in apart.items():
        if columns and name in record:
            raise refuse(Code.INVALID_INPUT, f"{where}/{name}", "is given as a whole and by its columns")
        record.setdefault(name, columns)
    return record


def undone(value: object) -> object:
    """The base64 text of bytes, where it stands in an object of its own."""
    return value[BASE64] if isinstance(value, dict) and value.keys() == {BASE64} else value
