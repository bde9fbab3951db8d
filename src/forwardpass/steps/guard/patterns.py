"""Regular expressions of RE2: matched in time linear in the text, with bounded memory, whatever the pattern."""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, show
from forwardpass.steps.guard.spans import Span
from forwardpass.steps.options import Wrong

PATTERN_CHARACTERS_MAX = 4096
MEMORY_BYTES_MAX = 16 * 1024 * 1024
ALLOWED = "a regular expression of RE2 (no look-around, no back-references) that matches no empty text"
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

    def context(self, text: str, start: int) -> int:
        return max(0, start - 1)


def pattern(text: str) -> Pattern:
    """The detector of a pattern that an author wrote. Raises Wrong."""
    expression = compiled(text)
    if expression.fullmatch(b"") is not None:
        raise Wrong(f"{show(text)} matches the empty text", ALLOWED)
    longest = length_max(text)
    return Pattern(expression, None if longest is None else longest + 1)  # and whether its end is a border
