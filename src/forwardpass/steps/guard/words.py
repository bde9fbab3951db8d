"""Lists of words, found however they are written: upper or lower case, in any Unicode form.

A reading of a text, in which nothing is invisible, is *folded* character by character (NFKD and case folding).
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from forwardpass.core.errors import show
from forwardpass.steps.guard.patterns import expression_of, matches
from forwardpass.steps.guard.readings import visible
from forwardpass.steps.guard.spans import Span
from forwardpass.steps.options import Wrong

WORD_CHARACTERS_MAX = 256
BETWEEN_MAX = 4  # characters between two words of a phrase
MARKS_MAX = 64
SCRIPTS_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


class _Folds(dict[int, str]):
    """What each character becomes; filled as characters are met."""

    def __missing__(self, number: int) -> str:
        plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", chr(number)).casefold())
        made = _one_kind(plain)
        if len(self) < _FOLDS_MAX:
            self[number] = made
        return made


_FOLDS_MAX = 200_000


def _one_kind(fold: str) -> str:
    """Of a fold with more than letters in it, such as that of ½, the letters and digits; a space where there are none."""
    shapes = {_shapes()[ord(each)] for each in fold}
    if " " not in shapes:
        return fold
    return "".join(each for each in fold if _shapes()[ord(each)] != " ") if "w" in shapes else " "


@cache
def _folds() -> _Folds:
    return _Folds()


class _Shapes(dict[int, str]):
    """What each folded character is: w of a word, m a combining one, which is too, or a space between words."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        made = "w" if character.isalnum() else " "
        if unicodedata.category(character).startswith("M"):
            made = "m" if unicodedata.combining(character) else "w"
        if len(self) < _FOLDS_MAX:
            self[number] = made
        return made


@cache
def _shapes() -> _Shapes:
    return _Shapes()


class _Spaced(dict[int, str]):
    """Each character of a folded text that is in a word, and a space for every other."""

    def __missing__(self, number: int) -> str:
        made = " " if _shapes()[number] == " " else chr(number)
        if len(self) < _FOLDS_MAX:
            self[number] = made
        return made


@cache
def _spaced() -> _Spaced:
    return _Spaced()


_WORD = re.compile("[wm]+")
_MARKS = re.compile("mm+")


class Folded(NamedTuple):
    """A text as words are compared; ``shape`` says of each of its characters what it is."""

    text: str
    shape: str


def folded(text: str) -> Folded:
    """Each character's fold, one behind the other, combining ones in canonical order."""
    if text.isascii():
        plain = text.lower().replace("_", " ")
        return Folded(plain, plain.translate(_shapes()))
    plain = text.translate(_folds())
    shape = plain.translate(_shapes())
    pieces: list[str] = []
    end = 0
    for run in _MARKS.finditer(shape):
        if run.end() - run.start() > MARKS_MAX:  # no word has so many: it is none, in whatever order
            continue
        pieces += (plain[end : run.start()], *sorted(plain[run.start() : run.end()], key=unicodedata.combining))
        end = run.end()
    return Folded("".join([*pieces, plain[end:]]), shape)


@dataclass(frozen=True, slots=True)
class Words:
    """A detector of words and phrases in a list; ``allowed``: of the words that are not in it.

    ``phrases`` maps a first word to the rest of each entry that begins with it, the longest first.
    """

    phrases: dict[str, list[tuple[str, ...]]]
    inside: Any | None  # of entries in scripts without spaces: the expression that finds them within a word
    allowed: bool
    reach: int  # folded characters that a decision looks at

    def find(self, text: str, start: int) -> Iterator[Span]:
        plain = folded(text)
        places = _Places(text, plain.text)
        yield from self._found(plain, places.folded(start), places)

    def settled(self, text: str, start: int) -> int:
        plain, shape = folded(text)
        places = _Places(text, plain)
        place = shape.rfind(" ") + 1 if self.allowed else max(0, len(plain) - self.reach)
        return max(start, places.start(place))

    def _found(self, plain: Folded, position: int, places: "_Places") -> Iterator[Span]:
        end = 0
        for first, last in self._both(plain, position):
            span = places.span(first, last)
            if span.start >= end:  # one character may hold two entries
                end = span.end
                yield span

    def _both(self, plain: Folded, position: int) -> Iterator[tuple[int, int]]:
        within = iter(()) if self.inside is None else matches(self.inside, plain.text, position)
        ahead = next(within, None)
        for first, last in self._words(plain, position):
            while ahead is not None and ahead[0] < first:
                if ahead[0] >= position:
                    position = ahead[1]
                    yield ahead
                ahead = next(within, None)
            if first >= position:
                position = last
                yield first, last
        while ahead is not None:
            if ahead[0] >= position:
                position = ahead[1]
                yield ahead
            ahead = next(within, None)

    def _words(self, plain: Folded, position: int) -> Iterator[tuple[int, int]]:
        """Words and phrases between borders. The first word of the text may begin before ``position``, and is passed over."""
        if not self.allowed and self._holds_none(plain.text):
            return
        for match in _WORD.finditer(plain.shape):
            first, last = match.span()
            if first < position:
                continue
            rests = self.phrases.get(plain.text[first:last])
            if self.allowed:
                if rests is None:
                    yield first, last
            elif rests is not None and (end := _phrase_end(plain, last, rests)) is not None:
                yield first, end

    def _holds_none(self, text: str) -> bool:
        """Whether no word of the text begins an entry: the quick look, which most texts end with."""
        return self.phrases.keys().isdisjoint(text.translate(_spaced()).split())


class _Places:
    """Which characters of a text those of its folded form come from."""

    def __init__(self, text: str, plain: str) -> None:
        self._ends: list[int] | None = None
        if len(text) != len(plain) or not text.isascii():
            folds = _folds()
            lengths = [len(folds[number]) for number in map(ord, text)]
            if set(lengths) != {1}:
                self._ends = list(accumulate(lengths, initial=0))

    def folded(self, place: int) -> int:
        return place if self._ends is None else self._ends[place]

    def start(self, place: int) -> int:
        """The character in whose fold ``place`` is."""
        if self._ends is None:
            return place
        at = bisect_left(self._ends, place)
        return at if self._ends[at] == place else at - 1

    def span(self, first: int, last: int) -> Span:
        start = self.start(first)
        end = last if self._ends is None else bisect_left(self._ends, last)
        return Span(start, end, end)


def _phrase_end(plain: Folded, end: int, rests: list[tuple[str, ...]]) -> int | None:
    for rest in rests:
        place = end
        for word in rest:
            match = next((m for gap in range(1, BETWEEN_MAX + 1) if (m := _WORD.match(plain.shape, place + gap))), None)
            if match is None or plain.text[match.start() : match.end()] != word:
                break
            place = match.end()
        else:
            return place
    return None


class Entry(NamedTuple):
    """A word or phrase of a list: ``text`` as words are compared, and its words."""

    text: str
    parts: tuple[str, ...]

    @property
    def is_inside(self) -> bool:
        """Whether it is found within longer runs, too."""
        return SCRIPTS_WITHOUT_SPACES.search(self.text) is not None


def entry(given: str, *, allowed: bool) -> Entry:
    """Raises Wrong for one without a letter or digit, one too long, and one of which a part would not be compared."""
    plain, shape = folded(visible(given).strip())
    parts = tuple(plain[word.start() : word.end()] for word in _WORD.finditer(shape))
    if not parts or not 0 < len(given) <= WORD_CHARACTERS_MAX:
        raise Wrong(show(given), f"a word or phrase of 1 to {WORD_CHARACTERS_MAX} characters, with a letter or digit")
    if shape[0] == " " or shape[-1] == " ":
        raise Wrong(show(given), "a word or phrase that begins and ends with a letter or digit: for others use deny")
    if max(map(len, re.findall(" +", shape)), default=0) > BETWEEN_MAX:
        raise Wrong(show(given), f"a phrase with at most {BETWEEN_MAX} other characters between its words")
    if allowed and len(parts) > 1:
        raise Wrong(show(given), "a single word: what is allowed is compared word by word")
    return Entry(plain, parts)


def words(entries: Iterable[Entry], *, allowed: bool) -> Words:
    """The detector of a list."""
    phrases: dict[str, list[tuple[str, ...]]] = {}
    inside: list[str] = []
    reach = 0
    for each in entries:
        if each.is_inside and not allowed:
            inside.append(re.escape(each.text))
        else:
            phrases.setdefault(each.parts[0], []).append(each.parts[1:])
        reach = max(reach, len(each.text) + BETWEEN_MAX * len(each.parts) + 1)
    for rests in phrases.values():
        rests.sort(key=len, reverse=True)
    pattern = "|".join(sorted(inside, key=len, reverse=True))
    return Words(phrases, expression_of(pattern) if inside else None, allowed, reach)
