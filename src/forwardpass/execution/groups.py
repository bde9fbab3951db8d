"""How the rows of a batch go through a model: together, or in groups of equal shape where they have shapes of their own.

A row's shape depends on that row only, so whom it shares a group with changes nothing but speed.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from forwardpass.core.errors import Code, Failed
from forwardpass.execution.binding import ALL, Bound, Rows
from forwardpass.steps.protocol import Batch, Column, object_column

ELEMENTS_MAX = 32
"""Elements of rows (crops, windows) that go through a model at once: however many there are, memory is bounded."""

Predict = Callable[[Rows], dict[str, Column]]
"""The model's outputs of these rows (ALL or their places), in their order."""


def predicted(
    batch: Batch, bound: Sequence[Bound], ragged: Collection[str], predict: Predict, steps: Sequence[Rows] = (ALL,)
) -> dict[str, Column]:
    """The model's outputs of all rows, by the graph's names; those in ``ragged`` have a shape of their own each row.

    ``steps`` holds all rows once; those of a step go through the model after those of the steps before it.
    """
    names = [each.source for each in bound if each.ragged]
    groups = [group for rows in steps for group in _groups(batch, rows, names)]
    if len(groups) == 1 and not ragged:
        return predict(groups[0])
    answers = [predict(rows) for rows in groups]
    order = np.concatenate([np.arange(batch.rows) if rows is ALL else rows for rows in groups])
    return {
        name: _ragged(order, [answer[name] for answer in answers])
        if name in ragged
        else _dense(name, order, [answer[name] for answer in answers])
        for name in answers[0]
    }


def _groups(batch: Batch, rows: Rows, ragged: Sequence[str]) -> list[Rows]:
    if not ragged:
        if rows is ALL and (not batch.outer or batch.rows <= ELEMENTS_MAX):
            return [ALL]
        places = np.arange(batch.rows) if rows is ALL else rows
        return [places[start : start + ELEMENTS_MAX] for start in range(0, len(places), ELEMENTS_MAX)]
    alike: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for row in range(batch.rows) if rows is ALL else rows:
        alike.setdefault(tuple(batch.columns[name][row].shape for name in ragged), []).append(row)
    most = ELEMENTS_MAX if batch.outer else batch.rows
    return [np.array(each[start : start + most]) for each in alike.values() for start in range(0, len(each), most)]


def _ragged(order: Rows, parts: Sequence[Column]) -> Column:
    rows = [row for part in parts for row in part]
    column = object_column(rows)
    column[order] = object_column(rows)
    return column


def _dense(name: str, order: Rows, parts: Sequence[Column]) -> Column:
    if any(part.shape[1:] != parts[0].shape[1:] for part in parts):
        text = f"{name}: the model answers rows of one shape with different shapes"
        raise Failed(Code.BAD_OUTPUT_SHAPE, text, field=name)
    joined = np.concatenate(parts)
    column = np.empty_like(joined)
    column[order] = joined
    return column
