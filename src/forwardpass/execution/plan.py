"""What a worker runs: a version's steps, prepared, in three parts around its models.

``build`` reads the fields from the inputs through every step, so that a step that cannot work is found at load.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forwardpass.core.errors import Code, Failed, Misconfigured, Problem, show
from forwardpass.core.pipeline import Checks, Field, Input, Padding, Pipeline, Signature, Step, Version
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.execution.model import fits
from forwardpass.execution.model_step import ModelStep
from forwardpass.steps.catalogue import kind_of, kinds
from forwardpass.steps.kind import FILE, FLOATS
from forwardpass.steps.protocol import Batch, Column, Context, Prepared, StepKind


@dataclass(slots=True)
class Plan:
    """Steps before the first model, from the first to the last, and after it. ``close`` it once.

    The three calls take rows that fail by themselves out of the batch; they raise a Failure that concerns all rows.
    No step sees a batch without rows. Each part may run in another thread, one batch at a time in each.
    """

    definition: Pipeline
    signature: Signature
    platform: str  # as V2 metadata names it
    warnings: list[str]
    settings: list[dict[str, Any]]  # each model's engine and options in effect
    before: Sequence[Prepared]
    models: Sequence[Prepared]
    after: Sequence[Prepared]
    loaded: Sequence[ModelStep]

    @property
    def batched(self) -> bool:
        return self.signature.batched

    @property
    def fixed_rows(self) -> int | None:
        return self.signature.fixed_rows

    @property
    def padding(self) -> Padding | None:
        return self.definition.batch.padding

    def preprocess(self, batch: Batch) -> None:
        _run(self.before, batch)

    def execute(self, batch: Batch) -> None:
        _run(self.models, batch)

    def postprocess(self, batch: Batch) -> None:
        """The rest, then the checks. Afterwards every output is a column of the batch, also when no row is left."""
        _run(self.after, batch)
        if batch.rows:
            _check(self.signature.outputs, self.definition.checks, batch)
            batch.settle()
        if not batch.rows:
            batch.columns.update({output.name: _no_rows(output) for output in self.signature.outputs})

    def outputs(self, batch: Batch) -> dict[str, Column]:
        """What came of the rows that are alive, by output name, after ``postprocess``."""
        return {output.name: batch.columns[output.name] for output in self.signature.outputs}

    def close(self) -> None:
        for step in self.loaded:
            step.close()


def build(version: Version, *, threads: int, settings: Sequence[Mapping[str, Any]] | None = None) -> Plan:
    """Load the version's models and prepare its steps. Raises Misconfigured, with the step's place in the definition.

    ``settings`` of an earlier plan of the same version make loading quicker: nothing is compared again.
    """
    definition = version.definition
    context = Context(Path(version.folder), threads, version.trusted)
    models: dict[int, ModelStep] = {}
    try:
        steps = [_kind(index, step, context) for index, step in enumerate(definition.steps)]
        models.update({index: kind for index, kind in enumerate(steps) if isinstance(kind, ModelStep)})
        for model, found in zip(models.values(), settings or (), strict=settings is not None):
            model.known = found
        inputs = definition.inputs or _graph_inputs(definition, models)
        prepared, outputs = _walk(definition, steps, inputs, context)
        return _plan(definition, models, inputs, outputs, prepared)
    except BaseException:
        for model in models.values():
            model.close()
        raise


def _kind(index: int, step: Step, context: Context) -> StepKind:
    if step.use == ModelStep.name:
        return ModelStep(context)
    with _at(index):
        return kind_of(step.use, kinds())


def _graph_inputs(definition: Pipeline, models: Mapping[int, ModelStep]) -> tuple[Input, ...]:
    """The first model's own inputs, where the definition names none."""
    for index, model in models.items():
        with _at(index):
            fields = model.model(definition.steps[index].options).signature.inputs
        return tuple(Input(each.name, "tensor", datatype=each.datatype, shape=each.shape) for each in fields)
    text = "a pipeline without a model says what it takes"
    raise Misconfigured(Code.DEFINITION_INVALID, (Problem(FILE, "inputs", "none", text),))


def _walk(
    definition: Pipeline, steps: Sequence[StepKind], inputs: tuple[Input, ...], context: Context
) -> tuple[list[Prepared], tuple[Field, ...]]:
    """Every step prepared with the fields known at its place, and the pipeline's outputs."""
    known = {column.name: column for column in Signature(inputs, ()).columns}
    prepared: list[Prepared] = []
    last: Sequence[Field] = ()
    for index, (step, kind) in enumerate(zip(definition.steps, steps, strict=True)):
        with _at(index):
            made = kind.fields(step.options, known)
            prepared.append(kind.prepare(step.options, known, context))
        for each in made:
            known.pop(each.name, None)  # written again, it counts as the latest
            known[each.name] = each
        last = made or last
    return prepared, _outputs(definition, known, last)


def _outputs(definition: Pipeline, known: Mapping[str, Field], last: Sequence[Field]) -> tuple[Field, ...]:
    there = f"fields at the end: {', '.join(known)}"
    missing = [name for name in definition.outputs if name not in known]
    problems = [Problem(FILE, "outputs", f"no field is named {show(name)}", there) for name in missing]
    outputs = tuple(known[name] for name in definition.outputs if name in known) or tuple(last)
    numeric = {output.name for output in outputs if output.datatype in NUMPY_NAMES}
    problems += [
        Problem(
            FILE,
            f"checks.range.{name}",
            "no output that is a number",
            f"such outputs: {', '.join(sorted(numeric)) or 'none'}",
        )
        for name in definition.checks.range
        if name not in numeric
    ]
    if problems:
        raise Misconfigured(Code.DEFINITION_INVALID, tuple(problems))
    return outputs


def _plan(
    definition: Pipeline,
    models: Mapping[int, ModelStep],
    inputs: tuple[Input, ...],
    outputs: tuple[Field, ...],
    prepared: Sequence[Prepared],
) -> Plan:
    first, behind = (min(models), max(models) + 1) if models else (len(prepared), len(prepared))
    loaded = [model.model(definition.steps[index].options).signature for index, model in models.items()]
    batched = all(each.batched for each in loaded)
    fixed = [each.fixed_rows for each in loaded if each.fixed_rows is not None]
    return Plan(
        definition=definition,
        signature=Signature(inputs, outputs, batched, max(fixed, default=None)),
        platform=next((model.platform for model in models.values()), "forwardpass"),
        warnings=[f"steps[{index}]: {text}" for index, model in models.items() for text in model.warnings],
        settings=[model.settings for model in models.values()],
        before=prepared[:first],
        models=prepared[first:behind],
        after=prepared[behind:],
        loaded=tuple(models.values()),
    )


@contextmanager
def _at(index: int) -> Iterator[None]:
    """What is wrong inside names the step's place in the definition, unless it is in another file."""
    try:
        yield
    except Misconfigured as error:
        place = f"steps[{index}]"
        problems = tuple(
            replace(problem, file=FILE, key=f"{place}.{problem.key}" if problem.key else place)
            if problem.file in ("", FILE)
            else problem
            for problem in error.problems
        )
        raise Misconfigured(error.code, problems, detail=error.detail) from error


def _run(steps: Sequence[Prepared], batch: Batch) -> None:
    for step in steps:
        if not batch.rows:
            return
        step(batch)
        batch.settle()


def _check(outputs: Sequence[Field], checks: Checks, batch: Batch) -> None:
    """Shape and datatype as declared, finite, in range. Raises Failed where it is not one row's fault."""
    for output in outputs:
        column = batch.columns[output.name]
        expected = NUMPY_NAMES.get(output.datatype, "object")
        if len(column) != batch.rows or column.dtype != expected or not fits(column.shape[1:], output.shape):
            detail = f"{column.dtype}{list(column.shape)} for {output} and {batch.rows} rows"
            text = f"{output.name}: the pipeline's answer is not of the declared shape"
            raise Failed(Code.BAD_OUTPUT_SHAPE, text, field=output.name, detail=detail)
        if checks.finite and output.datatype in FLOATS and not (finite := np.isfinite(column)).all():
            text = f"{output.name}: the answer holds a value that is not a finite number"
            _fail(batch, finite, Failed(Code.NON_FINITE_OUTPUT, text, field=output.name))
        if output.name in checks.range:
            low, high = checks.range[output.name]
            text = f"{output.name}: the answer is outside {low:g} to {high:g}"
            _fail(batch, (column >= low) & (column <= high), Failed(Code.OUTPUT_OUT_OF_RANGE, text, field=output.name))


def _fail(batch: Batch, right: Column, failure: Failed) -> None:
    """Fail every row in which an element is not right."""
    for row in np.flatnonzero(~right.reshape(batch.rows, -1).all(axis=1)):
        batch.fail(int(row), failure)


def _no_rows(field: Field) -> Column:
    return np.empty((0, *(max(size, 0) for size in field.shape)), dtype=NUMPY_NAMES.get(field.datatype, "object"))
