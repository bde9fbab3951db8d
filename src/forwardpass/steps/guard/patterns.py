"""Regular expressions of RE2: matched in time linear in the text, with bounded memory, whatever the pattern."""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any

from forwardpass.core.clock import worked_s
from forwardpass.core.errors import Code, Misconfigured, show
from forwardpass.steps.guard.spans import Span
from forwardpass.steps.options import Wrong

PATTERN_CHARACTERS_MAX = 4096
MEMORY_BYTES_MAX = 16 * 1024 * 1024
ALLOWED = "a regular expression of RE2 (no look-around, no back-references) that matches no empty text"
PROBE_BYTES = 32 * 1024
PROBE_LIMIT_S = 0.06
"""What a pattern may take for PROBE_BYTES: about two seconds for 1 MiB of a text made for it."""
_SMALL = 50  # of programs: at no character there is more to do than that
_SLICE_BYTES = 8 * 1024
_SIGNS = frozenset("()[]{}|*+?^$.\\")
_MATCHES_TRIED = 50  # of each slice: what takes long is to find none
_FILLERS = ("~", " ")
_SAMPLES = {r"\d": "0", r"\w": "a", r"\s": " "}
_UNBOUNDED = 100_000
_ONE_CHARACTER = re.compile(r"(?P<class>\\[pP](?:\{\^?\w+\}|\w)|\[:\^?\w+:\])|\\.", re.DOTALL)
_PIECE_OF_CHARACTER = r"\C"


def library() -> Any:
    """RE2. Raises Misconfigured when it is not installed."""
    try:
        import re2
    except ModuleNotFoundError as error:
        text = "guards need the RE2 library: pip install 'forwardpass[guards]'"
        raise Misconfigured(Code.RUNTIME_MISSING, text, detail=str(error)) from None
    return re2


@lru_cache(256)
def compiled(pattern: str) -> Any:
    """The expression of a pattern, for UTF-8 bytes. Raises Wrong for what is none, Misconfigured without the library."""
    if not 0 < len(pattern) <= PATTERN_CHARACTERS_MAX:
        raise Wrong(f"{len(pattern)} characters", f"{ALLOWED}, 1 to {PATTERN_CHARACTERS_MAX} characters")
    if any(escape[0] == _PIECE_OF_CHARACTER for escape in _ONE_CHARACTER.finditer(pattern)):
        raise Wrong(f"{show(pattern)}: {_PIECE_OF_CHARACTER} is a piece of a character", ALLOWED)
    return expression_of(pattern)


def expression_of(pattern: str) -> Any:
    """The expression of a pattern of any length that cannot hold ``\\C``. Raises as ``compiled`` does."""
    re2 = library()
    options = re2.Options()
    options.never_capture, options.log_errors, options.max_mem = True, False, MEMORY_BYTES_MAX
    try:
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else ""
        why = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise Wrong(f"{show(pattern)}: {show(why)}", ALLOWED) from None


@lru_cache(1024)
def quick(pattern: str) -> Any:
    """The expression of an author's pattern that no text makes slow. Raises Wrong for one that some text does.

    RE2 is linear in every text, but the work at each character may grow with the counts in a pattern: it is tried on
    texts made of what stands in it.
    """
    expression = compiled(pattern)
    if expression.programsize <= _SMALL or not set("{*+").intersection(pattern):
        return expression
    for text in _hostile(pattern):
        if min(_work_s(expression, text) for _ in range(2)) > PROBE_LIMIT_S:
            wish = "smaller counts: {0,200} behind what may repeat is as much work as 200 patterns"
            raise Wrong(f"{show(pattern)} is slow on some texts", wish)
    return expression


def _work_s(expression: Any, text: bytes) -> float:
    began = worked_s()
    for place in range(0, len(text), _SLICE_BYTES):
        for _ in islice(expression.finditer(text[place : place + _SLICE_BYTES]), _MATCHES_TRIED):
            pass
        if worked_s() - began > PROBE_LIMIT_S:
            break
    return worked_s() - began


def _hostile(pattern: str) -> Iterator[bytes]:
    """Texts of what stands in the pattern, the first of its letters and words alone, and more of them, in disorder."""
    plain = _ONE_CHARACTER.sub(lambda escape: _SAMPLES.get(escape[0], " "), pattern)
    plain = re.sub(r"\{[0-9,]*\}|\(\?[a-zA-Z-]*[:)]", " ", plain)
    words = list(dict.fromkeys([*re.findall(r"\w{2,}", plain), *re.findall(r"\w", plain)]))
    letters = list(dict.fromkeys(each for each in plain if not each.isspace() and each not in _SIGNS))
    for units in (letters[:1], letters[:2], letters[:4], words[:1], words[:3], letters):
        if units:
            yield _shuffled(units)
            yield _shuffled([*units, *_FILLERS])


def _shuffled(units: Sequence[str]) -> bytes:
    return "".join([units[number % len(units)] for number in _numbers()])[:PROBE_BYTES].encode()


@lru_cache(1)
def _numbers() -> list[int]:
    """The same ones each time (Knuth's generator)."""
    states = accumulate(
        range(PROBE_BYTES), lambda state, _: (state * 6364136223846793005 + 1442695040888963407) % 2**64
    )
    return [state >> 33 for state in states]


def length_max(pattern: str) -> int | None:
    """The most characters a match of it has; None where there is no bound, or none can be told."""
    from re import _parser  # type: ignore[attr-defined]  # the standard library's own: it knows how long matches are

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _, most = _parser.parse(_ONE_CHARACTER.sub(_as_python, pattern)).getwidth()
        except (re.error, OverflowError, RecursionError):
            return None
    return int(most) if most < _UNBOUNDED else None


def _as_python(escape: re.Match[str]) -> str:
    """RE2's way to write a class or a border, as the standard library reads it; any class is one character long."""
    if escape["class"]:
        return r"\w"
    return r"\Z" if escape[0] == r"\z" else escape[0]


def matches(expression: Any, text: str, start: int) -> Iterator[tuple[int, int]]:
    """Start and end of each match from ``start`` on that is not empty, in characters."""
    data = text.encode()
    at, at_byte = start, start if len(data) == len(text) else len(text[:start].encode())
    for match in expression.finditer(data, at_byte):
        first, last = match.span()
        if last > first:
            begin = at + characters(data[at_byte:first])
            end = begin + characters(data[first:last])
            at, at_byte = end, last
            yield begin, end


def characters(data: bytes) -> int:
    """How many characters a piece of UTF-8 has."""
    return len(data) if data.isascii() else len(data.decode())


@dataclass(frozen=True, slots=True)
class Pattern:
    """A detector of what a pattern matches, leftmost first. ``reach``: the characters a decision looks at; None is all."""

    expression: Any
    reach: int | None

    def find(self, text: str, start: int) -> Iterator[Span]:
        for begin, end in matches(self.expression, text, start):
            yield Span(begin, end, end)

    def settled(self, text: str, start: int) -> int:
        return start if self.reach is None else max(start, len(text) - self.reach)


def pattern(text: str) -> Pattern:
    """The detector of a pattern that an author wrote. Raises Wrong."""
    expression = quick(text)
    if expression.fullmatch(b"") is not None:
        raise Wrong(f"{show(text)} matches the empty text", ALLOWED)
    longest = length_max(text)
    return Pattern(expression, None if longest is None else longest + 1)  # and whether its end is a border
