"""Writes plain data as TOML: the standard library only reads it.

Each section gets a header of its own and each of its keys a line, so that a folder exported from Python looks as a
person would have written it.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_TABLES = ("inputs", "steps", "rules", "checks", "batch", "queue", "sequence", "task", "workers", "golden", "files")


def toml_text(document: Mapping[str, Any]) -> str:
    """A pipeline's document as TOML."""
    return "\n".join(_lines(document)).lstrip("\n") + "\n"


def toml_value(value: Any) -> str:
    """Plain data (text, truth, numbers, lists, tables) in one line of TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + "".join(_escaped(character) for character in value) + '"'
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
        case list() | tuple():
            return "[" + ", ".join(map(toml_value, value)) + "]"
        case dict():
            pairs = ", ".join(f"{toml_key(name)} = {toml_value(given)}" for name, given in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
    raise TypeError(f"{type(value).__name__} is no plain data")


def toml_key(name: str) -> str:
    """A key, quoted where it must be."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Keys of the top first: once a table has begun, TOML counts every key after it to that table."""
    for name, value in document.items():
        if name not in _TABLES:
            yield f"{toml_key(name)} = {toml_value(value)}"
    for name, value in document.items():
        if name in _TABLES:
            for table in value if isinstance(value, list) else [value]:
                yield f"\n[[{name}]]" if isinstance(value, list) else f"\n[{name}]"
                yield from (f"{toml_key(key)} = {toml_value(given)}" for key, given in table.items())


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return f"\\u{ord(character):04X}" if ord(character) < 0x20 or ord(character) == 0x7F else character
