"""A step's options: declared once as a frozen dataclass, read strictly, every problem named.

Each field of the dataclass is made by ``option(rule, doc, default)``; a field without a default is required. A rule
says in words what it allows and turns the written value into the one the step uses.
"""

import difflib
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from forwardpass.core.errors import show

O = TypeVar("O")  # noqa: E741 - an options dataclass

Trouble = tuple[str, str, str]
"""(key, what was found, what is allowed), as ``StepKind.check`` answers it."""

ELEMENTS_MAX = 100_000
NAME_CHARACTERS_MAX = 256
_KINDS = {bool: "true/false", int: "integer", float: "number", str: "text", list: "list", tuple: "list", dict: "table"}


class Wrong(Exception):
    """A rule's no; ``at`` is the place inside the option: "" = all of it, "[2]", ".country"."""

    def __init__(self, found: str, allowed: str, at: str = "") -> None:
        super().__init__(found)
        self.found, self.allowed, self.at = found, allowed, at


@dataclass(frozen=True, slots=True)
class Rule:
    """What an option may be: ``read`` returns the value to use or raises Wrong."""

    allowed: str
    read: Callable[[object], Any]
    is_file: bool = False


def option(rule: Rule, doc: str, default: Any = MISSING) -> Any:
    """A field of an options dataclass, which must be ``frozen=True, kw_only=True``."""
    return field(default=default, metadata={"rule": rule, "doc": doc})


def read(kind: type[O], options: Mapping[str, Any], folder: Path | None = None) -> tuple[O | None, list[Trouble]]:
    """The options as the step uses them, or None and everything wrong. Files are looked for if ``folder`` is given."""
    declared = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]  # a dataclass, by contract
    values: dict[str, Any] = {}
    troubles: list[Trouble] = []
    for key, value in options.items():
        if key not in declared:
            allowed = f"options here: {', '.join(declared) or 'none'}{did_you_mean(key, declared)}"
            troubles.append((key, "unknown option", allowed))
            continue
        rule: Rule = declared[key].metadata["rule"]
        try:
            values[key] = rule.read(value)
            if rule.is_file and folder is not None:
                _find_file(folder, values[key])
        except Wrong as wrong:
            troubles.append((key + wrong.at, wrong.found, wrong.allowed))
    troubles += [
        (name, "missing", each.metadata["rule"].allowed)
        for name, each in declared.items()
        if _required(each) and name not in options
    ]
    return (None, troubles) if troubles else (kind(**values), [])


def file_options(kind: object) -> list[str]:
    """The options of a kind of step that name a file of the pipeline's folder."""
    declared = getattr(kind, "options", None)
    return [each.name for each in fields(declared) if each.metadata["rule"].is_file] if is_dataclass(declared) else []


def did_you_mean(name: str, among: Iterable[str]) -> str:
    """Text to end a refusal with: the nearest right name, or nothing."""
    close = difflib.get_close_matches(name, list(among), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _required(declared: "Field[Any]") -> bool:
    return declared.default is MISSING


def _find_file(folder: Path, name: str) -> None:
    """Wrong unless ``name`` is a regular file reached without a symbolic link."""
    place = folder
    for part in PurePosixPath(name).parts:
        place = place / part
        try:
            mode = place.lstat().st_mode
        except OSError:
            raise Wrong(f"no file {show(name)}", "a file in the pipeline's folder") from None
        if stat.S_ISLNK(mode):
            raise Wrong(f"{show(name)} is or passes a symbolic link", "a file in the pipeline's folder")
    if not stat.S_ISREG(mode):
        raise Wrong(f"{show(name)} is no regular file", "a file in the pipeline's folder")


def _found(value: object) -> str:
    return f"{show(value)} ({_KINDS.get(type(value), type(value).__name__)})"


def _rule(allowed: str, test: Callable[[Any], bool], become: Callable[[Any], Any], *, is_file: bool = False) -> Rule:
    def read_value(value: object) -> Any:
        if not test(value):
            raise Wrong(_found(value), allowed)
        return become(value)

    return Rule(allowed, read_value, is_file)


def whole(least: int, most: int) -> Rule:
    """An integer in a closed range; true and false are none."""
    return _rule(f"an integer from {least} to {most}", lambda v: type(v) is int and least <= v <= most, int)


def number() -> Rule:
    """Any finite number, as float."""
    return _rule("a finite number", lambda v: type(v) in (int, float) and abs(v) <= sys.float_info.max, float)


def flag() -> Rule:
    return _rule("true or false", lambda v: type(v) is bool, bool)


def text() -> Rule:
    return _rule("text", lambda v: type(v) is str, str)


def field_name() -> Rule:
    """The name of a field: a model's graph may use any characters."""
    return _rule(
        f"the name of a field, 1 to {NAME_CHARACTERS_MAX} printable characters",
        lambda v: type(v) is str and 0 < len(v) <= NAME_CHARACTERS_MAX and v.isprintable(),
        str,
    )


def choice(*among: str) -> Rule:
    return _rule(" or ".join(f'"{each}"' for each in among), lambda v: type(v) is str and v in among, str)


def file_name() -> Rule:
    """A plain relative name of a file inside the pipeline's folder, with / between parts."""

    def plain(value: object) -> bool:
        return (
            type(value) is str
            and 0 < len(value) <= 255
            and not any(c in value for c in "\\\0")
            and all(part not in ("", ".", "..") for part in value.split("/"))
        )

    return _rule("the name of a file in the pipeline's folder", plain, str, is_file=True)


def either(first: Rule, second: Rule) -> Rule:
    """What one of two rules allows; the first that does decides."""
    allowed = f"{first.allowed} or {second.allowed}"

    def read_value(value: object) -> Any:
        for rule in (first, second):
            try:
                return rule.read(value)
            except Wrong:
                continue
        raise Wrong(_found(value), allowed)

    return Rule(allowed, read_value)


def several(each: Rule, *, distinct: bool = False, least: int = 1) -> Rule:
    """A list of ``least`` or more, as a tuple."""
    allowed = f"a list of {least} to {ELEMENTS_MAX}{' different ones' if distinct else ''}, each {each.allowed}"

    def read_value(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not least <= len(value) <= ELEMENTS_MAX:
            raise Wrong(_found(value), allowed)
        elements: list[Any] = []
        for place, element in enumerate(value):
            elements.append(_inside(each, element, f"[{place}]"))
        if distinct and len(set(elements)) < len(elements):
            twice, _ = Counter(elements).most_common(1)[0]
            raise Wrong(f"{show(twice)} is there twice", allowed)
        return tuple(elements)

    return Rule(allowed, read_value)


def table(each: Rule) -> Rule:
    """A table of one or more names, as a dict."""
    allowed = f"a table of 1 to {ELEMENTS_MAX} names, each {each.allowed}"

    def read_value(value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or not 0 < len(value) <= ELEMENTS_MAX:
            raise Wrong(_found(value), allowed)
        if not all(type(key) is str for key in value):
            raise Wrong("a name that is no text", allowed)
        return {key: _inside(each, element, f".{key}") for key, element in value.items()}

    return Rule(allowed, read_value)


def _inside(rule: Rule, value: object, at: str) -> Any:
    try:
        return rule.read(value)
    except Wrong as wrong:
        raise Wrong(wrong.found, wrong.allowed, at + wrong.at) from None
