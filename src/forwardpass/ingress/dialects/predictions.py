"""An Answer as the scoring platforms read it: ``{"predictions": [...]}``, lines of JSON, or lines of CSV."""

import re
from typing import Literal, get_args

import numpy as np
import orjson

from forwardpass.core.errors import Code, Refused
from forwardpass.core.request import Answer
from forwardpass.ingress.dialects.csv_text import line_of
from forwardpass.ingress.dialects.envelope import raise_first
from forwardpass.pipeline import fields
from forwardpass.pipeline.bounds import refuse

Form = Literal[
    "application/json", "application/jsonlines", "application/x-jsonlines", "application/x-ndjson", "text/csv"
]
FORMS: tuple[Form, ...] = get_args(Form)
"""What an Accept header may name."""
LINES: tuple[Form, ...] = ("application/jsonlines", "application/x-jsonlines", "application/x-ndjson")
"""Three names of one form."""
_QUALITY = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def form_of(accept: bytes, default: Form = "application/json") -> Form:
    """The form that an Accept header likes best, of equals the one named first. Raises Refused not_acceptable.

    Where it leaves the choice, as without one, that is the default. ``q=0`` is never what it names.
    """
    asked = [_asked(each) for each in (accept.strip() or b"*/*").decode("latin-1").lower().split(",")]
    never = {media for media, quality in asked if not quality}
    for media, quality in sorted(asked, key=lambda each: -each[1]):
        for form in (default, *FORMS) if quality else ():
            if form not in never and media in (form, f"{form.partition('/')[0]}/*", "*/*"):
                return form
    raise refuse(Code.NOT_ACCEPTABLE, "Accept", f"must allow one of {', '.join(FORMS)}")


def _asked(given: str) -> tuple[str, float]:
    """One media range and how well it is liked: fully, where that is not said as RFC 9110 has it."""
    media, *parameters = [part.strip() for part in given.split(";")]
    found = next(filter(None, map(_QUALITY.fullmatch, parameters)), None)
    return media, 1.0 if found is None else float(found[1])


def body_of(answer: Answer, form: Form) -> bytes:
    """The answer's rows in that form. Raises the first row's failure: these clients know no row without an answer.

    A row is the value of the only output, or an object by the names of several. Notes and a receipt stand beside the
    predictions of JSON; the other two have no room for them. Raises Refused for what CSV has no form for.
    """
    raise_first(answer)
    rows = [row for row in fields.decode(answer, arrays=True) if isinstance(row, dict)]
    names = list(answer.outputs)
    if form == "text/csv":
        return "".join(f"{line_of(_cells(row))}\n" for row in rows).encode()
    values = [row[names[0]] for row in rows] if len(names) == 1 else rows
    if form in LINES:
        option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        return b"".join([orjson.dumps(value, option=option) for value in values])
    body: dict[str, object] = {"predictions": values}
    if answer.notes:
        body["notes"] = [{"row": note.row, "name": note.name, "value": note.value} for note in answer.notes]
    if answer.receipt is not None:
        body["receipt"] = answer.receipt
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def _cells(row: dict[str, object]) -> list[object]:
    """The values of one row side by side: those of a list take a cell each."""
    cells: list[object] = []
    for name, value in row.items():
        parts = list(value) if isinstance(value, np.ndarray | list) else [value]
        for part in parts:
            if isinstance(part, np.ndarray | list | dict):
                text = f"output '{name}' has no form in CSV; ask for application/json"
                raise Refused(Code.NOT_ACCEPTABLE, text, field="Accept")
        cells += parts
    return cells
