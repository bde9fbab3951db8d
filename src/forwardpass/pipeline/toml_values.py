"""Readers of what a TOML document may hold under one key; each says what is wrong instead of raising."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forwardpass.core.errors import show
from forwardpass.pipeline.toml_lines import join

NAME_CHARACTERS_MAX = 256
TEXT_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 16
INT_MAX = 2**63 - 1
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(slots=True)
class Findings:
    """What is wrong, as (key, found, allowed), and ``broken``: the tables that lack what every rule about them needs."""

    problems: list[tuple[str, str, str]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def wrong(self, key: str, found: str, allowed: str) -> Any:
        self.problems.append((key, found, allowed))
        return WRONG


WRONG: Any = object()
"""What a reader returns instead of a value after it has added a problem."""

Read = Callable[[Any, str, Findings], Any]
"""Reads the value of one key: (value, key path, findings) -> the value for the frozen object, or WRONG."""


def closest(name: str, allowed: Mapping[str, object]) -> str:
    """What to say about a name that is not allowed: the likely one, then all of them."""
    near = difflib.get_close_matches(name[:64], allowed, 1)
    return (f'did you mean "{near[0]}"? ' if near else "") + "allowed: " + ", ".join(allowed)


def whole(low: int, high: int, *, or_word: str = "") -> Read:
    allowed = f"a whole number from {low} to {high}" + (f', or "{or_word}"' if or_word else "")

    def reader(value: Any, key: str, findings: Findings) -> Any:
        if (type(value) is int and low <= value <= high) or (or_word and value == or_word):
            return value
        return findings.wrong(key, show(value), allowed)

    return reader


def number(low: float = -math.inf, high: float = math.inf, *, infinite: bool = False, above: bool = False) -> Read:
    """``above``: ``low`` itself is not allowed."""
    if math.isinf(low):
        allowed = "a number" if infinite else "a finite number"
    else:
        allowed = f"a number {'above' if above else 'from'} {low:g}" + ("" if math.isinf(high) else f" to {high:g}")

    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is float or (type(value) is int and abs(value) <= INT_MAX):
            inside = low < value <= high if above else low <= value <= high
            if inside and (infinite or math.isfinite(value)):
                return float(value)
        return findings.wrong(key, show(value), allowed)

    return reader


def true_or_false(value: Any, key: str, findings: Findings) -> Any:
    return value if type(value) is bool else findings.wrong(key, show(value), "true or false")


def free_text(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and _is_unicode(value) and len(value) <= TEXT_BYTES_MAX:
        return value
    return findings.wrong(key, show(value), f"text of at most {TEXT_BYTES_MAX} characters")


def short_name(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and value.isprintable() and 0 < len(value) <= NAME_CHARACTERS_MAX:
        return value
    return findings.wrong(key, show(value), f"a name of 1 to {NAME_CHARACTERS_MAX} printable characters")


def digest(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and _DIGEST.fullmatch(value):
        return value
    return findings.wrong(key, show(value), '"sha256:" and 64 hexadecimal digits')


def one_of(*choices: str) -> Read:
    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is str and value in choices:
            return value
        return findings.wrong(key, show(value), closest(str(value), dict.fromkeys(choices)))

    return reader


def list_of(element: Read, *, count_max: int) -> Read:
    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is not list:
            return findings.wrong(key, show(value), "a list")
        if len(value) > count_max:
            return findings.wrong(key, f"{len(value)} elements", f"at most {count_max}")
        elements = [element(given, join(key, place), findings) for place, given in enumerate(value)]
        return WRONG if any(given is WRONG for given in elements) else tuple(elements)

    return reader


def by_name(element: Read, *, count_max: int) -> Read:
    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is not dict:
            return findings.wrong(key, show(value), "a table")
        if len(value) > count_max:
            return findings.wrong(key, f"{len(value)} keys", f"at most {count_max}")
        elements = {}
        for name, given in value.items():
            if short_name(name, join(key, str(name)), findings) is not WRONG:
                elements[name] = element(given, join(key, name), findings)
        return WRONG if any(given is WRONG for given in elements.values()) else elements

    return reader


def table(make: Callable[..., Any], keys: Mapping[str, Read], **blanks: Any) -> Read:
    """A table of these keys. ``blanks`` names the required ones and what stands for each while it is wrong."""

    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is not dict:
            findings.broken.append(key)
            findings.wrong(key, show(value), "a table")
            return make(**blanks)
        values = dict(blanks)
        for name, given in value.items():
            path = join(key, str(name))
            if name not in keys:
                findings.wrong(path, "unknown key", closest(str(name), keys))
                continue
            understood = keys[name](given, path, findings)
            if understood is not WRONG:
                values[name] = understood
            elif name in blanks:
                findings.broken.append(key)
        for name in blanks:
            if name not in value:
                findings.broken.append(key)
                findings.wrong(join(key, name), "missing", "it must be given")
        return make(**values)

    return reader


def plain_data(value: Any, key: str, findings: Findings, depth: int = 0) -> Any:
    """Free data (a step's options, a golden example): what both TOML and JSON can say."""
    if depth > DEPTH_MAX:
        return findings.wrong(key, "nested too deeply", f"at most {DEPTH_MAX} levels")
    kind = type(value)
    if (
        kind is bool
        or (kind is str and _is_unicode(value))
        or (kind is int and abs(value) <= INT_MAX)
        or (kind is float and math.isfinite(value))
    ):
        return value
    if kind is list:
        elements = [plain_data(given, join(key, place), findings, depth + 1) for place, given in enumerate(value)]
        return WRONG if any(given is WRONG for given in elements) else elements
    if kind is dict and all(type(name) is str and _is_unicode(name) for name in value):
        members = {name: plain_data(given, join(key, name), findings, depth + 1) for name, given in value.items()}
        return WRONG if any(given is WRONG for given in members.values()) else members
    return findings.wrong(
        key, show(value), "text, true or false, a finite number within 64 bits, or lists and tables of these"
    )


def _is_unicode(value: str) -> bool:
    """Lone surrogates can be in a Python string but in no TOML, JSON or UTF-8 text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
