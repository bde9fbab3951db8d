"""Which engine runs a model whose step leaves that open: found out at a version's first load, by trying.

Each candidate is asked what the reference was asked when rows of golden examples, or made-up ones, went through the
pipeline, alone and in one batch. Its answers must be as near as the step's tolerance says. Then it runs by turns with
the quickest so far, and takes its place only where it is clearly quicker. At most three are in memory at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.engines.discover import engine_kind
from forwardpass.engines.protocol import Arrays, Engine
from forwardpass.execution.closeness import Closeness, closeness
from forwardpass.execution.duel import Asked, Gain, Listening, answers_of, duel
from forwardpass.execution.model import Model
from forwardpass.execution.model_step import ModelStep
from forwardpass.execution.plan import Plan
from forwardpass.execution.selftest import Alone, SelfTest, rows_alone, run_rows, self_test
from forwardpass.execution.synthetic import Item

AUTO = "auto"
TRIED_MAX_S = 10.0  # after so much no further candidate is begun
LOAD_SHARE_MAX = 0.25  # nor after so much of workers.load_limit_s
DUEL_S = 0.5
ROWS_ALONE = 3
ROWS_TOGETHER = 16
SLOW_ROWS_TOGETHER = 4  # where a row alone takes a quarter of a second
RUNS_AT_LEAST = 9  # of what is asked, when a candidate is tried: its answers, and the fewest turns by turns
GAIN_MIN = 1.05  # what is not clearly quicker changes nothing
FEWER_THREADS_MIN = 0.97  # as quick but for noise: then the core is better left to others
ALONE_MIN = 0.9  # so much slower a lone row may be at most


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine with its options and threads; ``engine`` has loaded the model with them."""

    name: str
    options: Mapping[str, Any]
    threads: int
    engine: Engine

    def __str__(self) -> str:
        precision = f" {self.options['precision']}" if "precision" in self.options else ""
        return f"{self.name}{precision}, {self.threads} thread{'s' * (self.threads > 1)}"


@dataclass(slots=True)
class Choice:
    """One model whose engine is open, the steps that run it, and what was found."""

    model: Model
    steps: list[ModelStep]
    asked: Asked
    reference: Candidate
    chosen: Candidate
    lines: list[str] = field(default_factory=list)

    @property
    def tolerance(self) -> Mapping[str, float]:
        return self.steps[0].tolerance or {}

    def take(self, candidate: Candidate) -> None:
        """From now on the model is run by this one."""
        self.model.exchange(candidate.engine)
        if self.chosen is not self.reference:
            self.chosen.engine.close()
        self.chosen = candidate

    def settle(self) -> None:
        """It stays so."""
        if self.chosen is not self.reference:
            self.reference.engine.close()
        for step in self.steps:
            step.settings.clear()
            step.settings.update(
                engine=self.chosen.name,
                threads=self.chosen.threads,
                **self.chosen.options,
                auto=[f"chosen: {self.chosen}", *self.lines],
            )


def tried(plan: Plan, rows_max: int, *, careful: bool = False, clock: Clock = monotonic_s) -> tuple[Alone, SelfTest]:
    """Choose the engines that are open; the rows that were tried, and whether rows are independent, with those.

    Rows that are independent with the reference are so with what is chosen, or the reference stays. ``careful``: it
    stays at any rate, as a worker has ended when others were tried.
    """
    alone = rows_alone(plan)
    tested = self_test(plan, alone, rows_max)
    choices = [_choice(plan, steps, alone, rows_max) for steps in _open(plan)]
    limit_s = min(TRIED_MAX_S, LOAD_SHARE_MAX * plan.definition.workers.load_limit_s)
    for choice in choices:
        if careful:
            choice.lines.append("others are not tried: a worker ended when they were")
        else:
            _try_all(choice, clock, limit_s / len(choices))
    changed = [choice for choice in choices if choice.chosen is not choice.reference]
    if changed:
        again = rows_alone(plan)
        retested = self_test(plan, again, rows_max)
        if retested.independent or not tested.independent:
            alone, tested = again, retested
        else:
            for choice in changed:
                choice.lines.append(f"{choice.chosen} is not taken: {retested.reason}")
                choice.take(choice.reference)
    for choice in choices:
        choice.settle()
    return alone, tested


def _open(plan: Plan) -> Iterator[list[ModelStep]]:
    """The steps whose engine is open, those that share a model together."""
    steps = [step for step in plan.loaded if step.tolerance is not None and not step.settings["auto"]]
    for model in dict.fromkeys(id(step.loaded) for step in steps):
        yield [step for step in steps if id(step.loaded) == model]


def _choice(plan: Plan, steps: list[ModelStep], of: Alone, rows_max: int) -> Choice:
    """The reference and what it is asked, heard while the rows go through the pipeline."""
    model, settings = steps[0].loaded, steps[0].settings
    rows: Sequence[Item] = [item for item, _ in of.rows]
    together = min(rows_max, SLOW_ROWS_TOGETHER if of.slow else ROWS_TOGETHER)
    listening = Listening()
    listening.engine = engine = model.exchange(listening)
    alone: Sequence[Arrays] = ()
    try:
        for row in rows[: 1 if of.slow else ROWS_ALONE]:
            run_rows(plan, [row])
        alone = listening.taken()
        if rows and plan.batched and plan.definition.batch.enabled and rows_max > 1:
            run_rows(plan, [rows[place % len(rows)] for place in range(together)])
    except Failure:  # rows that cannot be together, which the self-test says
        listening.taken()
    finally:
        model.exchange(engine)
    asked = Asked(alone, listening.taken())
    reference = Candidate(str(settings["engine"]), model.file.options, model.file.threads, engine)
    return Choice(model, steps, asked, reference, reference)


def _try_all(choice: Choice, clock: Clock, limit_s: float) -> None:
    begun = clock()
    if not choice.asked.alone:
        choice.lines.append("no row to try others with: give golden examples")
        return
    try:
        expected = answers_of(choice.reference.engine, [*choice.asked.alone, *choice.asked.together])
    except (Failure, MemoryError):  # it has answered them before
        choice.lines.append("others were not tried: the reference does not always answer")
        return
    least_s = RUNS_AT_LEAST * (clock() - begun)
    unfit: list[Mapping[str, Any]] = []  # whose answers, or whose load, more or fewer threads do not mend
    for name, options, threads in _candidates(choice.reference):
        if clock() - begun + least_s > limit_s:
            choice.lines.append(f"others were not tried: that would have taken more than {limit_s:g} s")
            return
        if options not in unfit and not _try(
            choice, Candidate(name, options, threads, engine_kind(name).make()), expected, clock
        ):
            unfit.append(options)


def _candidates(reference: Candidate) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """All but the reference itself, those with as many threads first."""
    for threads in dict.fromkeys((reference.threads, 1)):
        for name, options in engine_kind(AUTO).candidates:
            if name != reference.name:
                yield name, engine_kind(name).settings(options), threads
            elif threads != reference.threads:
                yield name, reference.options, threads


def _try(choice: Choice, candidate: Candidate, expected: Sequence[Arrays], clock: Clock) -> bool:
    """Load it, compare its answers, let it run against the quickest so far, and take it or leave it.

    Returns whether it is fit to run the model.
    """
    engine = candidate.engine
    try:
        engine.load(replace(choice.model.file, options=candidate.options, threads=candidate.threads))
        if engine.signature() != choice.reference.engine.signature():  # other workers would load another pipeline by it
            raise Failed(Code.BAD_OUTPUT_SHAPE, "reads other inputs or outputs from the model file")
        found = answers_of(engine, [*choice.asked.alone, *choice.asked.together])
        close = reduce(Closeness.farther, map(closeness, expected, found))
        if not close.within(choice.tolerance):
            raise Failed(Code.BAD_OUTPUT_SHAPE, f"{close}, which the tolerance does not allow")
        gain = duel(choice.chosen.engine, engine, choice.asked, clock, DUEL_S)
    except (Failure, MemoryError) as error:  # it cannot load this model, or not answer what the reference answers
        choice.lines.append(f"{candidate}: {error.text if isinstance(error, Failure) else 'no memory for it'}")
        engine.close()
        return False
    taken = _is_better(gain, fewer_threads=candidate.threads < choice.chosen.threads)
    choice.lines.append(
        f"{candidate}: {gain.together:.2f} times as quick as {choice.chosen} together,"
        f" {gain.alone:.2f} times alone; {close}"
    )
    if taken:
        choice.take(candidate)
    else:
        engine.close()
    return True


def _is_better(gain: Gain, *, fewer_threads: bool) -> bool:
    return gain.together >= (FEWER_THREADS_MIN if fewer_threads else GAIN_MIN) and gain.alone >= ALONE_MIN
