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
from forwardpass.core.errors import Failure
from forwardpass.engines.discover import engine_kind
from forwardpass.engines.protocol import Engine
from forwardpass.execution.closeness import Closeness, closeness
from forwardpass.execution.duel import Asked, Gain, Listening, answers_of, duel
from forwardpass.execution.model import Model
from forwardpass.execution.model_step import ModelStep
from forwardpass.execution.plan import Plan
from forwardpass.execution.selftest import Alone, SelfTest, answers, rows_alone, self_test
from forwardpass.execution.synthetic import Item

TRIED_MAX_S = 10.0  # after so much no further candidate is begun
LOAD_SHARE_MAX = 0.25  # nor after so much of workers.load_limit_s
DUEL_S = 0.5
ROWS_ALONE = 3
ROWS_TOGETHER = 16
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
    reference: Candidate
    chosen: Candidate
    lines: list[str] = field(default_factory=list)

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


@dataclass(frozen=True, slots=True)
class Tried:
    """The rows that were tried, with their answers, and whether rows are independent: with the engines chosen."""

    alone: Alone
    tested: SelfTest


def tried(plan: Plan, rows_max: int, *, clock: Clock = monotonic_s) -> Tried:
    """Choose the engines that are open, and test the plan with them.

    Rows that are independent with the reference are independent with what is chosen, or the reference stays.
    """
    rows = rows_alone(plan)
    found = Tried(rows, self_test(plan, rows, rows_max))
    limit_s = min(TRIED_MAX_S, LOAD_SHARE_MAX * 1.0 * _load_limit_s(plan))
    choices = [_chosen(plan, steps, found.alone, rows_max, clock, limit_s) for steps in _open(plan)]
    changed = [choice for choice in choices if choice.chosen is not choice.reference]
    if changed:
        rows = rows_alone(plan)
        tested = self_test(plan, rows, rows_max)
        if tested.independent or not found.tested.independent:
            found = Tried(rows, tested)
        else:
            for choice in changed:
                choice.lines.append(f"{choice.chosen} is not taken: {tested.reason}")
                choice.take(choice.reference)
    for choice in choices:
        choice.settle()
    return found


def _load_limit_s(plan: Plan) -> float:
    return plan.definition.workers.load_limit_s


def _open(plan: Plan) -> Iterator[list[ModelStep]]:
    """The steps whose engine is open, those that share a model together."""
    steps = [step for step in plan.loaded if step.tolerance is not None and not step.settings["auto"]]
    for model in dict.fromkeys(id(step.loaded) for step in steps):
        yield [step for step in steps if id(step.loaded) == model]


def _chosen(
    plan: Plan, steps: list[ModelStep], alone: Alone, rows_max: int, clock: Clock, limit_s: float
) -> Choice:
    model, tolerance = steps[0].loaded, steps[0].tolerance or {}
    asked, engine = _asked(plan, model, [item for item, _ in alone.rows], rows_max)
    file = model.file
    reference = Candidate(str(steps[0].settings["engine"]), file.options, file.threads, engine)
    choice = Choice(model, steps, reference, reference)
    if not asked.alone:
        choice.lines.append("no row to try others with: give golden examples")
        return choice
    works = [*asked.alone, *asked.together]
    try:
        expected = answers_of(engine, works)
        begun = clock()
        for name, options, threads in _candidates(steps[0], file.threads):
            if clock() - begun > limit_s:
                choice.lines.append(f"others were not tried, as {limit_s:g} s were over")
                break
            _try(choice, name, options, threads, Trial(asked, expected, tolerance, clock))
    except Failure as failure:  # the reference answers these no more: a model that is not repeatable
        choice.lines.append(f"others were not tried: {failure.text}")
    return choice
