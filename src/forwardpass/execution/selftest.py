"""Proof at load: that a row's answer does not depend on the rows it shares a batch with. And the first, slow runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Input, Padding, Pipeline, Signature
from forwardpass.execution.difference import difference, same_bits
from forwardpass.execution.model_step import ModelStep
from forwardpass.execution.padding import cut, pad, padded_length
from forwardpass.execution.plan import Plan
from forwardpass.execution.synthetic import FREE_SIZES, Item, items
from forwardpass.steps.protocol import Batch, Column, Slots

ROWS_TESTED = 8
ROWS_TESTED_SLOW = 3
SLOW_S = 0.25  # one row alone
TRIED_MAX_S = 3.0  # after so much of self-test and warm-up no larger batch is begun for the warm-up's sake
BATCH_TESTED_MAX = 64

DETAIL_CHARACTERS_MAX = 500
GIVE_EXAMPLES = "give golden examples, two at least"

Answer = dict[str, Column]
"""One row's outputs."""

Answers = Callable[[Sequence[Item]], list[Answer]]
"""Of rows in one batch. Raises the Failure of any."""


@dataclass(frozen=True, slots=True)
class Alone:
    """Rows that can be run, each with its answer alone; ``slow`` ones are few. With it the last failure, if one failed."""

    rows: Sequence[tuple[Item, Answer]]
    slow: bool
    failure: Failure | None
    started_s: float


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Whether rows of strangers may share a batch, and if not, why, in words for the operator."""

    independent: bool
    bitwise: bool  # to the last bit, in what was tried
    max_difference: float  # of what was compared; infinite where no number says how far apart two answers are
    reason: str
    rows_tested: int
    sizes: frozenset[int] = frozenset()  # of the batches that ran, where rows were found independent


def rows_alone(plan: Plan, wanted: int = ROWS_TESTED, *, clock: Clock = monotonic_s) -> Alone:
    """The rows that self-test and warm-up go by, the golden requests first; one is enough where none shares a batch."""
    together = plan.batched and plan.definition.batch.enabled
    return _alone(
        lambda free: items(plan.definition, plan.signature, ROWS_TESTED, free),
        partial(run_rows, plan),
        wanted if together else 1,
        clock,
    )


def self_test(plan: Plan, alone: Alone, rows_max: int) -> SelfTest:
    """Compare rows alone with the same rows in batches of several sizes and orders.

    Not proved is not independent: a model with a fixed first axis, no two rows that run, an error or other rows in a
    batch, a difference over ``batch.tolerance``. A model that no two of the rows went through together, such as one
    behind a detector that found nothing, is tested by itself. Where no rows are to share a batch nothing is tried.
    """
    if not plan.definition.batch.enabled:
        return SelfTest(False, True, 0.0, "batch.enabled is false", 0)
    if not plan.batched:
        size = plan.fixed_rows
        return _no("the model has no axis for rows" if size is None else f"the model's first axis is fixed at {size}")
    for step in plan.loaded:
        step.mixed = False
    tolerance = plan.definition.batch.tolerance
    tested = _compared(alone, partial(run_rows, plan), rows_max, tolerance, plan.loaded)
    for step in plan.loaded:
        if tested.independent and not step.mixed and step.loaded.signature.batched:
            tested = _with(tested, _model_alone(step, rows_max, tolerance), step)
    return tested


def _model_alone(step: ModelStep, rows_max: int, tolerance: float) -> SelfTest:
    """The same for a model as it is, without the steps around it."""
    inputs = step.loaded.signature.inputs
    given = tuple(Input(each.name, "tensor", datatype=each.datatype, shape=each.shape) for each in inputs)
    made = partial(items, Pipeline((), given), Signature(given, ()), ROWS_TESTED)

    def answers(rows: Sequence[Item]) -> list[Answer]:
        columns, _ = _joined(rows, None)
        outputs = step.loaded.predict(columns, len(rows))
        return [{name: column[row : row + 1] for name, column in outputs.items()} for row in range(len(rows))]

    return _compared(_alone(made, answers, ROWS_TESTED, monotonic_s), answers, rows_max, tolerance, ())


def _with(tested: SelfTest, inner: SelfTest, step: ModelStep) -> SelfTest:
    """What was found of the pipeline, and of a model in it by itself."""
    return SelfTest(
        inner.independent,
        tested.bitwise and inner.bitwise,
        max(tested.max_difference, inner.max_difference),
        inner.reason and f"{step.place}, by itself, as no two rows met in it: {inner.reason}",
        tested.rows_tested,
        tested.sizes,
    )


def _compared(alone: Alone, answers: Answers, rows_max: int, tolerance: float, steps: Sequence[ModelStep]) -> SelfTest:
    """The rows in batches of several sizes and orders. ``steps`` are ``mixed`` then if unlike rows met in them."""
    rows, count = alone.rows, len(alone.rows)
    if count < 2:
        found = "no row" if not rows else "only one row"
        why = f"; the last that was tried failed: {alone.failure.text}" if alone.failure else ""
        return _no(f"{found} to test with: {GIVE_EXAMPLES}{why}", count)
    order = list(range(count))
    large = min(rows_max, BATCH_TESTED_MAX)
    orders = [order[::-1], order[:2]] if alone.slow else [order, order[::-1], order[:3]]  # a load must not take minutes
    if large > count and not alone.slow:
        orders.append([order[place % count] for place in range(large)])
    bitwise, largest = True, 0.0
    for each in orders:
        met = [step.mixed for step in steps]
        try:
            found_of = answers([rows[place][0] for place in each])
        except Failure as failure:
            return _no(f"a batch of {len(each)} fails where each row alone does not: {failure.text}", count)
        if len(each) > count:  # a row that meets itself says nothing
            for step, before in zip(steps, met, strict=True):
                step.mixed = before
        for place, answer in zip(each, found_of, strict=True):
            for name, column in rows[place][1].items():
                apart = difference(column, answer[name])
                bitwise = bitwise and same_bits(column, answer[name])
                largest = max(largest, apart)
                if apart > tolerance:
                    return SelfTest(False, False, largest, _reason(name, apart, len(each), tolerance), count)
    return SelfTest(True, bitwise, largest, "", count, frozenset(map(len, orders)))


def untried(reason: str) -> bool:
    """Whether a self-test with this reason found nothing out, as it had no rows to test with."""
    return GIVE_EXAMPLES in reason


def warm_up(plan: Plan, alone: Alone, tested: SelfTest, rows_max: int, *, clock: Clock = monotonic_s) -> list[str]:
    """Run a batch of each size that is usual (1, 2, 4 … rows_max) and has not run yet, while there is time left.

    Returns warnings for the operator: what was left out, and why, if no row could be run at all.
    """
    rows = [item for item, _ in alone.rows[:1]]  # the batch of 1
    if alone.failure is not None and not rows:
        detail = alone.failure.detail.strip()[-DETAIL_CHARACTERS_MAX:]
        return [f"no made-up row could be run before serving: {alone.failure.text}" + (f"\n{detail}" if detail else "")]
    larger = [1 << power for power in range(1, rows_max.bit_length()) if 1 << power < rows_max]
    usual = [*larger, rows_max] if rows and tested.independent and rows_max > 1 else []
    sizes = [size for size in usual if size not in tested.sizes]
    took_s = 0.0
    for place, size in enumerate(sizes):
        before = clock()
        if before - alone.started_s + 2 * took_s > TRIED_MAX_S:
            left = ", ".join(map(str, sizes[place:]))
            spent_s = before - alone.started_s
            return [f"warm-up stopped after {spent_s:.1f} s: no batch of {left} rows was run before serving"]
        try:
            run_rows(plan, rows * size)
        except Failure:
            break  # such batches do not run: the self-test says so
        took_s = clock() - before
    return []


def _alone(made: Callable[[int], Sequence[Item]], answers: Answers, wanted: int, clock: Clock) -> Alone:
    """Up to ``wanted`` of the rows that are ``made`` with free dimensions of a size; slow ones are enough at ROWS_TESTED_SLOW.

    The size is the first of FREE_SIZES with which there are two such rows, or the last.
    """
    begun = clock()
    found: list[tuple[Item, Answer]] = []
    last: Failure | None = None
    for free in FREE_SIZES:
        found = []
        for item in made(free):
            started = clock()
            try:
                found.append((item, answers([item])[0]))
            except Failure as failure:
                last = failure
                continue  # not a row this pipeline takes
            enough = min(wanted, ROWS_TESTED_SLOW) if clock() - started > SLOW_S else wanted
            if len(found) >= enough:
                return Alone(found, clock() - begun > SLOW_S * len(found), last, begun)
        if len(found) > 1:
            break
    return Alone(found, clock() - begun > SLOW_S * len(found), last, begun)


def run_rows(plan: Plan, rows: Sequence[Item]) -> list[Answer]:
    """Each row's outputs after all steps, where sequences are kept of its second turn. Raises the Failure of any."""
    padding = plan.padding
    columns, lengths = _joined(rows, padding)
    places = range(len(rows))
    slots: dict[int, Slots] = {} if plan.definition.sequence is None else {place: {} for place in places}
    for _ in range(2 if slots else 1):
        batch = Batch(dict(columns), len(rows), list(places), sequences=slots)
        plan.preprocess(batch)
        plan.execute(batch)
        plan.postprocess(batch)
        for failure in batch.failures.values():
            raise failure
    padded = padded_length(lengths, padding.buckets) if padding and lengths else 0
    answers: list[Answer] = []
    for row in range(len(rows)):
        answer = {}
        for field in plan.signature.outputs:
            column = batch.columns[field.name][row : row + 1]
            answer[field.name] = cut(column, field, lengths[row], padded) if lengths else column
        answers.append(answer)
    return answers


def _joined(rows: Sequence[Item], padding: Padding | None) -> tuple[dict[str, Column], list[int]]:
    """The rows as one batch's columns, and each row's own length if they were padded, as only unlike ones are."""
    columns: dict[str, Column] = {}
    lengths: list[int] = []
    for name in rows[0]:
        each = [row[name] for row in rows]
        if padding is not None and name in padding.fields and len({column.shape for column in each}) > 1:
            lengths = [column.shape[1] for column in each]
            columns[name] = pad(each, padding, name)
        else:
            columns[name] = np.concatenate(each)
    return columns, lengths


def _no(reason: str, rows_tested: int = 0) -> SelfTest:
    return SelfTest(False, False, 0.0, reason, rows_tested)


def _reason(name: str, apart: float, rows: int, tolerance: float) -> str:
    if math.isinf(apart):
        return f"output {name} of a row is another one in a batch of {rows} than alone"
    return f"output {name} of a row differs by {apart:.3g} in a batch of {rows} from alone; {tolerance:g} is allowed"
