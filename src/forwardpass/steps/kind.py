"""What the built-in kinds of step share: a kind made of options and two functions, and how a step finds its fields."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Misconfigured, Problem, Refused
from forwardpass.core.pipeline import Field, Options
from forwardpass.steps.options import O, Trouble, did_you_mean, read
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, Watched

FILE = "pipeline.toml"
FLOATS = ("FP16", "FP32", "FP64")


@dataclass(slots=True)
class Kind(Generic[O]):
    """A StepKind. ``options`` is a dataclass of ``options.option`` fields whose docstring is the step's contract.

    ``make`` answers ``fields`` and ``load`` answers ``prepare``, both with options that were read and found right.
    ``fields`` also refuses two fields of one name, and a further field that would replace what the step reads.
    ``together`` finds problems between options that are each right alone; ``ids`` answers ``takes_token_ids``.
    """

    name: str
    options: type[O]
    make: Callable[[O, FieldMap], Sequence[Field]]
    load: Callable[[O, FieldMap, Context], Prepared]
    together: Callable[[O], list[Trouble]] = lambda _: []
    exportable: bool = False
    level: int = 0
    ids: Callable[[O], bool] = lambda _: False

    def check(self, options: Options, folder: Path) -> Sequence[Trouble]:
        return self._read(options, folder)[1]

    def fields(self, options: Options, known: FieldMap) -> Sequence[Field]:
        right, watched = self._right(options, None), Watched(known)
        made = self.make(right, watched)
        named_by = {value: key for key, value in vars(right).items() if isinstance(value, str)}
        names: set[str] = set()
        for field in made:
            key = named_by.get(field.name)
            if field.name in names:
                found = f"{field.name!r} is made twice"
                raise invalid(key or "", found, "a name of its own for each field that is made")
            # The first one is what the step is for, and may well take its input's place.
            if names and key and not self.level and field.name in watched.read and not _alike(field, known[field.name]):
                raise invalid(key, f"{describe(known[field.name])} is read here and would be lost", "another name")
            names.add(field.name)
        return made

    def prepare(self, options: Options, known: FieldMap, context: Context) -> Prepared:
        return self.load(self._right(options, context.folder), known, context)

    def takes_token_ids(self, options: Options) -> bool:
        return self.ids(self._right(options, None))

    def _read(self, options: Options, folder: Path | None) -> tuple[O | None, list[Trouble]]:
        values, troubles = read(self.options, options, folder)
        return (values, troubles) if values is None else (values, self.together(values))

    def _right(self, options: Options, folder: Path | None) -> O:
        values, troubles = self._read(options, folder)
        if values is None or troubles:
            raise Misconfigured(Code.DEFINITION_INVALID, tuple(Problem(FILE, *trouble) for trouble in troubles))
        return values


def _alike(made: Field, known: Field) -> bool:
    """Whether one can stand in the other's place."""
    return (made.kind, made.datatype, len(made.shape)) == (known.kind, known.datatype, len(known.shape))


def invalid(key: str, found: str, allowed: str, *, file: str = FILE) -> Misconfigured:
    """One problem in the definition, to be raised."""
    return Misconfigured(Code.DEFINITION_INVALID, (Problem(file, key, found, allowed),))


@dataclass(frozen=True, slots=True)
class Fit:
    """Which fields a step can take, in words and as a test."""

    wanted: str
    test: Callable[[Field], bool]


def is_float(field: Field) -> bool:
    return field.kind == "tensor" and field.datatype in FLOATS


def is_image(field: Field) -> bool:
    return field.kind == "ragged" and field.datatype == "UINT8" and len(field.shape) == 3


IMAGE = Fit("a decoded image (ragged UINT8 [height, width, channels])", is_image)
TEXT = Fit("a text", lambda field: field.datatype == "BYTES" and field.kind in ("text", "category") and not field.shape)
SCORES = Fit("a floating tensor with one axis or more per row", lambda field: is_float(field) and bool(field.shape))
NUMBER = Fit("one number per row", lambda field: field.datatype in FLOATS and not field.shape)
CATEGORY = Fit(
    "a category",
    lambda field: field.kind in ("text", "category", "tensor") and not field.shape and field.datatype == "BYTES",
)


def pick(
    known: FieldMap, name: str | None, fit: Fit, key: str = "input", *, besides: Sequence[str | None] = ()
) -> Field:
    """The field of this name, or without one the latest that fits and that no other option names (``besides``).

    Raises Misconfigured naming the fields there are.
    """
    there = "fields here: " + (", ".join(map(describe, known.values())) or "none")
    if name is None:
        for field in reversed(list(known.values())):
            if fit.test(field) and field.name not in besides:
                return known[field.name]
        raise invalid(key, f"no field is {fit.wanted}", there)
    if name not in known:
        raise invalid(key, f"no field is named {name!r}", there + did_you_mean(name, known))
    if not fit.test(known[name]):
        raise invalid(key, f"{describe(known[name])} is not {fit.wanted}", there)
    return known[name]


def describe(field: Field) -> str:
    what = field.kind if field.kind != "tensor" else field.datatype
    return f"{field.name} ({what}{list(field.shape) if field.shape else ''})"


def missing(name: str) -> Refused:
    return Refused(Code.MISSING_FIELD, f"{name}: a value is needed here and none was given", field=name)


def library_missing(step: str, library: str, extra: str, error: Exception) -> Misconfigured:
    """What a step raises that cannot import its library."""
    advice = f"the step {step} needs the {library} library: pip install 'forwardpass[{extra}]'"
    return Misconfigured(Code.RUNTIME_MISSING, advice, detail=str(error))


_OF_CALLER = {
    Code.NON_FINITE_OUTPUT: Code.OUT_OF_RANGE,
    Code.OUTPUT_OUT_OF_RANGE: Code.OUT_OF_RANGE,
    Code.BAD_OUTPUT_SHAPE: Code.SHAPE_MISMATCH,
    Code.OUTPUT_TOO_LARGE: Code.INPUT_TOO_LARGE,
}
"""What a wrong value is called when it is the caller's own."""


def unfit(field: Field, code: Code, why: str) -> Refused | Failed:
    """Why a row's value of this field cannot be used: the caller's fault if it was sent, ours if it was made here.

    ``code`` says what is wrong with what was made (NON_FINITE_OUTPUT, OUTPUT_OUT_OF_RANGE, BAD_OUTPUT_SHAPE or
    OUTPUT_TOO_LARGE); ``why`` goes on from the field's name: "has 3 elements where boxes has 2".
    """
    text = f"{field.name}: {why}"
    if field.given:
        return Refused(_OF_CALLER[code], text, field=field.name)
    return Failed(code, text, field=field.name)


def not_finite(field: Field) -> Refused | Failed:
    """NaN or an infinity where the step would make a definite answer of it, or JSON, which has no such numbers."""
    return unfit(field, Code.NON_FINITE_OUTPUT, "holds what is not a finite number")


def fail_nan(batch: Batch, field: Field, values: NDArray[Any]) -> None:
    """Fail the rows with NaN in them, where the step would turn them into a definite answer."""
    bad = np.isnan(values).any(axis=tuple(range(1, values.ndim)))
    for row in np.flatnonzero(bad):
        batch.fail(int(row), not_finite(field))
