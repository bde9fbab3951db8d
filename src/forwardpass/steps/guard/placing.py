"""A pipeline's guards, its own and its operator's, over the fields that it has. Judges are asked elsewhere: by the front."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Field, Guard, Pipeline
from forwardpass.steps.guard.stage import guarded, prepare
from forwardpass.steps.protocol import Prepared

OPERATOR = "operator."
"""What the names of the operator's guards begin with, and no other's."""


def input_guards(definition: Pipeline, known: Mapping[str, Field], folder: Path) -> list[Prepared]:
    """Those on inputs, the operator's first. Raises Misconfigured with the guard's place."""
    places = [place for place, guard in enumerate(definition.guards) if guard.on == "input"]
    ordered = sorted(places, key=lambda place: not is_operators(definition.guards[place]))
    return _prepared(definition, ordered, known, folder)


def output_guards(definition: Pipeline, known: Mapping[str, Field], folder: Path) -> list[Prepared]:
    """Those on outputs, the operator's last. Raises Misconfigured with the guard's place."""
    places = [place for place, guard in enumerate(definition.guards) if guard.on == "output"]
    ordered = sorted(places, key=lambda place: is_operators(definition.guards[place]))
    return _prepared(definition, ordered, known, folder)


def is_operators(guard: Guard) -> bool:
    return guard.name.startswith(OPERATOR)


def _prepared(definition: Pipeline, places: list[int], known: Mapping[str, Field], folder: Path) -> list[Prepared]:
    made: list[Prepared] = []
    for place in places:
        guard = definition.guards[place]
        try:
            fields = guarded(guard, known, everywhere=is_operators(guard))
            if fields and not guard.judge:
                made.append(prepare(guard, fields, folder))
        except Misconfigured as error:
            key = f'guard "{guard.name}"' if is_operators(guard) else f"guards[{place}]"
            problems = tuple(replace(each, key=f"{key}.{each.key}".rstrip(".")) for each in error.problems)
            raise Misconfigured(error.code, problems, detail=error.detail) from None
    return made
