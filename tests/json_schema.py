"""As much of JSON Schema (2020-12) as our OpenAPI document uses, for tests that hold answers against it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_TYPES: dict[str, Any] = {
    "string": str, "boolean": bool, "number": (int, float), "integer": int, "null": type(None), "array": list,
    "object": dict,
}  # fmt: skip
_WORDS = {"title", "description", "contentEncoding", "contentMediaType"}
"""Words that only explain."""


def referred(whole: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference of the document leads to."""
    while "$ref" in schema:
        found: Any = whole
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        schema = found
    return schema


def problems(whole: Mapping[str, Any], schema: Mapping[str, Any], value: Any, at: str = "") -> Iterator[str]:
    """How the value differs from the schema; nothing where it keeps to it."""
    schema = referred(whole, schema)
    for word, wanted in schema.items():
        match word:
            case "type":
                kinds = wanted if isinstance(wanted, list) else [wanted]
                if not any(_is(value, kind) for kind in kinds):
                    yield f"{at}: {value!r:.60} is not of type {wanted}"
            case "enum" if value not in wanted:
                yield f"{at}: {value!r:.60} is none of {wanted}"
            case "const" if value != wanted:
                yield f"{at}: {value!r:.60} is not {wanted}"
            case "anyOf" if all(any(problems(whole, option, value, at)) for option in wanted):
                yield f"{at}: {value!r:.60} fits no option: {[list(problems(whole, o, value, at)) for o in wanted]}"
            case "oneOf" if sum(not any(problems(whole, option, value, at)) for option in wanted) != 1:
                yield f"{at}: {value!r:.60} fits none or several options"
            case "minimum" | "maximum" if _is(value, "number"):
                if value < wanted if word == "minimum" else value > wanted:
                    yield f"{at}: {value} is beyond the {word} {wanted}"
            case "pattern" if isinstance(value, str) and not re.search(wanted, value):
                yield f"{at}: {value!r:.60} does not match {wanted}"
            case "minLength" | "maxLength" if isinstance(value, str):
                yield from _size(word, len(value), wanted, at)
            case "minItems" | "maxItems" if isinstance(value, list):
                yield from _size(word, len(value), wanted, at)
            case "minProperties" | "maxProperties" if isinstance(value, dict):
                yield from _size(word, len(value), wanted, at)
            case "items" if isinstance(value, list):
                for place, each in enumerate(value):
                    yield from problems(whole, wanted, each, f"{at}/{place}")
            case "required" if isinstance(value, dict):
                yield from (f"{at}: {name} is missing" for name in wanted if name not in value)
            case "propertyNames" if isinstance(value, dict):
                for name in value:
                    yield from problems(whole, wanted, name, f"{at}/{name}")
            case "properties" | "additionalProperties" if isinstance(value, dict):
                yield from _members(whole, schema, value, at, word)
            case _:
                assert word in _KNOWN | _WORDS or word.startswith("x-"), f"a word nobody checks: {word}"


_KNOWN = {
    "enum", "const", "anyOf", "oneOf", "minimum", "maximum", "pattern", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "items", "required", "propertyNames", "properties",
    "additionalProperties",
}  # fmt: skip


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and not (isinstance(value, bool) and kind in ("number", "integer"))


def _size(word: str, size: int, wanted: int, at: str) -> Iterator[str]:
    if size < wanted if word.startswith("min") else size > wanted:
        yield f"{at}: has {size}, {word} is {wanted}"


def _members(
    whole: Mapping[str, Any], schema: Mapping[str, Any], value: Mapping[str, Any], at: str, word: str
) -> Iterator[str]:
    named = schema.get("properties", {})
    for name, each in value.items():
        if word == "properties" and name in named:
            yield from problems(whole, named[name], each, f"{at}/{name}")
        elif word == "additionalProperties" and name not in named:
            others = schema["additionalProperties"]
            if others is False:
                yield f"{at}: {name} is not allowed"
            elif others is not True:
                yield from problems(whole, others, each, f"{at}/{name}")


def references(part: Any) -> Iterator[str]:
    """Every reference in a part of the document."""
    if isinstance(part, Mapping):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for each in part.values():
            yield from references(each)
    elif isinstance(part, Sequence) and not isinstance(part, str):
        for each in part:
            yield from references(each)
