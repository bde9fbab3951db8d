"""The rows of ``[[quotas]]``: whose quota it is, what it limits, and the accounts that a caller's request goes to."""

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from forwardpass.core.caller import Caller, is_tenant
from forwardpass.core.errors import Problem, show

Kind = Literal["rate", "concurrent", "day"]
"""A bucket that is refilled evenly; how many at the same time; so much in a day of UTC."""

EACH = "*"
"""In place of a name: everybody, each with an account of their own."""

RULES_MAX = 1000
NAME_CHARACTERS_MAX = 256
AMOUNT_MAX = 10**15 - 1
"""The largest whole number that a header's field may have."""
NOBODY = "anonymous"
"""What those without a key have in place of its id: they are one caller to a quota of keys."""
_READABLE_MAX = 96  # characters of an account's name; longer ones are told apart by a digest


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """Whose (a name, or "*"; of several all must fit), and at least one limit; None = there is no such limit."""

    key: str = ""  # a key's id, a certificate's too (``forwardpass keys list``), or token:SUBJECT
    tenant: str = ""
    pipeline: str = ""
    requests_per_s: float | None = None  # evenly refilled; one second's worth at once, at least 1
    requests_per_minute: int | None = None  # evenly refilled, as all that follow; a minute's worth at once
    concurrent: int | None = None  # requests at the same time
    rows_per_minute: int | None = None
    bytes_per_minute: int | None = None  # of bodies, as they were sent
    tokens_per_minute: int | None = None  # that tokenizers make
    cost_per_day: float | None = None  # units of ``[price]`` of the pipelines, in a day of UTC


SUBJECTS = ("key", "tenant", "pipeline")
_PIPELINE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
FORMS: dict[str, tuple[Callable[[str], bool], str]] = {
    "tenant": (is_tenant, "a tenant: 1 to 64 letters, digits and . _ - @, the first of them a letter or digit"),
    "pipeline": (
        lambda name: _PIPELINE.fullmatch(name) is not None and ".." not in name,
        "a pipeline: 1 to 64 small letters, digits and . _ -, the first of them a letter or digit",
    ),
}
"""What others could be, nobody and nothing can: a quota of theirs would hold for none."""
LIMITS: dict[str, tuple[Kind, float, str]] = {
    "requests_per_s": ("rate", 1.0, "requests"),
    "requests_per_minute": ("rate", 60.0, "requests"),
    "concurrent": ("concurrent", 0.0, "concurrent-requests"),
    "bytes_per_minute": ("rate", 60.0, "content-bytes"),
    "rows_per_minute": ("rate", 60.0, "rows"),
    "tokens_per_minute": ("rate", 60.0, "tokens"),
    "cost_per_day": ("day", 86_400.0, "cost"),
}
"""Each with its kind, the seconds it is for, and what it counts in the words of the RateLimit headers."""
AT_ENTRY = frozenset({"requests_per_s", "requests_per_minute", "concurrent", "bytes_per_minute"})
"""Known from a request's head and its body's length; the others once it is decoded."""
_FRACTIONS = frozenset({"requests_per_s", "cost_per_day"})


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of one rule. ``capacity`` is what an idle caller may take at once, ``rate`` is refilled in a second."""

    name: str
    quantity: float
    kind: Kind
    capacity: float
    rate: float
    unit: str
    held: bool  # until the request ends: what it then is, or was, is not known before


class Account(NamedTuple):
    """Whom a limit is counted for. ``name`` is its own alone; ``owner`` and ``policy`` are what the caller is told."""

    name: str
    limit: Limit
    owner: str
    policy: str
    shared: bool  # by callers of several tenants: what is left of it is nobody's to know


def limit_of(name: str, quantity: float) -> Limit:
    kind, seconds, unit = LIMITS[name]
    held = kind == "concurrent" or name not in AT_ENTRY
    if kind == "rate":
        return Limit(name, quantity, kind, max(1.0, float(quantity)), quantity / seconds, unit, held)
    return Limit(name, quantity, kind, float(quantity), 0.0, unit, held)


def limits_of(rule: QuotaRule) -> list[Limit]:
    given = [(name, getattr(rule, name)) for name in LIMITS]
    return [limit_of(name, quantity) for name, quantity in given if quantity is not None]


def accounts_of(rule: QuotaRule, caller: Caller, pipeline: str) -> list[Account]:
    """The accounts of a request by this rule, one for each of its limits; [] when it is not about the request."""
    parts: list[str] = []
    owners: list[str] = []
    asking = {"key": caller.id or NOBODY, "tenant": caller.tenant, "pipeline": pipeline}
    for subject in SUBJECTS:
        wanted, given = getattr(rule, subject), asking[subject]
        if not wanted:
            continue
        if wanted not in (EACH, given) or not given:
            return []
        # Ids of tokens and certificates are their issuer's to choose: two tenants may have the same.
        own = f"{len(caller.tenant)}:{caller.tenant}/" if subject == "key" else ""
        parts.append(f"{subject}{'*' if wanted == EACH else '='}{own}{len(given)}:{given}")
        owners.append(f"{subject} {show(given)}")
    subjects = "-".join(subject for subject in SUBJECTS if getattr(rule, subject))
    name, owner = _readable("/".join(parts)), " on ".join(owners)
    shared = not (rule.key or rule.tenant)
    return [
        Account(f"{limit.name}/{name}", limit, owner, f"{subjects}-{limit.name}", shared) for limit in limits_of(rule)
    ]


def quotas_of(file: str, rows: object, problems: list[Problem]) -> tuple[QuotaRule, ...]:
    """The rules of a settings file's ``quotas``; what is wrong with them is added to ``problems``."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        problems.append(Problem(file, "quotas", f"found {show(rows)}", "rows: [[quotas]]"))
        return ()
    if len(rows) > RULES_MAX:
        problems.append(Problem(file, "quotas", f"found {len(rows)} rows", f"at most {RULES_MAX}"))
        return ()
    found = [_rule(file, f"quotas[{place}]", row, problems) for place, row in enumerate(rows)]
    problems += _twice(file, found)
    return tuple(found)


def _rule(file: str, where: str, row: Mapping[str, Any], problems: list[Problem]) -> QuotaRule:
    allowed = [spec.name for spec in fields(QuotaRule)]
    good: dict[str, Any] = {}
    before = len(problems)
    for name, value in row.items():
        if name not in allowed:
            near = difflib.get_close_matches(name[:64], allowed, 1)
            meant = f'did you mean "{near[0]}"? ' if near else ""
            problems.append(Problem(file, f"{where}.{name}", "unknown key", f"{meant}allowed: {', '.join(allowed)}"))
        elif expected := _expected(name, value):
            problems.append(Problem(file, f"{where}.{name}", f"found {show(value)}", expected))
        else:
            good[name] = float(value) if name in _FRACTIONS else value
    if len(problems) == before:
        if not any(name in good for name in SUBJECTS):
            problems.append(Problem(file, where, "it says nobody's", 'one of key, tenant, pipeline; "*" is each'))
        if not any(name in good for name in LIMITS):
            problems.append(Problem(file, where, "it limits nothing", f"at least one of {', '.join(LIMITS)}"))
    return QuotaRule(**good)


def _expected(name: str, value: object) -> str:
    """What the value should have been; empty: it is that."""
    if name in FORMS and value != EACH:
        fits, form = FORMS[name]
        return "" if type(value) is str and fits(value) else f'{form}, or "*"'
    if name in SUBJECTS:
        good = type(value) is str and value.isprintable() and 0 < len(value) <= NAME_CHARACTERS_MAX
        return "" if good else f'a name of 1 to {NAME_CHARACTERS_MAX} printable characters, or "*"'
    if name in _FRACTIONS:
        number = type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]  # one of these two
        return "" if number and 0.001 <= value <= AMOUNT_MAX else f"a number from 0.001 to {AMOUNT_MAX:g}"  # type: ignore[operator]  # a number
    good = type(value) is int and 1 <= value <= AMOUNT_MAX
    return "" if good else f"a whole number from 1 to {AMOUNT_MAX:g}"


def _twice(file: str, rules: Sequence[QuotaRule]) -> Iterator[Problem]:
    first: dict[tuple[str, ...], int] = {}
    for place, rule in enumerate(rules):
        for name in LIMITS:
            if getattr(rule, name) is None:
                continue
            before = first.setdefault((rule.key, rule.tenant, rule.pipeline, name), place)
            if before != place:
                found = f"quotas[{before}] limits the same already"
                yield Problem(
                    file, f"quotas[{place}].{name}", found, "each limit once for the same key, tenant, pipeline"
                )


def _readable(name: str) -> str:
    return name if len(name) <= _READABLE_MAX else sha256(name.encode("utf-8", "backslashreplace")).hexdigest()
