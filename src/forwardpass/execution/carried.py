"""The steps of a model that keeps a state: which rows are run after which, and from what.

Steps follow each other in two ways: the elements of one row (the frames of an upload) in their order, and the requests
of one sequence. Rows of different items go through the model together, each from its own state.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.engines.protocol import Arrays
from forwardpass.execution.binding import ALL, Rows
from forwardpass.execution.model import Model
from forwardpass.steps.protocol import Batch, Column


class Carried:
    """The states of one batch's rows while a model steps through them, in the slots of ``place`` before and after."""

    def __init__(self, model: Model, batch: Batch, place: str) -> None:
        self._model = model
        self._batch = batch
        self._place = place
        self._zeros = {name: column[0] for name, column in model.start(1).items()}
        self._now: dict[int, Mapping[str, NDArray[Any]]] = {}  # by first place
        for row, origin in enumerate(batch.origin):
            slots = batch.slots(row)
            self._now[origin] = self._zeros if slots is None else slots.get(place, self._zeros)

    def steps(self) -> list[Rows]:
        """Places in the batch, step by step: the first element of every row, then the second of those with two …"""
        if not self._batch.outer:
            return [ALL]
        steps: list[list[int]] = []
        step, before = 0, None
        for row, origin in enumerate(self._batch.origin):
            step = step + 1 if origin == before else 0
            before = origin
            if step == len(steps):
                steps.append([])
            steps[step].append(row)
        return [np.array(rows) for rows in steps]

    def predict(self, inputs: Arrays, rows: Rows) -> dict[str, Column]:
        """One step of these rows, no two of which are of the same item."""
        origins = self._batch.origin if rows is ALL else [self._batch.origin[row] for row in rows]
        state = {name: np.stack([self._now[origin][name] for origin in origins]) for name in self._zeros}
        outputs, after = self._model.advance(inputs, len(origins), state)
        for row, origin in enumerate(origins):
            self._now[origin] = {name: column[row] for name, column in after.items()}
        return outputs

    def keep(self) -> None:
        """Leave the states with the sequences that the rows continue."""
        for row, origin in enumerate(self._batch.origin):
            slots = self._batch.slots(row)
            if slots is not None:  # a copy: the array it is cut from holds everybody's
                slots[self._place] = {name: array.copy() for name, array in self._now[origin].items()}
