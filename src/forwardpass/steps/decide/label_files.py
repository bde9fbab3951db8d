"""Files of a version's folder that say something of each label."""

import json
from pathlib import Path
from typing import Any

from forwardpass.steps.files import read_text
from forwardpass.steps.kind import invalid
from forwardpass.steps.options import Rule, Wrong, table


def read_table(folder: Path, file: str | None, each: Rule) -> dict[str, Any]:
    """A JSON object with what ``each`` allows for some labels, empty without a file. Raises Misconfigured."""
    if file is None:
        return {}
    found = read_json(folder, file)
    try:
        values: dict[str, Any] = table(each).read(found)
    except Wrong as wrong:
        raise invalid(wrong.at.removeprefix("."), wrong.found, wrong.allowed, file=file) from None
    return values


def read_json(folder: Path, file: str) -> Any:
    """What a JSON file says. Raises Misconfigured, also for a name that is there twice."""
    try:
        return json.loads(read_text(folder, file), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise invalid("", f"not JSON: {error}", "JSON", file=file) from None


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found
