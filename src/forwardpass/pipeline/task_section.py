"""The section ``[task]``: what its keys may be, and what must hold of them beside inputs, outputs and each other."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import get_args

from forwardpass.core.pipeline import Pipeline, Task, TaskKind, TaskScale
from forwardpass.execution.task import LABELS_MAX
from forwardpass.pipeline.files import file_problem
from forwardpass.pipeline.toml_values import closest, list_of, number, one_of, short_name, table, whole

Finding = tuple[str, str, str]

_KEYS_OF_KIND: dict[TaskKind, frozenset[str]] = {
    "embed": frozenset({"input", "output", "dimensions"}),
    "rank": frozenset({"input", "documents", "output", "scale"}),
    "classify": frozenset({"input", "output", "label", "labels", "labels_file", "harmless", "threshold"}),
}
_INPUT_TYPES: dict[TaskKind, tuple[str, ...]] = {
    "embed": ("text",),
    "rank": ("text",),
    "classify": ("text", "image"),
}

TASK = table(
    Task,
    {
        "kind": one_of(*get_args(TaskKind)),
        "input": short_name,
        "documents": short_name,
        "output": short_name,
        "label": short_name,
        "labels": list_of(short_name, count_max=LABELS_MAX),
        "labels_file": short_name,
        "harmless": list_of(short_name, count_max=LABELS_MAX),
        "threshold": number(),
        "scale": one_of(*get_args(TaskScale)),
        "dimensions": list_of(whole(1, 1_000_000), count_max=64),
    },
    kind="embed",
)


def findings(pipeline: Pipeline, folder: Path) -> Iterator[Finding]:
    """Every broken rule of the section, as (key, found, allowed); what a model or step makes is looked at when it loads."""
    task = pipeline.task
    if task is None:
        return
    fitting = _KEYS_OF_KIND[task.kind]
    for name in sorted(frozenset().union(*_KEYS_OF_KIND.values()) - fitting):
        if getattr(task, name) != Task.__dataclass_fields__[name].default:
            allowed = f"allowed with it: {', '.join(sorted(fitting))}"
            yield f"task.{name}", f"has no effect on a task of kind {task.kind}", allowed
            return
    yield from _names(task, pipeline)
    yield from _labels(task, folder)
    if any(low >= high for low, high in pairwise(task.dimensions)):
        yield "task.dimensions", "not ascending", "each length larger than the one before"


def _names(task: Task, pipeline: Pipeline) -> Iterator[Finding]:
    types = {given.name: given.type for given in pipeline.inputs}
    wanted = {"input": _INPUT_TYPES[task.kind], "documents": ("texts", "text")}
    for key, allowed in wanted.items():
        name: str = getattr(task, key)
        if name and types.get(name, "") not in allowed:
            found = f"is of type {types[name]}" if name in types else "no such input"
            named = [given for given, kind in types.items() if kind in allowed]
            yield f"task.{key}", f'"{name}": {found}', f"an input of type {' or '.join(allowed)}: {_listed(named)}"
    if task.documents and task.documents == task.input:
        yield "task.documents", f'"{task.documents}" is the query already', "another input"
    for key in ("output", "label"):
        name = getattr(task, key)
        if name and pipeline.outputs and name not in pipeline.outputs:
            yield f"task.{key}", f'"{name}" is no output', closest(name, dict.fromkeys(pipeline.outputs))


def _labels(task: Task, folder: Path) -> Iterator[Finding]:
    ways = [key for key in ("label", "labels", "labels_file") if getattr(task, key)]
    if len(ways) > 1:
        yield f"task.{ways[1]}", f"has no effect beside {ways[0]}", "one of label, labels and labels_file"
    for place, label in enumerate(task.labels):
        if label in task.labels[:place]:
            yield f"task.labels[{place}]", f'"{label}" is there twice', "each label once"
    if task.labels_file and (problem := file_problem(folder, task.labels_file)):
        yield "task.labels_file", f"{task.labels_file}: {problem}", "a plain relative name of a file in the folder"
    for place, label in enumerate(task.harmless):
        if task.labels and label not in task.labels:
            yield f"task.harmless[{place}]", f'"{label}" is no label', closest(label, dict.fromkeys(task.labels))


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "there is none"
