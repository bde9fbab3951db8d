"""An Answer as the scoring platforms read it: ``{"predictions": [...]}``, lines of JSON, or lines of CSV."""

from typing import Literal

import numpy as np
import orjson

from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.request import Answer
from forwardpass.ingress.dialects.csv_text import line_of
from forwardpass.pipeline import fields
from forwardpass.pipeline.bounds import refuse

Form = Literal["application/json", "application/jsonlines", "text/csv"]
FORMS: dict[str, Form] = {
    "application/json": "application/json", "application/*": "application/json",
    "application/jsonlines": "application/jsonlines", "application/x-ndjson": "application/jsonlines",
    "text/csv": "text/csv", "text/*": "text/csv",
}  # fmt: skip
"""What an Accept header may name, and what it then gets."""


def form_of(accept: bytes, default: Form = "application/json") -> Form:
    """The first of the forms an Accept header names; without one, or with */*, the default. Raises Refused for others."""
    for given in (accept.strip() or b"*/*").decode("latin-1").lower().split(","):
        media = given.partition(";")[0].strip()
        if media == "*/*":
            return default
        if media in FORMS:
            return FORMS[media]
    text = "must allow application/json, application/jsonlines or text/csv"
    raise refuse(Code.UNSUPPORTED_MEDIA_TYPE, "Accept", text)


def body_of(answer: Answer, form: Form) -> bytes:
    """The answer's rows in that form. Raises the first row's failure: these clients know no row without an answer.

    A row is the value of the only output, or an object by the names of several. Notes and a receipt stand beside the
    predictions of JSON; the other two have no room for them. Raises Refused for what CSV has no form for.
    """
    rows = _rows(answer)
    names = list(answer.outputs)
    if form == "text/csv":
        return "".join(f"{line_of(_cells(row))}\n" for row in rows).encode()
    values = [row[names[0]] for row in rows] if len(names) == 1 else rows
    if form == "application/jsonlines":
        option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        return b"".join([orjson.dumps(value, option=option) for value in values])
    body: dict[str, object] = {"predictions": values}
    if answer.notes:
        body["notes"] = [{"row": note.row, "name": note.name, "value": note.value} for note in answer.notes]
    if answer.receipt is not None:
        body["receipt"] = answer.receipt
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def _rows(answer: Answer) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for row, outcome in enumerate(fields.decode(answer, arrays=True)):
        if isinstance(outcome, Failure):
            raise _of_row(outcome, row) if answer.rows > 1 else outcome
        rows.append(outcome)
    return rows


def _of_row(failure: Failure, row: int) -> Failure:
    kind = Refused if isinstance(failure, Refused) else Failed
    return kind(
        failure.code,
        f"row {row}: {failure.text}",
        field=failure.field,
        detail=failure.detail,
        retry_after_s=failure.retry_after_s,
    )


def _cells(row: dict[str, object]) -> list[object]:
    """The values of one row side by side: those of a list take a cell each."""
    cells: list[object] = []
    for name, value in row.items():
        parts = list(value) if isinstance(value, np.ndarray | list) else [value]
        for part in parts:
            if isinstance(part, np.ndarray | list | dict):
                text = f"output '{name}' has no form in CSV; ask for application/json"
                raise Refused(Code.UNSUPPORTED_MEDIA_TYPE, text, field="Accept")
        cells += parts
    return cells
