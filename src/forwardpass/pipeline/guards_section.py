"""The section ``[[guards]]``: what its keys may be, and what must hold of each guard and of all together."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from forwardpass.core.errors import Misconfigured, show
from forwardpass.core.pipeline import Guard, GuardMode, Pii, Pipeline
from forwardpass.pipeline.files import file_problem
from forwardpass.pipeline.toml_values import (
    Findings,
    Read,
    closest,
    free_text,
    list_of,
    one_of,
    short_name,
    table,
    whole,
)
from forwardpass.steps.guard.checks import mistakes, ready
from forwardpass.steps.guard.placing import OPERATOR
from forwardpass.steps.guard.schema import is_text
from forwardpass.steps.options import Wrong
from forwardpass.steps.rules.expressions import FIELDS, Expression, Unanswered, compiled

Finding = tuple[str, str, str]

LENGTH_MAX = 2**40
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def _name(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and _NAME.fullmatch(value) and not value.startswith(OPERATOR):
        return value
    allowed = f'1 to 64 letters, digits, ".", "_" and "-", not beginning with "{OPERATOR}"'
    return findings.wrong(key, show(value), allowed)


KEYS: dict[str, Read] = {
    "name": _name,
    "on": one_of("input", "output"),
    "mode": one_of(*get_args(GuardMode)),
    "fields": list_of(short_name, count_max=256),
    "deny": list_of(free_text, count_max=1000),
    "allow": list_of(free_text, count_max=1000),
    "words": list_of(short_name, count_max=100_000),
    "words_file": short_name,
    "words_are": one_of("denied", "allowed"),
    "length_max": whole(0, LENGTH_MAX),
    "length_min": whole(0, LENGTH_MAX),
    "pii": list_of(one_of(*get_args(Pii)), count_max=len(get_args(Pii))),
    "schema": free_text,
    "judge": short_name,
    "when": free_text,
    "on_failure": one_of("block", "pass"),
}
GUARD = table(Guard, KEYS, name="", on="input")


def findings(pipeline: Pipeline, folder: Path) -> Iterator[Finding]:
    """Every broken rule of the section, as (key, found, allowed); fields that steps make are looked at when it loads."""
    seen: set[str] = set()
    for place, guard in enumerate(pipeline.guards):
        key = f"guards[{place}]"
        if guard.name in seen:
            yield f"{key}.name", f'"{guard.name}" is there twice', "guards need names of their own"
        seen.add(guard.name)
        yield from of_one(guard, key, folder)
        yield from _fields(guard, key, pipeline)


def of_one(
    guard: Guard, key: str, folder: Path, problem_of: Callable[[Path, str], str] = file_problem
) -> Iterator[Finding]:
    """What is wrong with one guard, whose files are in ``folder``. What needs a library that is missing, loading says."""
    wrong = [(f"{key}.{inside}".rstrip("."), found, allowed) for inside, found, allowed in mistakes(guard)]
    for name in ("words_file", "schema"):
        file = getattr(guard, name)
        problem = problem_of(folder, file) if file and not is_text(file) else ""
        if problem:
            wrong.append((f"{key}.{name}", f"{show(file)}: {problem}", "a plain relative name of a file in the folder"))
    yield from wrong
    if wrong:
        return
    try:
        if guard.judge:
            _refuse_no_question(compiled(guard.when))
        else:
            ready(guard, folder)
    except Wrong as error:
        yield f"{key}.when", error.found, error.allowed
    except Misconfigured as error:
        for each in error.problems:
            if each.allowed:
                yield f"{key}.{each.key}".rstrip("."), each.found, each.allowed


def _refuse_no_question(expression: Expression) -> None:
    """Raises Wrong for an expression that asks nothing of the judge's outputs, or is never true or false."""
    allowed = "an expression over the judge's outputs that is true or false, as score > 0.8"
    names = expression.names - expression.bound
    if not names:
        raise Wrong("it does not look at the judge's outputs", allowed)
    found = list(_values(expression, names))
    if found and not any(type(each) is bool for each in found):
        raise Wrong("it is neither true nor false", allowed)


def _values(expression: Expression, names: Iterable[str]) -> Iterator[Any]:
    """What it is of outputs of each kind, made up, where it has a value."""
    for value in (1.5, 1, "text", True, [1.5], ["text"], [True]):
        with suppress(Unanswered):
            yield expression.value({**dict.fromkeys(names, value), FIELDS: dict.fromkeys(expression.keys, value)})


def _fields(guard: Guard, key: str, pipeline: Pipeline) -> Iterator[Finding]:
    inputs = [name for given in pipeline.inputs for name in (given.columns or (given.name,))]
    known = inputs if guard.on == "input" else list(pipeline.outputs)
    for place, name in enumerate(guard.fields):
        if known and name not in known:
            yield f"{key}.fields[{place}]", f"no such {guard.on}", closest(name, dict.fromkeys(known))
