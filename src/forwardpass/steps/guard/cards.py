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
SEPARATORS = " -._\t\n\r"
"""What stands between groups, one or two of them. Other than one space or hyphen it joins behind four digits only."""
_BETWEEN = r"[ ._\t\n\r-]{0,2}"
_ENOUGH = rf"[0-9](?:{_BETWEEN}[0-9]){{12}}"
_GROWING = rf"[0-9](?:{_BETWEEN}[0-9]){{0,19}}{_BETWEEN}\z"


@dataclass(frozen=True, slots=True)
class Cards:
    """A detector. Digits of one number stand next to each other or with SEPARATORS between."""

    enough: Any
    growing: Any

    def find(self, text: str, start: int) -> Iterator[Span]:
        if not self.enough.search(text.encode(), len(text[:start].encode())):
            return
        for first, last in _numbers(np.frombuffer(text.encode("utf-32-le"), dtype="<u4"), start):
            yield Span(first, last, last)

    def settled(self, text: str, start: int) -> int:
        tail = max(start, len(text) - 3 * max(LENGTHS) - 4)
        match = self.growing.search(text[tail:].encode())
        if match is None:
            return len(text)
        return len(text) - len(text[tail:].encode()[match.start() :].decode())


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
    begins = np.ones(count, dtype=bool)  # of a group
    begins[1:] = gaps > 1
    ends = np.ones(count, dtype=bool)
    ends[:-1] = gaps > 1
    joins = _joins(characters, places, gaps, begins)
    breaks = np.concatenate([[0], np.cumsum(~joins)])  # before each digit
    groups = np.concatenate([[0], np.cumsum(begins)])
    issuer = _issued(digits)
    before, two_before = characters[np.maximum(places - 1, 0)], characters[np.maximum(places - 2, 0)]
    is_fraction = (before == ord(".")) & (two_before >= ord("0")) & (two_before <= ord("9"))
    is_hexadecimal = ((before == ord("x")) | (before == ord("X"))) & (two_before == ord("0"))
    is_fraction = (is_fraction | is_hexadecimal) & (places > 1)
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


def _joins(
    characters: NDArray[Any], places: NDArray[Any], gaps: NDArray[Any], begins: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which digits go on with the next one."""
    separates = np.isin(characters, [ord(each) for each in SEPARATORS])
    last = len(characters) - 1
    first = np.minimum(places[:-1] + 1, last)
    is_plain = (gaps == 2) & ((characters[first] == ord(" ")) | (characters[first] == ord("-")))
    is_other = separates[first] & ((gaps == 2) | ((gaps == 3) & separates[np.minimum(first + 1, last)]))
    group_begins = np.maximum.accumulate(np.where(begins, np.arange(len(places)), 0))
    in_group = np.arange(len(places)) - group_begins + 1
    joined: NDArray[np.bool_] = (gaps == 1) | is_plain | (is_other & (in_group[:-1] >= 4))
    return joined


def _issued(digits: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which digits may be the first of a card's number (2221 to 2720, 30, 34 to 39, 4, 5 and 6): no year, for one."""
    ahead = np.concatenate([digits, [0, 0, 0]])
    first, second = digits, ahead[1 : len(digits) + 1]
    four = first * 1000 + second * 100 + ahead[2 : len(digits) + 2] * 10 + ahead[3 : len(digits) + 3]
    of_two: NDArray[np.bool_] = (four >= 2221) & (four <= 2720)
    of_three: NDArray[np.bool_] = (first == 3) & ((second == 0) | (second >= 4))
    found: NDArray[np.bool_] = of_two | of_three | ((first >= 4) & (first <= 6))
    return found


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
