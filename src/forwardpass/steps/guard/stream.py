"""Guards on a text that comes in pieces, such as a model's while it is being written: nothing leaves that a guard will mask.

The pieces that leave, one behind the other, are the text as guards would have left it as a whole, however it was cut.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from forwardpass.steps.guard.checks import Check, blocked, is_of_length
from forwardpass.steps.guard.spans import HOLD_CHARACTERS_MAX, MATCHES_MAX, Detector, Span, TooMany

LOOK_AGAIN_CHARACTERS = 4096
"""While more is held, it is looked at again once it has grown by an eighth: so that no hold costs more than a few looks."""


class _Stage(Protocol):
    def feed(self, text: str, *, last: bool) -> str: ...


class StreamGuard:
    """Every check in turn on what the one before it lets out. Raises Refused guard_blocked, and is then at its end.

    What is held is no more than a decision needs: the longest possible match, or the whole text for a check of whole
    texts; at most HOLD_CHARACTERS_MAX characters, beyond which it blocks.
    """

    def __init__(self, checks: Sequence[Check]) -> None:
        self._counts: dict[str, int] = {}
        self._stages: list[_Stage] = []
        for check in checks:
            if is_of_length(check.guard):
                self._stages.append(_Length(check, self._counts))
            elif check.whole is not None or check.value is not None:
                self._stages.append(_Whole(check, self._counts))
            else:
                self._stages += [_Places(check, each, mask, self._counts) for each, mask in check.places]

    @property
    def counts(self) -> dict[str, int]:
        """How often each guard fired so far, by name."""
        return dict(self._counts)

    def feed(self, chunk: str) -> str:
        """What may leave now."""
        return self._through(chunk, last=False)

    def flush(self) -> str:
        """The rest: the text is at its end."""
        return self._through("", last=True)

    def _through(self, text: str, *, last: bool) -> str:
        for stage in self._stages:
            text = stage.feed(text, last=last)
        return text


class _Places:
    """One detector. ``_text`` is what is held, with what must be seen of the text before it; ``_start``, where that ends."""

    def __init__(self, check: Check, detector: Detector, mask: str, counts: dict[str, int]) -> None:
        self._check, self._detector, self._mask, self._counts = check, detector, mask, counts
        self._text = ""
        self._start = 0
        self._candidates = 0
        self._looked = 0

    def feed(self, text: str, *, last: bool) -> str:
        self._text += text
        held = len(self._text) - self._start
        if not last and LOOK_AGAIN_CHARACTERS < held <= HOLD_CHARACTERS_MAX and held < self._looked * 9 // 8:
            return ""
        safe = self._decide(last)
        held = self._looked = len(self._text) - self._start
        if held > HOLD_CHARACTERS_MAX and not last:
            raise blocked(self._check.guard)
        return safe

    def _decide(self, last: bool) -> str:
        settled = len(self._text) if last else self._detector.settled(self._text, self._start)
        pieces: list[str] = []
        position = self._start
        for span in self._spans(position) if settled > position else ():
            if span.start >= settled and not last:
                break
            self._candidates += 1
            self._refuse_if_too_many()
            if span.found:
                pieces += (self._text[position : span.start], self._seen(self._text[span.start : span.end]))
                position = span.end
        end = max(position, settled)
        pieces.append(self._text[position:end])
        kept = self._detector.context(self._text, end)
        self._text, self._start = self._text[kept:], end - kept
        return "".join(pieces)

    def _spans(self, position: int) -> Iterator[Span]:
        try:
            yield from self._detector.find(self._text, position)
        except TooMany:
            self._candidates = MATCHES_MAX + 1
            self._refuse_if_too_many()

    def _seen(self, text: str) -> str:
        name, mode = self._check.guard.name, self._check.guard.mode
        self._counts[name] = self._counts.get(name, 0) + 1
        if mode == "block":
            raise blocked(self._check.guard)
        return self._mask if mode == "mask" else text

    def _refuse_if_too_many(self) -> None:
        if self._candidates > MATCHES_MAX and self._check.guard.mode in ("block", "mask"):
            raise blocked(self._check.guard)


class _Length:
    """Counts: a text is held until it is long enough, and ended where it becomes too long."""

    def __init__(self, check: Check, counts: dict[str, int]) -> None:
        self._check, self._counts = check, counts
        self._held = ""
        self._size = 0
        self._told = False

    def feed(self, text: str, *, last: bool) -> str:
        guard = self._check.guard
        low, high = guard.length_min or 0, guard.length_max
        self._size += len(text)
        if (high is not None and self._size > high) or (last and self._size < low):
            if not self._told:
                self._told = True
                self._counts[guard.name] = self._counts.get(guard.name, 0) + 1
            if guard.mode == "block":
                raise blocked(guard)
        if guard.mode != "block":
            return text
        text, self._held = self._held + text, ""
        if self._size < low:
            if len(text) > HOLD_CHARACTERS_MAX:
                raise blocked(guard)
            self._held, text = text, ""
        return text


class _Whole:
    """A check that only a whole text answers; where nothing is to be blocked, it comes along and is told at the end."""

    def __init__(self, check: Check, counts: dict[str, int]) -> None:
        self._check, self._counts = check, counts
        self._held: list[str] = []
        self._size = 0

    def feed(self, text: str, *, last: bool) -> str:
        guard = self._check.guard
        self._held.append(text)
        self._size += len(text)
        too_long = self._size > HOLD_CHARACTERS_MAX  # nothing says then that it is right
        if too_long:
            self._held = []
        if last or (too_long and guard.mode == "block"):
            whole = "".join(self._held)
            if too_long or self._check.fires(whole):
                self._counts[guard.name] = self._counts.get(guard.name, 0) + 1
                if guard.mode == "block":
                    raise blocked(guard)
            return whole if guard.mode == "block" else text
        return "" if guard.mode == "block" else text
