"""Numbers of payment cards in a text: 13 to 19 digits in at most five groups, with a right check digit (ISO/IEC 7812)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.steps.guard.patterns import compiled
from forwardpass.steps.guard.spans import Span

LENGTHS = range(19, 12, -1)
GROUPS_MAX = 5
_ISSUERS = "23456"  # what the first digit of a card number is
_ENOUGH = r"[0-9](?:[ -]?[0-9]){12}"
_GROWING = r"[0-9](?:[ -]?[0-9]){0,19}[ -]?\z"


@dataclass(frozen=True, slots=True)
class Cards:
    """A detector. Digits of one number stand next to each other or with one space or hyphen between."""

    enough: Any
    growing: Any

    def find(self, text: str, start: int) -> Iterator[Span]:
        if not self.enough.search(text.encode(), len(text[:start].encode())):
            return
        for first, last in _numbers(np.frombuffer(text.encode("utf-32-le"), dtype="<u4"), start):
            yield Span(first, last, last)

    def settled(self, text: str, start: int) -> int:
        tail = max(start, len(text) - 2 * max(LENGTHS) - 4)
        match = self.growing.search(text[tail:].encode())
        if match is None:
            return len(text)
        return len(text) - len(text[tail:].encode()[match.start() :].decode())

    def context(self, text: str, start: int) -> int:
        return max(0, start - 2)


def cards() -> Cards:
    """Raises Misconfigured without RE2."""
    return Cards(compiled(_ENOUGH), compiled(_GROWING))


def _numbers(characters: NDArray[Any], start: int) -> Iterator[tuple[int, int]]:
    """Start and end of each number, the leftmost and of these the longest first, none over another."""
    is_digit = (characters >= ord("0")) & (characters <= ord("9"))
    places = np.flatnonzero(is_digit)
    digits = (characters[places] - ord("0")).astype(np.int64)
    count = len(places)
    gaps = np.diff(places)
    separators = characters[np.minimum(places[:-1] + 1, len(characters) - 1)]
    joins = (gaps == 1) | ((gaps == 2) & ((separators == ord(" ")) | (separators == ord("-"))))
    begins = np.ones(count, dtype=bool)  # of a group
    begins[1:] = gaps > 1
    ends = np.ones(count, dtype=bool)
    ends[:-1] = gaps > 1
    breaks = np.concatenate([[0], np.cumsum(~joins)])  # before each digit
    groups = np.concatenate([[0], np.cumsum(begins)])
    issuer = np.isin(digits, [int(each) for each in _ISSUERS])
    before = np.maximum(places - 1, 0)
    is_fraction = (places > 1) & (characters[before] == ord(".")) & is_digit[np.maximum(places - 2, 0)]
    possible = np.flatnonzero(begins & issuer & ~is_fraction & (places >= start))
    longest: dict[int, int] = {}
    summed: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    for length in reversed(LENGTHS):
        first = possible[possible <= count - length]
        last = first + length - 1
        fits = ends[last] & (breaks[last] == breaks[first]) & (groups[last + 1] - groups[first] <= GROUPS_MAX)
        first, last = first[fits], last[fits]
        if not len(first):
            continue
        plain, doubled = summed = summed or _sums(digits)
        sums = _window(plain, first, last, last % 2) + _window(doubled, first, last, 1 - last % 2)
        longest.update(dict.fromkeys(first[sums % 10 == 0].tolist(), length))
    at = -1
    for digit in sorted(longest):
        if digit > at:
            at = digit + longest[digit] - 1
            yield int(places[digit]), int(places[at]) + 1


def _sums(digits: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Running sums of the digits at even and at odd places, as they are and doubled as the check digit wants it."""
    even = np.arange(len(digits)) % 2 == 0
    doubled = np.where(digits > 4, 2 * digits - 9, 2 * digits)
    return tuple(  # type: ignore[return-value]  # two of them
        np.stack([np.concatenate([[0], np.cumsum(np.where(chosen, values, 0))]) for chosen in (even, ~even)])
        for values in (digits, doubled)
    )


def _window(
    sums: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64], parity: NDArray[np.int64]
) -> NDArray[np.int64]:
    return sums[parity, last + 1] - sums[parity, first]
