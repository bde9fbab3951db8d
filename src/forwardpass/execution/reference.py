"""A model loaded so that its answers are those of its graph as written.

An engine's optimiser can be wrong: onnxruntime 1.32 makes a Slice of Gather(Range), which a negative start breaks.
So optimised and plain form are compared at load, where that is cheap, and a model whose answers differ is optimised less.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Failure
from forwardpass.engines.discover import EngineKind
from forwardpass.engines.protocol import ModelFile
from forwardpass.execution.difference import difference
from forwardpass.execution.model import Model
from forwardpass.execution.synthetic import FREE_SIZES, arrays
from forwardpass.steps.protocol import Column

LOAD_COMPARED_MAX_S = 0.6  # the comparison costs two or three more loads
RUN_COMPARED_MAX_S = 0.2
DIFFERENCE_MAX = 0.01  # far over rounding and quantisation, far under a wrong answer
ROWS_COMPARED = 3

Answers = dict[str, Column] | None
"""None: the made-up rows cannot be run."""


def load(kind: EngineKind, file: ModelFile) -> tuple[Model, list[str]]:
    """The model, and what the operator should know of how it was loaded. Raises Misconfigured."""
    started = monotonic_s()
    model = Model(kind.make(), file)
    if monotonic_s() - started > LOAD_COMPARED_MAX_S or kind.plain.items() <= file.options.items():
        return model, []
    plain = Model(kind.make(), _with(file, kind.plain))
    expected, free = _expected(plain)
    if expected is None or _same(expected, _answers(model, free)):
        plain.close()
        return model, []
    model.close()
    safe = Model(kind.make(), _with(file, kind.safe))
    if _same(expected, _answers(safe, free)):
        plain.close()
        return safe, [_warning(file, kind.safe)]
    safe.close()
    return plain, [_warning(file, kind.plain)]


def _expected(plain: Model) -> tuple[Answers, int]:
    """The plain form's answers and the size of free axes they are to; None when they are slow, random or not to be had."""
    for free in FREE_SIZES:
        started = monotonic_s()
        expected = _answers(plain, free)
        if monotonic_s() - started > RUN_COMPARED_MAX_S:
            break
        if expected is not None:
            return (expected, free) if _same(expected, _answers(plain, free)) else (None, free)
    return None, 0


def _answers(model: Model, free: int) -> Answers:
    rows = model.signature.fixed_rows or ROWS_COMPARED
    try:
        outputs, state = model.advance(arrays(model.signature.inputs, rows, free), rows, model.start(rows))
        return outputs | {f"state {name}": column for name, column in state.items()}
    except Failure:
        return None


def _same(expected: dict[str, Column], found: Answers) -> bool:
    if found is None:
        return False
    return (
        max((difference(column, found[name]) for name, column in expected.items()), default=math.inf) <= DIFFERENCE_MAX
    )


def _with(file: ModelFile, options: Mapping[str, Any]) -> ModelFile:
    return replace(file, options={**file.options, **options})


def _warning(file: ModelFile, options: Mapping[str, Any]) -> str:
    what = ", ".join(f"{name} = {value!r}" for name, value in options.items())
    return f"the engine's optimiser changes this model's answers: loaded with {what} instead"
