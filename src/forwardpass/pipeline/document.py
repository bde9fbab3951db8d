"""The document form of a pipeline, plain dicts and lists as TOML holds them, and its table of what each key may be.

``read`` makes the frozen object of a document and lists every key that is unknown, of a wrong type or out of bounds;
``to_document`` is its inverse. What only shows when several keys are seen together is ``rules.py``'s work.
"""

import dataclasses
import difflib
import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from forwardpass.core.errors import show
from forwardpass.core.pipeline import (
    Batch,
    Checks,
    Golden,
    Input,
    InputType,
    Padding,
    Pipeline,
    Queue,
    Rule,
    Sequences,
    Step,
    Workers,
)
from forwardpass.core.tensor import DATATYPES, RANK_MAX
from forwardpass.pipeline.toml_lines import join

NAME_CHARACTERS_MAX = 256
SENTENCE_CHARACTERS_MAX = 200  # with a name it fits into a failure's text
TEXT_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 16
INT_MAX = 2**63 - 1
BYTES_MAX = 2**40
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


def read(document: Mapping[str, Any]) -> tuple[Pipeline, Findings]:
    """The pipeline a document describes; keys with a problem are left at their default."""
    findings = Findings()
    pipeline: Pipeline = _PIPELINE(document, "", findings)
    return pipeline, findings


def to_document(pipeline: Pipeline) -> dict[str, Any]:
    """The document ``read`` makes this pipeline of; what equals its default is left out."""
    document: dict[str, Any] = _plain_form(pipeline)
    return document


def closest(name: str, allowed: Mapping[str, object]) -> str:
    """What to say about a name that is not allowed: the likely one, then all of them."""
    near = difflib.get_close_matches(name[:64], allowed, 1)
    return (f'did you mean "{near[0]}"? ' if near else "") + "allowed: " + ", ".join(allowed)


def _plain_form(value: Any) -> Any:
    match value:
        case Step():
            return {"use": value.use, **{name: _plain_form(given) for name, given in value.options.items()}}
        case (
            Pipeline()
            | Input()
            | Rule()
            | Checks()
            | Batch()
            | Padding()
            | Queue()
            | Sequences()
            | Workers()
            | Golden()
        ):
            form = {}
            for spec in dataclasses.fields(value):
                given = getattr(value, spec.name)
                default = spec.default if spec.default_factory is dataclasses.MISSING else spec.default_factory()
                if default is dataclasses.MISSING or given != default:
                    form[spec.name] = _plain_form(given)
            return form
        case dict():
            return {name: _plain_form(given) for name, given in value.items()}
        case list() | tuple():
            return [_plain_form(given) for given in value]
        case _:
            return value


def _whole(low: int, high: int) -> Read:
    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        return findings.wrong(key, show(value), f"a whole number from {low} to {high}")

    return reader


def _number(low: float = -math.inf, high: float = math.inf, *, infinite: bool = False, above: bool = False) -> Read:
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


def _true_or_false(value: Any, key: str, findings: Findings) -> Any:
    return value if type(value) is bool else findings.wrong(key, show(value), "true or false")


def _text(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and _is_unicode(value) and len(value) <= TEXT_BYTES_MAX:
        return value
    return findings.wrong(key, show(value), f"text of at most {TEXT_BYTES_MAX} characters")


def _name(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and value.isprintable() and 0 < len(value) <= NAME_CHARACTERS_MAX:
        return value
    return findings.wrong(key, show(value), f"a name of 1 to {NAME_CHARACTERS_MAX} printable characters")


def _digest(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and _DIGEST.fullmatch(value):
        return value
    return findings.wrong(key, show(value), '"sha256:" and 64 hexadecimal digits')


def _one_of(*choices: str) -> Read:
    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is str and value in choices:
            return value
        return findings.wrong(key, show(value), closest(str(value), dict.fromkeys(choices)))

    return reader


def _list(element: Read, *, count_max: int) -> Read:
    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is not list:
            return findings.wrong(key, show(value), "a list")
        if len(value) > count_max:
            return findings.wrong(key, f"{len(value)} elements", f"at most {count_max}")
        elements = [element(given, join(key, place), findings) for place, given in enumerate(value)]
        return WRONG if any(given is WRONG for given in elements) else tuple(elements)

    return reader


def _by_name(element: Read, *, count_max: int) -> Read:
    def reader(value: Any, key: str, findings: Findings) -> Any:
        if type(value) is not dict:
            return findings.wrong(key, show(value), "a table")
        if len(value) > count_max:
            return findings.wrong(key, f"{len(value)} keys", f"at most {count_max}")
        elements = {}
        for name, given in value.items():
            if _name(name, join(key, str(name)), findings) is not WRONG:
                elements[name] = element(given, join(key, name), findings)
        return WRONG if any(given is WRONG for given in elements.values()) else elements

    return reader


def _table(make: Callable[..., Any], keys: Mapping[str, Read], **blanks: Any) -> Read:
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


def _step(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is not dict or "use" not in value:
        findings.broken.append(key)
        findings.wrong(join(key, "use"), "missing", 'a table with the kind of step, as in use = "model"')
        return Step("")
    use = _name(value["use"], join(key, "use"), findings)
    if use is WRONG:
        findings.broken.append(key)
        use = ""
    options = {}
    for name, given in value.items():
        if name != "use" and _name(name, join(key, str(name)), findings) is not WRONG:
            understood = _plain(given, join(key, name), findings)
            if understood is not WRONG:
                options[name] = understood
    return Step(use, options)


def _plain(value: Any, key: str, findings: Findings, depth: int = 0) -> Any:
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
        elements = [_plain(given, join(key, place), findings, depth + 1) for place, given in enumerate(value)]
        return WRONG if any(given is WRONG for given in elements) else elements
    if kind is dict and all(type(name) is str and _is_unicode(name) for name in value):
        table = {name: _plain(given, join(key, name), findings, depth + 1) for name, given in value.items()}
        return WRONG if any(given is WRONG for given in table.values()) else table
    return findings.wrong(
        key, show(value), "text, true or false, a finite number within 64 bits, or lists and tables of these"
    )


def _sentence(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and value.isprintable() and 0 < len(value) <= SENTENCE_CHARACTERS_MAX:
        return value
    return findings.wrong(key, show(value), f"a text of 1 to {SENTENCE_CHARACTERS_MAX} printable characters")


def _true_or_names(value: Any, key: str, findings: Findings) -> Any:
    if value is True:
        return True
    if type(value) is list:
        return _list(_name, count_max=1024)(value, key, findings)
    return findings.wrong(key, show(value), "a list of outputs, or true in a rule with each")


def _record(value: Any, key: str, findings: Findings) -> Any:
    return _plain(value, key, findings) if type(value) is dict else findings.wrong(key, show(value), "a table")


def _range(value: Any, key: str, findings: Findings) -> Any:
    bound = _number(infinite=True)
    if type(value) is list and len(value) == 2:
        low, high = (bound(given, join(key, place), findings) for place, given in enumerate(value))
        if low is WRONG or high is WRONG:
            return WRONG
        if low <= high:
            return (low, high)
    return findings.wrong(key, show(value), "[lowest, highest]")


def _is_unicode(value: str) -> bool:
    """Lone surrogates can be in a Python string but in no TOML, JSON or UTF-8 text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_INPUT = _table(
    Input,
    {
        "name": _name,
        "type": _one_of(*get_args(InputType)),
        "bytes_max": _whole(1, BYTES_MAX),
        "bytes_min": _whole(0, BYTES_MAX),
        "count_max": _whole(1, 65_536),
        "min": _number(),
        "max": _number(),
        "missing": _true_or_false,
        "columns": _by_name(_one_of("number", "category"), count_max=4096),
        "datatype": _one_of(*DATATYPES),
        "shape": _list(_whole(-1, 2**31 - 1), count_max=RANK_MAX - 1),
    },
    name="",
    type="tensor",
)
_RULE = _table(
    Rule,
    {
        "name": _name,
        "when": _text,
        "each": _name,
        "set": _by_name(_plain, count_max=1024),
        "drop": _true_or_names,
        "flag": _sentence,
        "refuse": _sentence,
    },
    name="",
    when="",
)
_CHECKS = _table(Checks, {"finite": _true_or_false, "range": _by_name(_range, count_max=1024)})
_PADDING = _table(
    Padding,
    {
        "fields": _by_name(_number(), count_max=256),
        "buckets": _list(_whole(1, 2**31 - 1), count_max=1024),
    },
    fields={},
)
_BATCH = _table(
    Batch,
    {
        "enabled": _true_or_false,
        "rows_max": _whole(1, 65_536),
        "wait_ms": _number(0, 1000),
        "cost": _name,
        "cost_max": _number(0, above=True),
        "buckets_bytes": _list(_whole(1, BYTES_MAX), count_max=1024),
        "padding": _PADDING,
        "tolerance": _number(0, 1),
    },
)
_QUEUE = _table(
    Queue,
    {
        "rows_max": _whole(1, 10_000_000),
        "bytes_max": _whole(1, BYTES_MAX),
        "wait_max_s": _number(0, 3600, above=True),
    },
)
_SEQUENCES = _table(
    Sequences,
    {"idle_s": _number(0, 86_400, above=True), "sequences_max": _whole(1, 1_000_000)},
)
_WORKERS = _table(
    Workers,
    {
        "count": _whole(1, 256),
        "memory_max_mb": _whole(64, 16 * 1024 * 1024),
        "batch_limit_s": _number(0, 86_400, above=True),
        "load_limit_s": _number(0, 86_400, above=True),
    },
)
_GOLDEN = _table(
    Golden,
    {"request": _record, "expect": _record, "tolerance": _number(0)},
    request={},
    expect={},
)
_PIPELINE = _table(
    functools.partial(Pipeline, steps=()),
    {
        "description": _text,
        "outputs": _list(_name, count_max=1024),
        "inputs": _list(_INPUT, count_max=256),
        "steps": _list(_step, count_max=256),
        "rules": _list(_RULE, count_max=256),
        "checks": _CHECKS,
        "batch": _BATCH,
        "queue": _QUEUE,
        "workers": _WORKERS,
        "sequence": _SEQUENCES,
        "golden": _list(_GOLDEN, count_max=1000),
        "files": _by_name(_digest, count_max=10_000),
    },
)
