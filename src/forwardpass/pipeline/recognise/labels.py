"""The names of a model's classes, from wherever they are kept."""

import ast
from typing import Any

from forwardpass.pipeline.recognise.recognised import Notes
from forwardpass.pipeline.recognise.source import Source, Unfit

FILE = "labels.txt"
_LISTS = ("labels.txt", "classes.txt", "imagenet_classes.txt", "class_names.txt", "synset_words.txt")
INLINE_MAX = 12
"""More names than this go into a file of their own."""


def of_config(config: dict[str, Any]) -> list[str]:
    """``id2label`` of a config.json, in the order of its numbers; [] when it has none or it has gaps."""
    named = config.get("id2label")
    if not isinstance(named, dict) or not all(isinstance(label, str) for label in named.values()):
        return []
    by_number = {int(number): label for number, label in named.items() if str(number).isdecimal()}
    return [by_number[number] for number in range(len(named))] if by_number.keys() == set(range(len(named))) else []


def of_metadata(text: str) -> list[str]:
    """The ``names`` that ultralytics writes: a Python dict or list as text; [] for anything else."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    if isinstance(found, dict) and found.keys() == set(range(len(found))):
        found = [found[number] for number in range(len(found))]
    return found if isinstance(found, list) and found and all(isinstance(name, str) for name in found) else []


def class_names(source: Source, count: int, notes: Notes) -> list[str]:
    """The names of an image model's classes, or their numbers. Raises Unfit when what is there is another number."""
    for name in _LISTS:
        lines = [line for line in source.text(name).splitlines() if line]
        if lines:
            _same(len(lines), count, name)
            notes.know(f"{name}: the names of the {count} classes")
            return lines
    for found, where in ((of_config(source.table("config.json")), "config.json, id2label"),
                         (of_metadata(source.facts.metadata.get("names", "")), "the model's metadata, names")):  # fmt: skip
        if found:
            _same(len(found), count, where)
            notes.know(f"{where}: the names of the {count} classes")
            return found
    notes.assume(f"nothing says what the {count} classes are called: {FILE} has their numbers, to be replaced")
    return [str(number) for number in range(count)]


def written(names: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options of a step that takes names or a file of them, and that file."""
    plain = all(name and name == name.strip() and "\n" not in name and "\r" not in name for name in names)
    if len(names) <= INLINE_MAX or not plain:
        return {"names": names}, {}
    return {"file": FILE}, {FILE: "".join(f"{name}\n" for name in names)}


def _same(found: int, count: int, where: str) -> None:
    if found != count:
        raise Unfit(f"{where} names {found} classes, and the model has {count}")
