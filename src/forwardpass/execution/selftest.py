"""Proof at load: that a row's answer does not depend on the rows it shares a batch with. And the first, slow runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Padding
from forwardpass.execution.difference import difference, same_bits
from forwardpass.execution.padding import cut, pad, padded_length
from forwardpass.execution.plan import Plan
from forwardpass.execution.synthetic import FREE_SIZES, Item, items
from forwardpass.steps.protocol import Batch, Column, Slots

ROWS_TESTED = 8
ROWS_TESTED_SLOW = 3
SLOW_S = 0.25  # one row alone
WARM_UP_MAX_S = 3.0
BATCH_TESTED_MAX = 64

DETAIL_CHARACTERS_MAX = 500
GIVE_EXAMPLES = "give golden examples, two at least"

Answer = dict[str, Column]
"""One row's outputs."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Whether rows of strangers may share a batch, and if not, why, in words for the operator."""

    independent: bool
    bitwise: bool  # to the last bit, in what was tried
    max_difference: float  # of what was compared; infinite where no number says how far apart two answers are
    reason: str
    rows_tested: int


def self_test(plan: Plan, rows_max: int) -> SelfTest:
    """Compare rows alone with the same rows in batches of several sizes and orders, the golden requests first.

    Not proved is not independent: a model with a fixed first axis, no two rows that run, an error or other rows in a
    batch, a difference over ``batch.tolerance``. Where no rows are to share a batch nothing is tried.
    """
    if not plan.definition.batch.enabled:
        return SelfTest(False, True, 0.0, "batch.enabled is false", 0)
    if not plan.batched:
        size = plan.fixed_rows
        return _no("the model has no axis for rows" if size is None else f"the model's first axis is fixed at {size}")
    started = monotonic_s()
    alone, failure = _alone(plan, ROWS_TESTED)
    took_s = monotonic_s() - started
    if len(alone) < 2:
        found = "no row" if not alone else "only one row"
        why = f"; the last that was tried failed: {failure.text}" if failure else ""
        return _no(f"{found} to test with: {GIVE_EXAMPLES}{why}", len(alone))
    order = list(range(len(alone)))
    large = min(rows_max, BATCH_TESTED_MAX)
    orders = [order, order[::-1], order[:3]]
    if took_s > SLOW_S * len(alone):  # a load must not take minutes
        orders = [order[::-1], order[:2]]
    elif large > len(order):
        orders.append([order[place % len(order)] for place in range(large)])
    bitwise, largest = True, 0.0
    for each in orders:
        rows = [alone[place] for place in each]
        try:
            answers = _answers(plan, [item for item, _ in rows])
        except Failure as failure:
            return _no(f"a batch of {len(rows)} fails where each row alone does not: {failure.text}", len(alone))
        for (_, expected), answer in zip(rows, answers, strict=True):
            for name, column in expected.items():
                apart = difference(column, answer[name])
                bitwise = bitwise and same_bits(column, answer[name])
                largest = max(largest, apart)
                if apart > plan.definition.batch.tolerance:
                    return SelfTest(False, False, largest, _reason(name, apart, len(rows), plan), len(alone))
    return SelfTest(True, bitwise, largest, "", len(alone))


def untried(reason: str) -> bool:
    """Whether a self-test with this reason found nothing out, as it had no rows to test with."""
    return GIVE_EXAMPLES in reason


def warm_up(plan: Plan, rows_max: int, *, clock: Clock = monotonic_s, budget_s: float = WARM_UP_MAX_S) -> list[str]:
    """Run a batch of each size that is usual (1, 2, 4 … rows_max), within the budget.

    Returns warnings for the operator: what was left out, and why, if no row could be run at all.
    """
    started = clock()
    alone, failure = _alone(plan, 1)  # the batch of 1
    rows = [item for item, _ in alone]
    if failure is not None and not rows:
        detail = failure.detail.strip()[-DETAIL_CHARACTERS_MAX:]
        return [f"no made-up row could be run before serving: {failure.text}" + (f"\n{detail}" if detail else "")]
    larger = [1 << power for power in range(1, rows_max.bit_length()) if 1 << power < rows_max]
    together = plan.batched and plan.definition.batch.enabled and rows_max > 1
    sizes = [*larger, rows_max] if rows and together else []
    took_s = 0.0
    for place, size in enumerate(sizes):
        before = clock()
        if before - started + 2 * took_s > budget_s:
            left = ", ".join(map(str, sizes[place:]))
            return [f"warm-up stopped after {before - started:.1f} s: no batch of {left} rows was run before serving"]
        try:
            _answers(plan, rows * size)
        except Failure:
            break  # such batches do not run: the self-test says so
        took_s = clock() - before
    return []


def _alone(plan: Plan, wanted: int) -> tuple[list[tuple[Item, Answer]], Failure | None]:
    """Up to ``wanted`` rows that can be run, each with its answer alone; slow ones are enough at ROWS_TESTED_SLOW.

    Free dimensions have the first of the sizes with which there are two such rows, or the last. With it comes the last
    failure of a row, if one failed.
    """
    found: list[tuple[Item, Answer]] = []
    last: Failure | None = None
    for free in FREE_SIZES:
        found = []
        for item in items(plan.definition, plan.signature, ROWS_TESTED, free):
            started = monotonic_s()
            try:
                found.append((item, _answers(plan, [item])[0]))
            except Failure as failure:
                last = failure
                continue  # not a row this pipeline takes
            enough = min(wanted, ROWS_TESTED_SLOW) if monotonic_s() - started > SLOW_S else wanted
            if len(found) >= enough:
                return found, last
        if len(found) > 1:
            break
    return found, last


def _answers(plan: Plan, rows: Sequence[Item]) -> list[Answer]:
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


def _reason(name: str, apart: float, rows: int, plan: Plan) -> str:
    if math.isinf(apart):
        return f"output {name} of a row is another one in a batch of {rows} than alone"
    tolerance = plan.definition.batch.tolerance
    return f"output {name} of a row differs by {apart:.3g} in a batch of {rows} from alone; {tolerance:g} is allowed"
