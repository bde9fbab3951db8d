"""Guards on the columns of a batch: what the stages before the first step and behind the last are, and the step ``guard``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import ENCODED, Field, Guard
from forwardpass.steps.guard.checks import Check, Seen, blocked, ready
from forwardpass.steps.guard.schema import parsed
from forwardpass.steps.guard.spans import TooMany
from forwardpass.steps.kind import FILE, describe
from forwardpass.steps.options import did_you_mean
from forwardpass.steps.protocol import Batch, Column, Prepared, object_column

NOTE = "guard"
Look = Callable[[Any], tuple[int, Any]]
"""A row's value -> how often the check fired in it, and the value as it goes on."""


def holds_text(field: Field) -> bool:
    """Whether a guard can look at it: text in any form, JSON with what stands in it."""
    return field.datatype == "BYTES" and field.kind not in ENCODED


def guarded(guard: Guard, known: Mapping[str, Field], *, everywhere: bool = False) -> list[Field]:
    """The fields a guard looks at. Raises Misconfigured for one that is not there, or when there is none.

    ``everywhere``: the guard is not this pipeline's own, and there may be none.
    """
    texts = {name: field for name, field in known.items() if holds_text(field)}
    there = f"fields with text here: {', '.join(texts) or 'none'}"
    for place, name in enumerate(guard.fields):
        if name not in texts:
            found = f"{describe(known[name])} holds no text" if name in known else f"no field is named {name!r}"
            problem = Problem(FILE, f"fields[{place}]", found, there + did_you_mean(name, texts))
            raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    if not texts and not everywhere:
        raise Misconfigured(Code.DEFINITION_INVALID, (Problem(FILE, "fields", "none holds text", there),))
    return [known[name] for name in texts if not guard.fields or name in guard.fields]


def prepare(guard: Guard, fields: Sequence[Field], folder: Path) -> Prepared:
    """The guard as a function on a batch with these fields. Raises Misconfigured."""
    check = ready(guard, folder)
    looks = [(field, _look_of(check, field)) for field in fields]

    def run(batch: Batch) -> None:
        for field, look in looks:
            _guard(batch, field, look, guard)

    return run


def _guard(batch: Batch, field: Field, look: Look, guard: Guard) -> None:
    column = batch.columns[field.name]
    masked: Column | None = None
    for row in range(batch.rows):
        if row in batch.failing:
            continue
        try:
            count, value = look(column[row])
        except TooMany:
            count, value = 1, None
            batch.fail(row, blocked(guard, field.name))
        if not count:
            continue
        batch.note(row, NOTE, verdict(guard, field.name, count))
        if guard.mode == "block":
            batch.fail(row, blocked(guard, field.name))
        elif guard.mode == "mask" and row not in batch.failing:
            masked = column.copy() if masked is None else masked
            masked[row] = value
    if masked is not None:
        batch.columns[field.name] = masked


def verdict(guard: Guard, field: str, count: int) -> dict[str, Any]:
    """What callers and receipts are told of a guard that fired, and nothing of what it saw."""
    return {"guard": guard.name, "on": guard.on, "mode": guard.mode, "field": field, "count": count}


def _look_of(check: Check, field: Field) -> Look:
    if check.value is not None:
        fails = check.value
        return _of_json(fails) if field.kind == "json" else _of_elements(_of_json_text(fails), field)
    if field.kind == "json":
        return lambda value: _in_json(check, value)
    return _of_elements(lambda text: _pair(check.look(text)), field)


def _of_json(fails: Callable[[Any], bool]) -> Look:
    return lambda value: (int(fails(value)), value)


def _of_json_text(fails: Callable[[Any], bool]) -> Look:
    def look(text: str) -> tuple[int, Any]:
        try:
            return int(fails(parsed(text))), text
        except ValueError:
            return 1, text

    return look


def _of_elements(look: Look, field: Field) -> Look:
    """The look at a text made one at each of a list or array of texts; bytes that are no text, and null, hold none."""

    def of_one(value: Any) -> tuple[int, Any]:
        if isinstance(value, bytes):
            try:
                count, text = look(value.decode())
            except UnicodeDecodeError:
                return 0, value
            return count, text.encode() if isinstance(text, str) else value
        return look(value) if isinstance(value, str) else (0, value)

    def of_array(values: Any) -> tuple[int, Any]:
        seen = [of_one(value) for value in values.reshape(-1)]
        return sum(count for count, _ in seen), object_column([v for _, v in seen]).reshape(values.shape)

    def of_row(value: Any) -> tuple[int, Any]:
        if isinstance(value, np.ndarray):
            return of_array(value)
        if isinstance(value, list):
            return _summed(map(of_one, value))
        return of_one(value)

    return of_row


def _in_json(check: Check, value: Any) -> tuple[int, Any]:
    """Every text in a JSON value, the names in its objects too; two names that become one stay two."""
    match value:
        case str():
            return _pair(check.look(value))
        case list() | tuple():
            return _summed(_in_json(check, each) for each in value)
        case dict():
            count = 0
            made: dict[str, Any] = {}
            numbers: dict[str, int] = {}
            for name, each in value.items():
                in_name, shown = _pair(check.look(name)) if isinstance(name, str) else (0, name)
                in_value, left = _in_json(check, each)
                count += in_name + in_value
                made[_unlike(shown, made, numbers)] = left
            return count, made
    return 0, value


def _unlike(name: str, names: Mapping[str, Any], numbers: dict[str, int]) -> str:
    """The name, with a number behind it where it is taken; ``numbers`` has those that were given."""
    made = name
    while made in names:
        numbers[name] = numbers.get(name, 1) + 1
        made = f"{name} ({numbers[name]})"
    return made


def _pair(seen: Seen) -> tuple[int, Any]:
    return seen.count, seen.text


def _summed(seen: Iterable[tuple[int, Any]]) -> tuple[int, list[Any]]:
    every = list(seen)
    return sum(count for count, _ in every), [value for _, value in every]
