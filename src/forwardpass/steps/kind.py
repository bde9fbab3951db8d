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
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

FILE = "pipeline.toml"
FLOATS = ("FP16", "FP32", "FP64")


@dataclass(slots=True)
class Kind(Generic[O]):
    """A StepKind. ``options`` is a dataclass of ``options.option`` fields whose docstring is the step's contract.

    ``make`` answers ``fields`` and ``load`` answers ``prepare``, both with options that were read and found right.
    ``together`` finds problems between options that are each right alone.
    """

    name: str
    options: type[O]
    make: Callable[[O, FieldMap], Sequence[Field]]
    load: Callable[[O, FieldMap, Context], Prepared]
    together: Callable[[O], list[Trouble]] = lambda _: []
    exportable: bool = False
    level: int = 0

    def check(self, options: Options, folder: Path) -> Sequence[Trouble]:
        return self._read(options, folder)[1]

    def fields(self, options: Options, known: FieldMap) -> Sequence[Field]:
        return self.make(self._right(options, None), known)

    def prepare(self, options: Options, known: FieldMap, context: Context) -> Prepared:
        return self.load(self._right(options, context.folder), known, context)

    def _read(self, options: Options, folder: Path | None) -> tuple[O | None, list[Trouble]]:
        values, troubles = read(self.options, options, folder)
        return (values, troubles) if values is None else (values, self.together(values))

    def _right(self, options: Options, folder: Path | None) -> O:
        values, troubles = self._read(options, folder)
        if values is None or troubles:
            raise Misconfigured(Code.DEFINITION_INVALID, tuple(Problem(FILE, *trouble) for trouble in troubles))
        return values


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
SOUND = Fit("decoded sound (ragged FP32 [samples])", lambda field: field.kind == "ragged" and field.shape == (-1,))
TEXT = Fit("a text", lambda field: field.datatype == "BYTES" and field.kind in ("text", "category") and not field.shape)
SCORES = Fit("a floating tensor with one axis or more per row", lambda field: is_float(field) and bool(field.shape))
NUMBER = Fit("one number per row", lambda field: field.datatype in FLOATS and not field.shape)
CATEGORY = Fit(
    "a category",
    lambda field: field.kind in ("text", "category", "tensor") and not field.shape and field.datatype == "BYTES",
)


def pick(known: FieldMap, name: str | None, fit: Fit, key: str = "input") -> Field:
    """The field of this name, or without one the latest that fits. Raises Misconfigured naming the fields there are."""
    there = "fields here: " + (", ".join(map(describe, known.values())) or "none")
    if name is None:
        for field in reversed(list(known.values())):
            if fit.test(field):
                return field
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


def fail_nan(batch: Batch, name: str, values: NDArray[Any]) -> None:
    """Fail the rows with NaN in them, where the step would turn them into a definite answer."""
    bad = np.isnan(values).any(axis=tuple(range(1, values.ndim)))
    for row in np.flatnonzero(bad):
        batch.fail(int(row), Failed(Code.NON_FINITE_OUTPUT, f"{name}: the model's output is not a number", field=name))
