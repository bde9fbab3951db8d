"""Personal data and secrets that have a form: e-mail addresses, telephone, bank account and card numbers, IPs, keys.

Each kind has a pattern of bounded length, and where form is not enough a test. ``growing`` matches the end of a text
that may still become one: what stands before it is decided.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Any, get_args

from forwardpass.core.pipeline import Pii
from forwardpass.core.secret_forms import SECRET_FORMS
from forwardpass.steps.guard.cards import cards
from forwardpass.steps.guard.patterns import characters, compiled
from forwardpass.steps.guard.spans import HOLD_CHARACTERS_MAX, Search, Span
from forwardpass.steps.guard.words import SCRIPTS_WITHOUT_SPACES

ORDER: tuple[Pii, ...] = ("key", "email", "iban", "card", "ip", "phone")
"""Looked for in this order: what is the part of one kind is not told as another."""

Test = Callable[[str, int, int], tuple[int, int] | None]
"""(text, start, end) -> where what was meant begins and ends, or None where only its form fits."""

LOCAL_CHARACTERS_MAX = 64
DOMAIN_CHARACTERS_MAX = 255
_SPACED = "".join(
    rf"\p{{{script}}}"
    for script in (
        "Latin", "Greek", "Cyrillic", "Armenian", "Georgian", "Hebrew", "Arabic", "Devanagari", "Bengali", "Gurmukhi",
        "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Ethiopic", "M",
    )
)  # fmt: skip
_UNSPACED = "".join(
    rf"\p{{{script}}}" for script in ("Han", "Hiragana", "Katakana", "Hangul", "Thai", "Lao", "Khmer", "Myanmar")
)
"""Letters of scripts in which an address stands between others without a space: none goes on from one of these to another."""
_LETTER = r"\p{L}\p{M}"
_LABEL = rf"(?:[{_SPACED}0-9-]+|[{_UNSPACED}0-9-]+)"
_DOMAIN = rf"@(?:{_LABEL}\.)+(?:xn--[A-Za-z0-9-]+|[{_SPACED}]{{2,24}}|[{_UNSPACED}]{{2,24}})"
_LOCAL = "._%+'!#$&*^~-"  # in the part before the @, with letters and digits
_HEX = "[0-9A-Fa-f]{1,4}"
_FOUR = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
_KEY = "|".join(f"{form.begins}{form.goes_on}" for form in SECRET_FORMS)
_KEY_BEGINS = "|".join(form.begins for form in SECRET_FORMS)
_BETWEEN = r"[ ._\t\n\r-]{0,2}"  # the characters of an IBAN
_PARTS = str.maketrans("", "", " ._\t\n\r-")
_NUMBERED = re.compile(r"(?:\b(?:section|chapter|clause|paragraph|version|release|rev|ver|v|oid)\.?|==|§)\s*\Z", re.I)
"""What stands before the number of a part or a version."""
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
            if place is not None and place[0] < start < begin:  # what stands before that was decided already
                place = (start, place[1])
            if place is None or place[0] < start:
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


def detector(kind: Pii) -> Search:
    """What finds this kind. Raises Misconfigured without RE2."""
    if kind == "card":
        return cards()
    expression, growing, tail, test = _FORMS[kind]
    return Form(compiled(expression), compiled(growing), tail, test, passes=kind in ("ip", "key"))


def _key(text: str, start: int, end: int) -> tuple[int, int] | None:
    """What begins with sk- is a name of many things: a key has digits, and capitals or many characters in a row."""
    found = text[start:end]
    if found.startswith("sk-") and not (
        any(each.isdigit() for each in found) and (any(each.isupper() for each in found) or _LONG.search(found))
    ):
        return None
    return start, end


_LONG = re.compile("[A-Za-z0-9]{32}")


def _email(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The pattern begins at the @; what may stand before it is gone through from there."""
    if end - start > 1 + DOMAIN_CHARACTERS_MAX:
        match = compiled(_DOMAIN).match(text[start : start + 1 + DOMAIN_CHARACTERS_MAX].encode())
        if match is None:
            return None
        end = start + len(match[0].decode())
    if start and text[start - 1] == '"':
        opens = text.rfind('"', max(0, start - 2 - LOCAL_CHARACTERS_MAX), start - 1)
        inside = text[opens + 1 : start - 1]
        return (opens, end) if opens >= 0 and inside and "\n" not in inside and "\r" not in inside else None
    left = start
    is_unspaced = left > 0 and _is_unspaced(text[left - 1])
    while left > 0 and start - left < LOCAL_CHARACTERS_MAX and _is_local(text[left - 1], is_unspaced):
        left -= 1
    first = left
    while first < start and text[first] in "'*!#$&^~.%":
        first += 1
    left = first if first < start else left
    return (left, end) if left < start else None


def _is_local(character: str, is_unspaced: bool) -> bool:
    if character.isalpha():
        return _is_unspaced(character) is is_unspaced
    return character.isalnum() or character in _LOCAL or unicodedata.category(character).startswith("M")


def _is_unspaced(character: str) -> bool:
    return (
        SCRIPTS_WITHOUT_SPACES.match(character) is not None
        or "\u1100" <= character <= "\u11ff"
        or "가" <= character <= "힣"
    )


def _goes_on(text: str, place: int) -> bool:
    """Whether what is next to this is one word with the character there."""
    return 0 <= place < len(text) and text[place].isalnum() and not _is_unspaced(text[place])


def _phone(text: str, start: int, end: int) -> tuple[int, int] | None:
    before = text[start - 1] if start else " "
    if _goes_on(text, start - 1) or before in "+." or (end < len(text) and text[end].isdigit()):
        return None
    return start, end


def _iban(text: str, start: int, end: int) -> tuple[int, int] | None:
    length = _IBAN_LENGTHS.get(text[start : start + 2].upper(), 0)
    compact = text[start:end].translate(_PARTS).upper()[:length]
    if not length or len(compact) < length or _goes_on(text, start - 1):
        return None
    number = int((compact[4:] + compact[:4]).translate(_VALUES))
    right, left = start, length
    while left:
        left -= ord(text[right]) not in _PARTS
        right += 1
    return (start, right) if number % 97 == 1 and not _goes_on(text, right) else None


def _ip(text: str, start: int, end: int) -> tuple[int, int] | None:
    if _goes_on(text, start - 1) or _goes_on(text, end):
        return None
    before = text[start - 1] if start else " "
    found = text[start:end]
    right = _is_four(text, start, found) if ":" not in found else _is_six(text, start, end)
    return (start, end) if right and before != "." else None


def _is_four(text: str, start: int, found: str) -> bool:
    """Four numbers that are not those of a version or of a part of a text."""
    parts = found.split(".")
    if len(parts) != 4 or not all(part == str(int(part)) and int(part) <= 255 for part in parts):
        return False
    before = text[max(0, start - 16) : start]
    is_product = found.endswith(".0.0.0") and before[-1:] == "/" and before[-2:-1].isalpha()
    return not is_product and _NUMBERED.search(before) is None


def _is_six(text: str, start: int, end: int) -> bool:
    """Of those with ``::``, which many languages have too, at least three groups, or one that everybody has."""
    found, before = text[start:end], text[max(0, start - 2) : start]
    if text[end : end + 1] == ":" or (
        before[-1:] == ":" and (len(before) < 2 or before[0] in ":0123456789abcdefABCDEF")
    ):
        return False
    try:
        IPv6Address(found)
    except AddressValueError:
        return False
    groups = sum(map(bool, found.split(":")))
    if "::" not in found or groups >= 3 or "." in found:
        return True
    is_slice = before[-1:] == "[" and (before[:1].isalnum() or before[:1] in ("_", ")", "]")) and len(before) == 2
    return (found == "::1" or found.lower().startswith("fe80::")) and groups > 0 and not is_slice


_FORMS: dict[Pii, tuple[str, str, int, Test]] = {
    "email": (
        _DOMAIN,
        rf"""(?:(?:"[^"\r\n]{{1,64}}"|[{_LETTER}\p{{N}}{_LOCAL}]+)(?:@[{_LETTER}\p{{N}}.-]*)?|"[^"\r\n]{{0,64}}"""
        rf"""|@[{_LETTER}\p{{N}}.-]*)\z""",
        2 + LOCAL_CHARACTERS_MAX + 1 + DOMAIN_CHARACTERS_MAX + 2,
        _email,
    ),
    "phone": (
        r"\+[1-9](?:[ ().-]{0,2}[0-9]){6,14}|00 ?[1-9][0-9]{0,2}[ .-](?:[ .-]?[0-9]){6,12}"
        r"|(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ -])[0-9]{3}[ .-][0-9]{4}"
        r"|(?:1[ .-])?[2-9][0-9]{2}\.[2-9][0-9]{2}[ .-][0-9]{4}",
        r"[+(0-9](?:[ ().-]{0,2}[0-9]){0,16}[ ().-]{0,2}\z",
        56,
        _phone,
    ),
    "iban": (
        rf"(?i)\b[a-z]{{2}}[0-9]{{2}}(?:{_BETWEEN}[a-z0-9]){{11,30}}",
        rf"(?i)[a-z](?:[a-z](?:[0-9](?:[0-9](?:{_BETWEEN}[a-z0-9]){{0,31}}{_BETWEEN})?)?)?\z",
        112,
        _iban,
    ),
    "ip": (
        r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3,9}"
        rf"|(?:{_HEX}:){{6}}(?:{_HEX}:{_HEX}|{_FOUR})|(?:{_HEX}(?::{_HEX}){{0,6}})?::(?:{_HEX}:){{0,6}}(?:{_FOUR}|{_HEX})?",
        r"[0-9A-Fa-f:.]+\z",
        80,
        _ip,
    ),
    "key": (
        rf"\b(?:{_KEY})",
        rf"\b(?:(?:{_KEY_BEGINS})[A-Za-z0-9_.-]*|[A-Za-z0-9_-]{{1,12}})\z",
        HOLD_CHARACTERS_MAX,
        _key,
    ),
}  # fmt: skip
assert {*get_args(Pii)} == {*ORDER}, "every kind has its place"
