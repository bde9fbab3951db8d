"""``guard``: the check of a guard somewhere between the steps."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from forwardpass.core.pipeline import Field, Guard, GuardMode, Pii
from forwardpass.steps.guard import checks, stage
from forwardpass.steps.kind import Kind
from forwardpass.steps.options import Trouble, choice, field_name, file_name, option, several, text, whole
from forwardpass.steps.protocol import Context, FieldMap, Prepared

LENGTH_MAX = 2**40


@dataclass(frozen=True, kw_only=True)
class GuardStep:
    """Looks for something in texts, and blocks the row, masks what it found, or tells. Exactly one check is given.

    Takes text, texts, categories, arrays of text and JSON; every text in these, the names in JSON objects too. In mode
    mask what was found is replaced in the field itself: `[email]` for personal data, else `[name]`. A row that is
    blocked fails with `guard_blocked`. What fired is told in a note named guard, never with the text; in mode shadow
    only receipt and metrics have it. Guards that belong around a whole pipeline are `[[guards]]`.
    """

    name: str = option(text(), "letters, digits, '.', '_' and '-': what verdicts and refusals call it")
    mode: GuardMode = option(choice(*get_args(GuardMode)), "what is done with what is found", "block")
    fields: tuple[str, ...] = option(
        several(field_name(), distinct=True), "which fields; unset, every one with text", ()
    )
    deny: tuple[str, ...] = option(several(text()), "regular expressions (RE2) that must match nothing", ())
    allow: tuple[str, ...] = option(several(text()), "of which one must match the whole text", ())
    words: tuple[str, ...] = option(several(text()), "words and phrases, however they are written", ())
    words_file: str = option(file_name(), "the same, one a line of a UTF-8 file", "")
    words_are: Literal["denied", "allowed"] = option(
        choice("denied", "allowed"), "allowed: every other word is found", "denied"
    )
    length_max: int | None = option(whole(0, LENGTH_MAX), "characters of a text", None)
    length_min: int | None = option(whole(0, LENGTH_MAX), "characters of a text", None)
    pii: tuple[Pii, ...] = option(several(choice(*get_args(Pii)), distinct=True), "personal data and secrets", ())
    schema: str = option(file_name(), "JSON schema that JSON, or a text of it, must fit", "")


def _guard(options: GuardStep) -> Guard:
    given: dict[str, Any] = {name: getattr(options, name) for name in GuardStep.__dataclass_fields__}
    return Guard(on="step", **given)


def _troubles(options: GuardStep) -> list[Trouble]:
    return checks.mistakes(_guard(options))


def _fields(options: GuardStep, known: FieldMap) -> list[Field]:
    return stage.guarded(_guard(options), known)


def _load(options: GuardStep, known: FieldMap, context: Context) -> Prepared:
    guard = _guard(options)
    return stage.prepare(guard, stage.guarded(guard, known), context.folder)


GUARD = Kind("guard", GuardStep, _fields, _load, _troubles)
