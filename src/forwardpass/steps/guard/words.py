"""Lists of words, found however they are written: upper or lower case, in any Unicode form, with invisible characters inside.

A text is *folded* character by character (NFKD and case folding); what is invisible becomes one mark, which joins
letters to one word and parts them as well: both readings are looked at.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from forwardpass.core.errors import show
from forwardpass.steps.guard.patterns import expression_of, matches
from forwardpass.steps.guard.spans import Span
from forwardpass.steps.options import Wrong

WORD_CHARACTERS_MAX = 256
BETWEEN_MAX = 4  # characters between two words of a phrase
UNSEEN_MAX = 8  # between two characters of a word in a script without spaces
_UNSEEN = "\u200b"
_UNSEEN_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_MARKS_END = 0x1E94B  # no combining character has a greater number but variation selectors, which are unseen
_SCRIPTS_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


class _Folds(dict[int, str]):
    """What each character becomes; filled as characters are met."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        if unicodedata.category(character) == "Cf" or character in _UNSEEN_LETTERS or _is_selector(number):
            made = _UNSEEN
        else:
            plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
            made = "".join(" " if each == "_" else each for each in plain)
        if len(self) < _FOLDS_MAX:
            self[number] = made
        return made


_FOLDS_MAX = 200_000


def _is_selector(number: int) -> bool:
    return 0xFE00 <= number <= 0xFE0F or 0xE0100 <= number <= 0xE01EF


@cache
def _folds() -> _Folds:
    return _Folds()


@cache
def _tokens() -> "tuple[re.Pattern[str], re.Pattern[str]]":
    """What a word is in a folded text, and a run of combining characters in it."""
    marks = [chr(n) for n in range(0x300, _MARKS_END) if unicodedata.category(chr(n)).startswith("M")]
    combining = "".join(mark for mark in marks if unicodedata.combining(mark))
    return re.compile(f"[\\w{_UNSEEN}{''.join(marks)}]+"), re.compile(f"[{combining}]{{2,}}")


def folded(text: str) -> str:
    """The text as words are compared; its characters' folds one behind the other, combining ones in canonical order."""
    if text.isascii():
        return text.lower().replace("_", " ")
    plain = text.translate(_folds())
    return _tokens()[1].sub(lambda run: "".join(sorted(run[0], key=unicodedata.combining)), plain)


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
        places = _Places(text, plain)
        position = places.folded(start)
        yield from self._found(plain, position, places)

    def settled(self, text: str, start: int) -> int:
        plain = folded(text)
        places = _Places(text, plain)
        if not self.allowed:
            place, needed = len(plain), self.reach
            while place > 0 and needed > 0:
                place -= 1
                needed -= plain[place] != _UNSEEN
            return max(start, places.start(place))
        last = None
        for last in _tokens()[0].finditer(plain, places.folded(start)):  # noqa: B007 - the last one is wanted
            pass
        return len(text) if last is None or last.end() < len(plain) else max(start, places.start(last.start()))

    def context(self, text: str, start: int) -> int:
        place = start - 1
        while place > 0 and folded(text[place]) == _UNSEEN:
            place -= 1
        return max(0, place)

    def _found(self, plain: str, position: int, places: "_Places") -> Iterator[Span]:
        within = iter(()) if self.inside is None else matches(self.inside, plain, position)
        ahead = next(within, None)
        for first, last in self._words(plain, position):
            while ahead is not None and ahead[0] < first:
                if ahead[0] >= position:
                    position = ahead[1]
                    yield places.span(*ahead)
                ahead = next(within, None)
            if first >= position:
                position = last
                yield places.span(first, last)
        while ahead is not None:
            if ahead[0] >= position:
                position = ahead[1]
                yield places.span(*ahead)
            ahead = next(within, None)

    def _words(self, plain: str, position: int) -> Iterator[tuple[int, int]]:
        """Words and phrases between borders. The first word of the text may begin before ``position``, and is passed over."""
        token = _tokens()[0]
        for match in token.finditer(plain):
            if match.start() < position:
                continue
            word = match[0]
            if self.allowed:
                if not self._is_listed(word):
                    yield match.start(), match.end()
                continue
            rests = self.phrases.get(word.replace(_UNSEEN, ""))
            end = None if rests is None else _phrase_end(plain, match.end(), rests, token)
            if end is None and _UNSEEN in word and self._is_listed(word):
                end = match.end()
            if end is not None:
                yield match.start(), end

    def _is_listed(self, word: str) -> bool:
        whole = () in self.phrases.get(word.replace(_UNSEEN, ""), ())
        if whole or _UNSEEN not in word:
            return whole
        parts = [part for part in word.split(_UNSEEN) if part]
        return (all if self.allowed else any)(() in self.phrases.get(part, ()) for part in parts)


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


def _phrase_end(plain: str, end: int, rests: list[tuple[str, ...]], token: "re.Pattern[str]") -> int | None:
    for rest in rests:
        place = end
        for word in rest:
            match = next((m for gap in range(1, BETWEEN_MAX + 1) if (m := token.match(plain, place + gap))), None)
            if match is None or match[0].replace(_UNSEEN, "") != word:
                break
            place = match.end()
        else:
            return place
    return None


def words(entries: Iterable[str], *, allowed: bool) -> Words:
    """The detector of a list. Raises Wrong for an entry without a letter or digit, or one too long."""
    phrases: dict[str, list[tuple[str, ...]]] = {}
    inside: list[str] = []
    reach = 0
    for entry in entries:
        plain = folded(entry).replace(_UNSEEN, "")
        parts = _tokens()[0].findall(plain)
        if not parts or not 0 < len(entry) <= WORD_CHARACTERS_MAX:
            raise Wrong(show(entry), f"a word or phrase of 1 to {WORD_CHARACTERS_MAX} characters, with a letter or digit")
        if not allowed and _SCRIPTS_WITHOUT_SPACES.search(plain):
            inside.append(f"{_UNSEEN}{{0,{UNSEEN_MAX}}}".join(map(re.escape, plain)))
        elif allowed and len(parts) > 1:
            raise Wrong(show(entry), "a single word: what is allowed is compared word by word")
        else:
            phrases.setdefault(parts[0], []).append(tuple(parts[1:]))
        reach = max(reach, len(plain) + BETWEEN_MAX * len(parts) + 1)
    for rests in phrases.values():
        rests.sort(key=len, reverse=True)
    pattern = "|".join(sorted(inside, key=len, reverse=True))
    return Words(phrases, expression_of(pattern) if inside else None, allowed, reach)
