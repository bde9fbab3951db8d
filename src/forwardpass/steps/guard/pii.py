"""Personal data and secrets that have a form: e-mail addresses, telephone, bank account and card numbers, IPs, keys.

Each kind has a pattern of bounded length, and where form is not enough a test. ``growing`` matches the end of a text
that may still become one: what stands before it is decided.
"""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Any, get_args

from forwardpass.core.pipeline import Pii
from forwardpass.steps.guard.cards import cards
from forwardpass.steps.guard.patterns import characters, compiled
from forwardpass.steps.guard.spans import Detector, Span

ORDER: tuple[Pii, ...] = ("key", "email", "iban", "card", "ip", "phone")
"""Looked for in this order: what is the part of one kind is not told as another."""

Test = Callable[[str, int, int], tuple[int, int] | None]
"""(text, start, end) -> where what was meant begins and ends, or None where only its form fits."""

LOCAL_CHARACTERS_MAX = 64
DOMAIN_CHARACTERS_MAX = 255
_LETTER = r"\p{L}\p{M}"
_HEX = "[0-9A-Fa-f]{1,4}"
_FOUR = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
_KEYS = (
    "sk-[A-Za-z0-9_-]{20,200}", "[srp]k_(?:live|test)_[A-Za-z0-9]{16,200}", "(?:AKIA|ASIA)[0-9A-Z]{16}",
    "gh[pousr]_[A-Za-z0-9]{36,255}", "github_pat_[A-Za-z0-9_]{22,255}", "glpat-[A-Za-z0-9_-]{20,64}",
    "xox[abeoprs]-[A-Za-z0-9-]{10,250}", "AIza[0-9A-Za-z_-]{35}", "hf_[A-Za-z0-9]{30,64}", "npm_[A-Za-z0-9]{36}",
    r"eyJ[A-Za-z0-9_-]{10,512}\.eyJ[A-Za-z0-9_-]{10,900}\.[A-Za-z0-9_-]{10,900}",
)  # fmt: skip
_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29,
    "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29,
    "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28,
    "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28,
    "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20,
    "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25,
    "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27,
    "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip
"""The IBAN registry's (ISO 13616)."""
_VALUES = {ord("A") + place: str(10 + place) for place in range(26)}


@dataclass(frozen=True, slots=True)
class Form:
    """A detector of one kind: what ``expression`` matches and ``test`` accepts. ``tail``: the characters ``growing`` needs."""

    expression: Any
    growing: Any
    tail: int
    test: Test
    passes: bool = False  # what was not accepted holds no other

    def find(self, text: str, start: int) -> Iterator[Span]:
        data = text.encode()
        at, at_byte = start, start if len(data) == len(text) else len(text[:start].encode())
        while match := self.expression.search(data, at_byte):
            first, last = match.span()
            begin = at + characters(data[at_byte:first])
            end = begin + characters(data[first:last])
            place = self.test(text, begin, end)
            if place is None or place[0] < start:  # that was decided before
                resume = end if self.passes else begin + 1
                yield Span(begin, end, resume, found=False)
            else:
                resume = start = place[1]
                yield Span(*place, resume)
            at, at_byte = resume, first + len(text[begin:resume].encode())

    def settled(self, text: str, start: int) -> int:
        tail = text[max(start, len(text) - self.tail) :].encode()
        match = self.growing.search(tail)
        return len(text) if match is None else len(text) - len(tail[match.start() :].decode())

    def context(self, text: str, start: int) -> int:
        return max(0, start - 1)


def detector(kind: Pii) -> Detector:
    """What finds this kind. Raises Misconfigured without RE2."""
    if kind == "card":
        return cards()
    expression, growing, tail, test = _FORMS[kind]
    return Form(compiled(expression), compiled(growing), tail, test, passes=kind == "ip")


def _any(text: str, start: int, end: int) -> tuple[int, int] | None:
    return start, end


def _email(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The pattern begins at the @; what may stand before it is gone through from there."""
    left = start
    while left > 0 and start - left < LOCAL_CHARACTERS_MAX and _is_local(text[left - 1]):
        left -= 1
    return (left, end) if left < start and end - start <= DOMAIN_CHARACTERS_MAX else None


def _is_local(character: str) -> bool:
    return character.isalnum() or character in "._%+'-" or unicodedata.category(character).startswith("M")


def _is_alphanumeric(text: str, place: int) -> bool:
    return 0 <= place < len(text) and text[place].isalnum()


def _phone(text: str, start: int, end: int) -> tuple[int, int] | None:
    before = text[start - 1] if start else " "
    if (
        (before.isalnum() if text[start] != "+" else before.isdigit())
        or before in "+."
        or (end < len(text) and text[end].isdigit())
    ):
        return None
    return start, end


def _iban(text: str, start: int, end: int) -> tuple[int, int] | None:
    length = _IBAN_LENGTHS.get(text[start : start + 2].upper(), 0)
    compact = text[start:end].replace(" ", "").upper()[:length]
    if not length or len(compact) < length or _is_alphanumeric(text, start - 1):
        return None
    number = int((compact[4:] + compact[:4]).translate(_VALUES))
    right, left = start, length
    while left:
        left -= text[right] != " "
        right += 1
    return (start, right) if number % 97 == 1 and not _is_alphanumeric(text, right) else None


def _ip(text: str, start: int, end: int) -> tuple[int, int] | None:
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    if before.isalnum() or before in ".:" or after.isalnum() or after == ":":
        return None
    found = text[start:end]
    if ":" not in found:
        parts = found.split(".")
        right = len(parts) == 4 and all(part == str(int(part)) and int(part) <= 255 for part in parts)
        return (start, end) if right else None
    try:
        IPv6Address(found)
    except AddressValueError:
        return None
    return (start, end) if any(each.isalnum() for each in found) else None


_FORMS: dict[Pii, tuple[str, str, int, Test]] = {
    "email": (
        rf"@(?:[{_LETTER}\p{{N}}-]+\.)+(?:xn--[A-Za-z0-9-]+|[{_LETTER}]{{2,24}})",
        rf"(?:[{_LETTER}\p{{N}}._%+'-]+@?|@)[{_LETTER}\p{{N}}.-]*\z",
        1 + LOCAL_CHARACTERS_MAX + DOMAIN_CHARACTERS_MAX + 1,
        _email,
    ),
    "phone": (
        r"\+[1-9](?:[ ().-]{0,2}[0-9]){6,14}|00[1-9](?:[ .-]?[0-9]){7,13}"
        r"|(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[0-9]{3}[ .-][0-9]{4}",
        r"[+(0-9](?:[ ().-]{0,2}[0-9]){0,16}[ ().-]{0,2}\z",
        56,
        _phone,
    ),
    "iban": (
        r"(?i)\b[a-z]{2}[0-9]{2}(?: ?[a-z0-9]){11,30}",
        r"(?i)[a-z](?:[a-z](?:[0-9](?:[0-9](?: ?[a-z0-9]){0,31} ?)?)?)?\z",
        72,
        _iban,
    ),
    "ip": (
        r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3,9}"
        rf"|(?:{_HEX}:){{6}}(?:{_HEX}:{_HEX}|{_FOUR})|(?:{_HEX}(?::{_HEX}){{0,6}})?::(?:{_HEX}:){{0,6}}(?:{_FOUR}|{_HEX})?",
        r"[0-9A-Fa-f:.]+\z",
        80,
        _ip,
    ),
    "key": (rf"\b(?:{'|'.join(_KEYS)})", r"[A-Za-z0-9_.-]+\z", 2600, _any),
}  # fmt: skip
assert {*get_args(Pii)} == {*ORDER}, "every kind has its place"
