"""A text as it is read: without what is invisible, with plain digits, letters, spaces and dashes for their many forms.

Each character becomes one or none, so every place in a reading has its place in the text. What is invisible joins what
is around it to one and parts it as well: both readings are looked at, and where that is asked for the text as written.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forwardpass.steps.guard.spans import Search, Span, TooMany

CONTEXT_CHARACTERS = 24
"""Visible characters before a place that a decision there may look at."""
RESTARTS_MAX = 100
"""How often what one reading finds may reach beyond what another found; a text with more is not gone through."""
_FOLDS_MAX = 200_000
_UNSEEN = "\u200b"  # stands for everything that is invisible
_RUN = re.compile(f"{_UNSEEN}+")
_UNSEEN_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_PLAIN_CONTROLS = frozenset("\t\n\v\f\r")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


class _Folds(dict[int, str]):
    """What each character reads as; filled as characters are met."""

    def __missing__(self, number: int) -> str:
        made = _fold(chr(number))
        if len(self) < _FOLDS_MAX:
            self[number] = made
        return made


def _fold(character: str) -> str:
    kind = unicodedata.category(character)
    number = ord(character)
    if kind == "Cf" or (kind == "Cc" and character not in _PLAIN_CONTROLS) or character in _UNSEEN_LETTERS:
        return _UNSEEN
    if 0xFE00 <= number <= 0xFE0F or 0xE0100 <= number <= 0xE01EF:  # variation selectors
        return _UNSEEN
    if number < 128:
        return character
    if kind == "Zs":
        return " "
    if kind == "Pd" or character == "\u2212":
        return "-"
    if kind == "Nd":
        return str(unicodedata.decimal(character))
    plain = unicodedata.normalize("NFKC", character)
    return plain if len(plain) == 1 else character


@cache
def _folds() -> _Folds:
    return _Folds()


def visible(text: str) -> str:
    """The text without what is invisible."""
    return "".join(each for each in text if _folds()[ord(each)] != _UNSEEN)


class Reading(NamedTuple):
    """``places`` says from where in the text each of its characters comes; None: from the same place."""

    text: str
    places: NDArray[np.int64] | None = None

    def place(self, at: int) -> int:
        """The first of its characters that comes from ``at`` or behind."""
        return at if self.places is None else int(np.searchsorted(self.places, at))

    def span(self, span: Span) -> Span:
        """The same in the text."""
        if self.places is None:
            return span
        end = int(self.places[span.end - 1]) + 1
        return Span(int(self.places[span.start]), end, max(end, self.start(span.resume, end)), span.found)

    def start(self, at: int, end: int) -> int:
        """Where in the text its character ``at`` is; ``end`` behind the last."""
        if self.places is None:
            return at
        return int(self.places[at]) if at < len(self.places) else end


@dataclass(frozen=True, slots=True)
class Read:
    """The detector that finds what ``search`` does in the readings of a text.

    ``written``: in the text as it is written, too. ``parts``: where an invisible character parts what is around it.
    """

    search: Search
    written: bool = False
    parts: bool = True

    def find(self, text: str, start: int) -> Iterator[Span]:
        readings = self._readings(text)
        if len(readings) == 1:
            (reading,) = readings
            return map(reading.span, self.search.find(reading.text, reading.place(start)))
        return _merged(self.search, readings, start)

    def settled(self, text: str, start: int) -> int:
        seen = start + len(text[start:].translate(_folds()).rstrip(_UNSEEN))  # what comes behind the rest is not known
        if seen == start:
            return start
        ends = (
            reading.start(self.search.settled(reading.text, reading.place(start)), seen)
            for reading in self._readings(text)
        )
        return max(start, min(seen, *ends))

    def context(self, text: str, start: int) -> int:
        left = CONTEXT_CHARACTERS
        place = start
        while place > 0 and left > 0:
            place -= 1
            left -= _folds()[ord(text[place])] != _UNSEEN
        return place

    def _readings(self, text: str) -> Sequence[Reading]:
        if text.isascii() and _CONTROL.search(text) is None:
            return (Reading(text),)
        plain = text.translate(_folds())
        made = [Reading(text)] if self.written and (plain != text or _UNSEEN in plain) else []
        if _UNSEEN not in plain:
            return (*made, Reading(plain))
        codes: NDArray[Any] = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        unseen = codes == ord(_UNSEEN)
        made.append(Reading(plain.replace(_UNSEEN, ""), np.flatnonzero(~unseen)))
        if self.parts:
            first = unseen.copy()
            first[1:] &= ~unseen[:-1]
            made.append(Reading(_RUN.sub(" ", plain), np.flatnonzero(~unseen | first)))
        return made


def _merged(search: Search, readings: Sequence[Reading], start: int) -> Iterator[Span]:
    """What is found in any of these, the leftmost and of these the longest first, none over another."""

    def begun(reading: Reading, at: int) -> Iterator[Span]:
        return map(reading.span, search.find(reading.text, reading.place(at)))

    under_way = [begun(reading, start) for reading in readings]
    ahead = [next(spans, None) for spans in under_way]
    restarts = 0
    while waiting := [(span.start, not span.found, -span.end, n) for n, span in enumerate(ahead) if span is not None]:
        place = min(waiting)[3]
        span = ahead[place]
        assert span is not None, "it waits"
        if span.start < start and span.resume > start:  # it began in what another found: look again from there
            restarts += 1
            if restarts > RESTARTS_MAX:
                raise TooMany
            under_way[place] = begun(readings[place], start)
        ahead[place] = next(under_way[place], None)
        if span.start >= start:
            start = span.end if span.found else start
            yield span
