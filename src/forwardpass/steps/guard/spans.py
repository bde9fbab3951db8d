"""What a detector finds in a text, and how much of a text that is still growing it can already decide."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

MATCHES_MAX = 10_000
"""Candidates looked at in one text; one with more is not gone through: it counts as found, and cannot be masked."""

HOLD_CHARACTERS_MAX = 64 * 1024
"""What a stream holds back at most; where a decision needs more, the stream is blocked."""


class Span(NamedTuple):
    """A candidate ``text[start:end]``; the search goes on at ``resume``. What is not ``found`` only looked like one."""

    start: int
    end: int
    resume: int
    found: bool = True


class Search(Protocol):
    """Finds places in one reading of a text."""

    def find(self, text: str, start: int) -> Iterator[Span]:
        """The candidates that begin at ``start`` or later, the leftmost first, none over another that was found."""

    def settled(self, text: str, start: int) -> int:
        """Up to here what begins at ``start`` or later is decided, whatever is still to come behind ``text``."""


class Detector(Search, Protocol):
    """Finds places in a text. A place is looked at with the characters before it, as ``context`` says, and what follows."""

    def context(self, text: str, start: int) -> int:
        """From where ``text`` must be kept for what begins at ``start``."""


class TooMany(Exception):
    """A text with more than MATCHES_MAX candidates."""


def found(detector: Detector, text: str) -> Iterator[Span]:
    """What a detector finds in a whole text. Raises TooMany."""
    for count, span in enumerate(detector.find(text, 0), start=1):
        if count > MATCHES_MAX:
            raise TooMany
        if span.found:
            yield span
