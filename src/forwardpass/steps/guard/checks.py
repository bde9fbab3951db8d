"""What a guard looks for in one text, made ready of its definition: pure, the same in a worker, a step and a stream."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forwardpass.core.errors import Code, Misconfigured, Problem, Refused
from forwardpass.core.pipeline import Guard
from forwardpass.steps.files import read_lines
from forwardpass.steps.guard.patterns import pattern, quick
from forwardpass.steps.guard.schema import parsed, schema_check
from forwardpass.steps.guard.spans import Detector, TooMany, found
from forwardpass.steps.kind import FILE
from forwardpass.steps.options import Wrong

if TYPE_CHECKING:
    from forwardpass.steps.guard.words import Entry


@dataclass(frozen=True, slots=True)
class Seen:
    """``count`` is how often the guard's check fired in a value; ``text`` what is left of it where that is masked."""

    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Check:
    """``places``: detectors and what stands in for what each finds. ``whole``: what is wrong with a text as a whole.

    ``value`` is the same of a JSON value. A check has one of the three.
    """

    guard: Guard
    places: Sequence[tuple[Detector, str]] = ()
    whole: Callable[[str], bool] | None = None
    value: Callable[[Any], bool] | None = None

    def look(self, text: str) -> Seen:
        """Raises TooMany where so much is found that it cannot be masked; else that counts as found once."""
        if self.whole is not None:
            return Seen(int(self.whole(text)), text)
        count = 0
        for each, mask in self.places:
            pieces: list[str] = []
            end = 0
            try:
                for span in found(each, text):
                    pieces += (text[end : span.start], mask)
                    end = span.end
                    count += 1
            except TooMany:
                if self.guard.mode == "mask":
                    raise
                count += 1
            if pieces and self.guard.mode == "mask":
                text = "".join([*pieces, text[end:]])
        return Seen(count, text)

    def fires(self, text: str) -> bool:
        """Whether it finds anything in a text, which of a check of JSON values holds one."""
        if self.value is None:
            return self.look(text).count > 0
        try:
            return self.value(parsed(text))
        except ValueError:
            return True


def blocked(guard: Guard, field: str = "") -> Refused:
    """How a row ends that a guard blocks. It never says what the guard saw."""
    return Refused(Code.GUARD_BLOCKED, f'the guard "{guard.name}" blocks this', field=field)


def ready(guard: Guard, folder: Path) -> Check:
    """The check of a guard without a judge, whose files are in ``folder``. Raises Misconfigured."""
    try:
        return _ready(guard, folder)
    except _At as at:
        problem = Problem(FILE, at.key, at.wrong.found, at.wrong.allowed)
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,)) from None


class _At(Exception):
    def __init__(self, key: str, wrong: Wrong) -> None:
        super().__init__(key)
        self.key, self.wrong = key, wrong


def _ready(guard: Guard, folder: Path) -> Check:
    # Tables of Unicode and of personal data are for those who have such guards.
    from forwardpass.steps.guard.pii import ORDER, detector
    from forwardpass.steps.guard.readings import Read
    from forwardpass.steps.guard.words import words

    mask = f"[{guard.name}]"
    if guard.deny:
        patterns = [_at(f"deny[{place}]", pattern, text) for place, text in enumerate(guard.deny)]
        return Check(guard, [(Read(each, written=True), mask) for each in patterns])
    if guard.pii:
        return Check(guard, [(Read(detector(kind)), f"[{kind}]") for kind in ORDER if kind in guard.pii])
    if guard.words or guard.words_file:
        allowed = guard.words_are == "allowed"
        return Check(guard, [(Read(words(_entries(guard, folder), allowed=allowed), parts=not allowed), mask)])
    if guard.allow:
        expressions = [_at(f"allow[{place}]", quick, text) for place, text in enumerate(guard.allow)]
        return Check(guard, whole=lambda text: not _matches_any(expressions, text))
    if guard.schema:
        return Check(guard, value=_at("schema", lambda schema: schema_check(schema, folder), guard.schema))
    low, high = guard.length_min or 0, guard.length_max
    return Check(guard, whole=lambda text: len(text) < low or (high is not None and len(text) > high))


def _entries(guard: Guard, folder: Path) -> "list[Entry]":
    """What is listed, in the definition and in its file. Raises _At with the key and the line in the file."""
    from forwardpass.steps.guard.words import entry

    allowed = guard.words_are == "allowed"
    made = [
        _at(f"words[{place}]", lambda each: entry(each, allowed=allowed), each)
        for place, each in enumerate(guard.words)
    ]
    if not guard.words_file:
        return made
    try:
        lines = read_lines(folder, guard.words_file, "one word")
    except Misconfigured as error:
        raise _At(
            "words_file", Wrong(f"{guard.words_file}: {error.problems[0].found}", error.problems[0].allowed)
        ) from None
    for number, line in enumerate(lines, start=1):
        try:
            made.append(entry(line, allowed=allowed))
        except Wrong as wrong:
            raise _At("words_file", Wrong(f"{guard.words_file}:{number}: {wrong.found}", wrong.allowed)) from None
    return made


def _at(key: str, make: Callable[[Any], Any], given: Any) -> Any:
    try:
        return make(given)
    except Wrong as wrong:
        raise _At(key, wrong) from None


def _matches_any(expressions: Sequence[Any], text: str) -> bool:
    data = text.encode()
    return any(expression.fullmatch(data) is not None for expression in expressions)


def is_of_length(guard: Guard) -> bool:
    return guard.length_min is not None or guard.length_max is not None


CHECKS = ("deny", "allow", "words", "words_file", "length_max", "length_min", "pii", "schema", "judge")
_TOGETHER = ({"words", "words_file"}, {"length_max", "length_min"})
_NEVER_MASKS = frozenset({"allow", "length_max", "length_min", "schema", "judge"})


def mistakes(guard: Guard) -> list[tuple[str, str, str]]:
    """What is wrong with a guard by itself, as (key, found, allowed); files and libraries stay closed."""
    given = [name for name in CHECKS if getattr(guard, name) not in ((), "", None)]
    wrong: list[tuple[str, str, str]] = []
    if not given:
        wrong.append(("", "it checks nothing", f"one of {', '.join(CHECKS)}"))
    elif len(given) > 1 and set(given) not in _TOGETHER:
        wrong.append((given[1], f"{given[0]} is given too", "one check in each guard"))
    if guard.mode == "mask" and _NEVER_MASKS.intersection(given):
        wrong.append(("mode", f"mask, of what {given[0]} finds no place for", "block, flag or shadow"))
    if guard.words_are != "denied" and not {"words", "words_file"}.intersection(given):
        wrong.append(("words_are", "has no effect without words", "words or words_file"))
    if (guard.length_min or 0) > (guard.length_max if guard.length_max is not None else guard.length_min or 0):
        wrong.append(("length_min", f"{guard.length_min} is more than length_max", f"at most {guard.length_max}"))
    if bool(guard.judge) != bool(guard.when):
        wrong.append(("when", "judge and when stand together", "both or neither"))
    if guard.on_failure != "block" and not guard.judge:
        wrong.append(("on_failure", "has no effect without a judge", "judge"))
    return wrong
