"""What a worker runs: a version's steps, prepared, in three parts around its models.

``build`` reads the fields from the inputs through every step, so that a step that cannot work is found at load.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.core.pipeline import Field, Input, Padding, Pipeline, Signature, Step, Task, Version
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.execution.answers import check, no_rows
from forwardpass.execution.model import Model
from forwardpass.execution.model_step import ModelStep
from forwardpass.execution.task import Walked, task_of
from forwardpass.execution.token_inputs import Readers
from forwardpass.steps.catalogue import kind_of, kinds
from forwardpass.steps.guard.placing import input_guards, output_guards
from forwardpass.steps.kind import FILE
from forwardpass.steps.protocol import Batch, Column, Context, Prepared, StepKind, Watched
from forwardpass.steps.rules.verdicts import prepare as apply_rules
from forwardpass.steps.rules.verdicts import withhold

NOTHING_TO_FOLD = "a step that expands rows before it, such as expand"
FREE_ROWS = "a model whose first axis is free, or 1"


@dataclass(frozen=True, slots=True)
class Stage:
    """A prepared step and where it stands: ``depth`` is how many expansions are open before it."""

    run: Prepared
    depth: int
    folds: bool  # it closes the innermost of them


@dataclass(slots=True)
class Plan:
    """Steps before the first model, from the first to the last, and after it. ``close`` it once.

    The three calls take rows that fail by themselves out of the batch; they raise a Failure that concerns all rows.
    No step sees a batch without rows. Each part may run in another thread, one batch at a time in each: of
    ``preprocess`` that is seen to here, of the other two by whoever calls them.
    """

    definition: Pipeline
    signature: Signature
    platform: str  # as V2 metadata names it
    warnings: list[str]
    settings: list[dict[str, Any]]  # each model's engine and options in effect
    before: Sequence[Stage]
    models: Sequence[Stage]
    after: Sequence[Stage]
    loaded: Sequence[ModelStep]
    guards: Sequence[Stage] = ()  # on inputs, ahead of ``before``
    guards_behind: Sequence[Stage] = ()  # on outputs, behind ``after``
    independent: bool = False  # proved by the self-test: a row's answer is the same with others and without
    preparing: threading.Lock = field(default_factory=threading.Lock)

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
        with self.preparing:
            _run(self.guards, batch)
            _run(self.before, batch)

    def execute(self, batch: Batch) -> None:
        _run(self.models, batch)

    def postprocess(self, batch: Batch) -> None:
        """The rest with the rules, then the checks. Afterwards every output is a column of the batch, also when no row is left."""
        _run(self.after, batch)
        _run(self.guards_behind, batch)
        if batch.rows:
            check(self.signature.outputs, self.definition.checks, batch)
            batch.settle()
            withhold(batch)
        if not batch.rows:
            batch.columns.update({output.name: no_rows(output) for output in self.signature.outputs})

    def unguarded(self) -> "Plan":
        """The same without guards, for rows that are made up: whether a row is let in says nothing of the others."""
        return replace(self, guards=(), guards_behind=())

    def outputs(self, batch: Batch) -> dict[str, Column]:
        """What came of the rows that are alive, by output name, after ``postprocess``."""
        return {output.name: batch.columns[output.name] for output in self.signature.outputs}

    def close(self) -> None:
        for step in self.loaded:
            step.close()


def build(
    version: Version,
    *,
    threads: int,
    settings: Sequence[Mapping[str, Any]] | None = None,
    own: Mapping[str, StepKind] | None = None,
) -> Plan:
    """Load the version's models and prepare its steps. Raises Misconfigured, with the step's place in the definition.

    ``settings`` of an earlier plan of the same version make loading quicker: nothing is compared again. ``own`` holds
    kinds of step, by their ``use``, that this process has besides the built-in ones.
    """
    definition = version.definition
    context = Context(Path(version.folder), threads, version.trusted)
    models: dict[int, ModelStep] = {}
    try:
        shared: dict[str, Model] = {}
        steps = [_kind(index, step, context, shared, own or {}) for index, step in enumerate(definition.steps)]
        models.update({index: kind for index, kind in enumerate(steps) if isinstance(kind, ModelStep)})
        for model, found in zip(models.values(), settings or (), strict=settings is not None):
            model.known = found
        inputs = definition.inputs or _graph_inputs(definition, models)
        walked = _walk(definition, steps, inputs, context)
        return _plan(definition, models, inputs, walked)
    except BaseException:
        for model in models.values():
            model.close()
        raise


def _kind(index: int, step: Step, context: Context, shared: dict[str, Model], own: Mapping[str, StepKind]) -> StepKind:
    if step.use == ModelStep.name:
        return ModelStep(context, shared)
    with _at(index):
        return kind_of(step.use, kinds(own))


def _graph_inputs(definition: Pipeline, models: Mapping[int, ModelStep]) -> tuple[Input, ...]:
    """The first model's own inputs, where the definition names none."""
    for index, model in models.items():
        with _at(index):
            fields = model.model(definition.steps[index].options).signature.inputs
        return tuple(Input(each.name, "tensor", datatype=each.datatype, shape=each.shape) for each in fields)
    text = "a pipeline without a model says what it takes"
    raise Misconfigured(Code.DEFINITION_INVALID, (Problem(FILE, "inputs", "none", text),))


@dataclass(frozen=True, slots=True)
class _Walked:
    stages: Sequence[Stage]
    outputs: tuple[Field, ...]
    token_inputs: frozenset[str]
    task: Task | None
    guards: Sequence[Prepared]
    guards_behind: Sequence[Prepared]


def _walk(definition: Pipeline, steps: Sequence[StepKind], inputs: tuple[Input, ...], context: Context) -> _Walked:
    """Every step prepared with the fields known at its place, and the pipeline's outputs."""
    columns = Signature(inputs, ()).columns
    known = {column.name: column for column in columns}
    readers = Readers(columns)
    guarded = Watched(known)
    guards = input_guards(definition, guarded, context.folder)
    readers.read(guarded, takes_ids=False)
    outside: list[dict[str, Field]] = []  # the fields of the rows whose elements are worked on
    stages: list[Stage] = []
    last: Sequence[Field] = ()
    makers: dict[str, Step] = {}
    for index, (step, kind) in enumerate(zip(definition.steps, steps, strict=True)):
        with _at(index):
            if kind.level < 0 and not outside:
                raise Misconfigured(Code.DEFINITION_INVALID, (Problem(FILE, "use", step.use, NOTHING_TO_FOLD),))
            watched = Watched(known)
            made = kind.fields(step.options, watched)
            run = kind.prepare(step.options, watched, replace(context, place=f"steps[{index}]"))
            readers.read(watched, takes_ids=kind.takes_token_ids(step.options))
        stages.append(Stage(run, len(outside), kind.level < 0))
        if kind.level > 0:
            outside.append(known)
            known = {}
        elif kind.level < 0:
            known = outside.pop()
        for each in made:
            known.pop(each.name, None)  # written again, it counts as the latest
            known[each.name] = each
            makers[each.name] = step
        last = made or last
    if outside:
        problem = Problem(FILE, "steps", "the rows that a step expanded are not folded again", "a step fold behind it")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    outputs = _outputs(definition, known, last)
    if definition.rules:
        watched = Watched(known)
        stages.append(Stage(apply_rules(definition, watched, outputs), 0, False))
        readers.read(watched, takes_ids=False)
    task = task_of(Walked(definition, inputs, outputs, makers, context.folder))
    behind = output_guards(definition, {output.name: output for output in outputs}, context.folder)
    return _Walked(stages, outputs, readers.token_inputs(outputs), task, guards, behind)


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
    walked: _Walked,
) -> Plan:
    stages = walked.stages
    first, behind = (min(models), max(models) + 1) if models else (len(stages), len(stages))
    outside = [index for index in models if not stages[index].depth]  # elements are never a caller's rows
    batched = all(models[index].loaded.signature.batched for index in outside)
    fixed = _fixed_rows(models, outside)
    return Plan(
        definition=definition,
        signature=Signature(inputs, walked.outputs, batched, fixed, walked.token_inputs, walked.task),
        platform=next((model.platform for model in models.values()), "forwardpass"),
        warnings=[f"steps[{index}]: {text}" for index, model in models.items() for text in model.warnings],
        settings=[model.settings for model in models.values()],
        before=stages[:first],
        models=stages[first:behind],
        after=stages[behind:],
        loaded=tuple(models.values()),
        guards=[Stage(run, 0, False) for run in walked.guards],
        guards_behind=[Stage(run, 0, False) for run in walked.guards_behind],
    )


def _fixed_rows(models: Mapping[int, ModelStep], outside: Sequence[int]) -> int | None:
    """The rows that a request must have, if a model says. Raises Misconfigured for one that could never have its own."""
    asked: int | None = None
    for index, model in models.items():
        fixed = model.loaded.signature.fixed_rows
        if fixed is None or (fixed == 1 and index not in outside):
            continue
        found = f"the model's first axis is fixed at {fixed}"
        if index not in outside:
            text = f"{found}, and here it gets as many rows as there are elements"
            raise Misconfigured(Code.DEFINITION_INVALID, (Problem(FILE, f"steps[{index}].file", text, FREE_ROWS),))
        if fixed > 1 and asked not in (None, 1, fixed):
            text = f"{found}, and another's at {asked}"
            raise Misconfigured(Code.DEFINITION_INVALID, (Problem(FILE, f"steps[{index}].file", text, FREE_ROWS),))
        asked = max(asked or 1, fixed)
    return asked


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


def _run(stages: Sequence[Stage], batch: Batch) -> None:
    """Each stage that there are rows for; a fold also when no row has an element."""
    for stage in stages:
        if stage.depth == len(batch.outer) and (batch.rows or (stage.folds and batch.outer)):
            stage.run(batch)
            batch.settle()
