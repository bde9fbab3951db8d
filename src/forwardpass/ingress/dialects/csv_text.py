"""Comma-separated values as RFC 4180 has them: a body to rows, and rows to a body.

An empty cell is a missing value, a quoted empty one an empty text. A cell is read as its column's type says, so that
"01" stays a text in a category; what cannot be read so is left a text, and refused as JSON's text would be.
"""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Signature
from forwardpass.ingress.dialects.dataframe import check_distinct, elements_are_columns, of_table
from forwardpass.ingress.dialects.rows import ROWS_MAX, Rows, check_count
from forwardpass.ingress.strict_json import check_size
from forwardpass.pipeline.bounds import FLOATS, refuse

CELLS_MAX = 2_000_000
_CELL = re.compile(r'(?:"((?:[^"]++|"")*+)"|([^",\r\n]*+))(,|\r?\n|\Z)')
# Possessive, as the other patterns: what a cell of a million digits takes is once its length, not the square of that.
_NUMBER = re.compile(r"[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")
_NUMBERS = re.compile(rf"(?:{_NUMBER.pattern},)*+{_NUMBER.pattern}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_QUOTED = re.compile(r'[",\r\n]')
_HEADER = "Content-Type must say text/csv; header=present or text/csv; header=absent"

Cell = str | None


def rows(body: bytes, signature: Signature, header: str) -> Rows:
    """The rows of a CSV body. ``header`` is present, absent or "": then the first line names the columns.

    "" lets a first line be a row that can be no header: one of numbers where columns are elements of a tensor, whose
    names say nothing; else one with a number under each column of numbers, which names none. Raises Refused, also where
    that line could be both.
    """
    lines = parse(body)
    check_count(min(len(lines), 1), "the body")
    if header == "absent" or (header == "" and _is_row(lines[0], signature)):
        names = _names_without_header(len(lines[0]), signature)
    else:
        names = [cell or "" for cell in lines.pop(0)]
        check_distinct(names, "the first line")
        if header == "":
            _check_header(names, signature)
    check_count(len(lines), "the body")
    for place, line in enumerate(lines):
        if len(line) != len(names):
            text = f"expected {len(names)} cells, one for each column, got {len(line)}"
            raise refuse(Code.SHAPE_MISMATCH, f"/{place}", text)
    if elements_are_columns(names, signature):
        columns = [Field(name, signature.inputs[0].datatype) for name in names]
    else:
        known = {column.name: column for column in signature.columns}
        columns = [known.get(name, Field(name, "BYTES", (), "text")) for name in names]
    read = [_read_all(cells, column) for cells, column in zip(zip(*lines, strict=True), columns, strict=True)]
    return of_table(names, list(zip(*read, strict=True)), signature, "")


def parse(body: bytes) -> list[list[Cell]]:
    """The cells of all lines. Raises Refused for what is not UTF-8 or no CSV, and past a bound."""
    check_size(body)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(Code.INVALID_UTF8, f"the body is not UTF-8 at byte {error.start}") from None
    if "\0" in text:
        raise Refused(Code.BAD_REQUEST, "the body holds a NUL, which CSV has not")
    if text.count(",") + text.count("\n") > CELLS_MAX:
        raise Refused(Code.INPUT_TOO_LARGE, f"the body may have more than {CELLS_MAX} cells, the most allowed")
    lines = _quoted_lines(text) if '"' in text else _plain_lines(text)
    if len(lines) > ROWS_MAX + 1:
        raise Refused(Code.BATCH_TOO_LARGE, f"the body: at most {ROWS_MAX} rows are allowed, got {len(lines)} lines")
    for place, line in enumerate(lines):
        if line == [None]:
            raise Refused(Code.BAD_REQUEST, f'line {place + 1} is empty; an empty cell by itself is written ""')
    return lines


def line_of(cells: Iterable[object]) -> str:
    """One line of values that are numbers, text, true, false or missing."""
    return ",".join(map(_written, cells))


def _plain_lines(text: str) -> list[list[Cell]]:
    text = text.replace("\r\n", "\n").removesuffix("\n")
    if "\r" in text:
        raise Refused(Code.BAD_REQUEST, "a line ends with CR alone; lines end with LF or CR LF")
    return [[cell or None for cell in line.split(",")] for line in text.split("\n")] if text else []


def _quoted_lines(text: str) -> list[list[Cell]]:
    lines: list[list[Cell]] = []
    line: list[Cell] = []
    position = 0
    while position < len(text) or line:
        found = _CELL.match(text, position)
        if found is None:
            where = f"line {len(lines) + 1}, cell {len(line) + 1}"
            raise Refused(Code.BAD_REQUEST, f"{where}: a quote or a line's end stands where CSV allows none")
        quoted, plain, end = found.groups()
        line.append(plain or None if quoted is None else quoted.replace('""', '"'))
        position = found.end()
        if end != ",":
            lines.append(line)
            line = []
    return lines


def _is_row(line: Sequence[Cell], signature: Signature) -> bool:
    """Whether a first line has numbers where they belong, and so is no header. Raises Refused if it may be one."""
    names = [cell or "" for cell in line]
    if not elements_are_columns(names, signature):
        return _is_record(line, signature)
    if signature.inputs[0].datatype == "BYTES":
        raise refuse(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type", f"the first line may be a header or text; {_HEADER}")
    _refuse_places(line)
    return all(cell is None or _NUMBER.fullmatch(cell.strip()) or cell.strip().lower() == "nan" for cell in line)


def _is_record(line: Sequence[Cell], signature: Signature) -> bool:
    columns = signature.columns
    if len(line) != len(columns) or {column.name for column in columns} & set(line):
        return False
    numbers = [_read(cell, column) for cell, column in zip(line, columns, strict=True) if column.datatype != "BYTES"]
    if any(isinstance(number, str) for number in numbers) or all(number is None for number in numbers):
        return False
    _refuse_places(line)
    return True


def _refuse_places(line: Sequence[Cell]) -> None:
    """Raises Refused for a line that counts its columns: a table without names is written with such a header."""
    if list(line) == [str(place) for place in range(len(line))]:
        text = f"the first line may be a header or numbers; {_HEADER}"
        raise refuse(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type", text)


def _check_header(names: Sequence[str], signature: Signature) -> None:
    """Raises Refused where none of a first line's cells names a column: it would be a row that is lost."""
    known = [column.name for column in signature.columns]
    if not elements_are_columns(names, signature) and not set(names) & set(known):
        text = f"the first line names none of the columns ({', '.join(known[:16])}); {_HEADER}"
        raise Refused(Code.UNKNOWN_FIELD, text[:500], field="the first line")


def _names_without_header(cells: int, signature: Signature) -> list[str]:
    numbers = [str(place) for place in range(cells)]
    if elements_are_columns(numbers, signature):
        return numbers
    names = [column.name for column in signature.columns]
    if len(names) != cells:
        text = f"expected {len(names)} cells without a header ({', '.join(names[:16])}), got {cells}"
        raise refuse(Code.SHAPE_MISMATCH, "/0", text[:400])
    return names


def _read_all(cells: Sequence[Cell], column: Field) -> Sequence[object]:
    """The cells of one column. Numbers that all are as they should be are read at once: that is most of the work."""
    if column.datatype == "BYTES":
        return cells
    if column.datatype in FLOATS and None not in cells and _NUMBERS.fullmatch(",".join(map(str, cells))):
        numbers = [float(cell or "") for cell in cells]
        if all(map(math.isfinite, numbers)):
            return numbers
    return [_read(cell, column) for cell in cells]


def _read(cell: Cell, column: Field) -> object:
    """A cell as its column's type says; a text where that is not possible."""
    if cell is None:
        return None
    text = cell.strip()
    if column.datatype == "BOOL":
        return {"true": True, "false": False, "1": True, "0": False}.get(text.lower(), cell)
    if text.lower() == "nan" and column.datatype in FLOATS:
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    number = float(text) if _NUMBER.fullmatch(text) else float("inf")
    return cell if number in (float("inf"), float("-inf")) else number


def _written(cell: object) -> str:
    if cell is None or (isinstance(cell, float | np.floating) and math.isnan(cell)):
        return ""
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if not isinstance(cell, str):
        return str(cell)  # of numpy's as well: FP32 keeps its short form
    return f'"{cell.replace(chr(34), chr(34) * 2)}"' if not cell or _QUOTED.search(cell) else cell
