"""A loaded model that takes rows: whatever its graph makes of the first axis, rows go in and as many come out."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.pipeline import Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.engines.protocol import Arrays, End, Engine, ModelFile, Work
from forwardpass.execution.model_state import States, constants_of, states_of
from forwardpass.steps.protocol import Column


class Model:
    """An engine with one model in it. Used by one thread at a time."""

    def __init__(self, engine: Engine, file: ModelFile) -> None:
        """Loads it. Raises Misconfigured."""
        engine.load(file)
        self.file = file
        self._engine = engine
        self._ids = count(1)
        self.signature = engine.signature()
        self.state = states_of(file, self.signature)
        self._constants = constants_of(file, self.signature)
        self._whole = bool(self.state or self._constants)

    def predict(self, inputs: Arrays, rows: int) -> dict[str, Column]:
        """The outputs of these ``rows`` >= 1 rows, checked against the signature. Raises Failed or Refused for all."""
        return self.advance(inputs, rows, self.start(rows))[0]

    def start(self, rows: int) -> States:
        """The states of rows that no step has been made of."""
        return {each.input: each.zeros(rows) for each in self.state}

    def advance(self, inputs: Arrays, rows: int, state: States) -> tuple[dict[str, Column], States]:
        """``predict`` as a step from these states: the outputs and the states after it."""
        outputs = self._outputs(inputs, rows, state)
        after = {each.input: each.rows_of(outputs, rows) for each in self.state}
        return {field.name: _checked(field, outputs, rows) for field in self.signature.outputs}, after

    def exchange(self, engine: Engine) -> Engine:
        """Run by this engine from now on, which has loaded the same graph; the one before is the caller's to close."""
        before, self._engine = self._engine, engine
        return before

    def close(self) -> None:
        self._engine.close()

    def _outputs(self, inputs: Arrays, rows: int, state: States) -> Arrays:
        if self.signature.batched:
            return self._run(inputs, {each.input: each.whole(state[each.input]) for each in self.state})
        group = self.signature.fixed_rows
        if group is None:  # no axis for rows: one row is one work, and its arrays have none
            answers = [self._run(_elements(inputs, row), _elements(state, row)) for row in range(rows)]
            return self._joined(
                [{name: np.asarray(value)[np.newaxis] for name, value in each.items()} for each in answers]
            )
        if rows % group:
            raise Refused(Code.SHAPE_MISMATCH, f"this model takes exactly {group} rows at a time; {rows} came")
        answers = []
        for start in range(0, rows, group):
            own = {name: column[start : start + group] for name, column in inputs.items()}
            answer = self._run(own, _elements(state, start))
            after = {each.output: np.asarray(answer[each.output])[np.newaxis] for each in self.state}
            answers.append({**answer, **after})
        return self._joined(answers)

    def _joined(self, answers: Sequence[Arrays]) -> Arrays:
        if len(answers) == 1:
            return answers[0]
        for name, first in answers[0].items():
            if any(answer[name].shape[1:] != first.shape[1:] for answer in answers):
                text = f"{name}: the model answers rows of one batch with different shapes"
                raise Failed(Code.BAD_OUTPUT_SHAPE, text, field=name)
        return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}

    def _run(self, inputs: Arrays, state: Arrays) -> Arrays:
        work = Work(next(self._ids), {**inputs, **state, **self._constants} if self._whole else inputs)
        self._engine.submit((work,))
        while True:
            for event in self._engine.step():
                if isinstance(event, End) and event.id == work.id:
                    if event.failure is not None:
                        raise event.failure
                    return event.outputs


def _element(column: Column, row: int) -> NDArray[Any]:
    """One row without its axis, an array even where it is a single value."""
    return np.asarray(column[row], dtype=column.dtype)


def _elements(columns: Mapping[str, Column], row: int) -> Arrays:
    return {name: _element(column, row) for name, column in columns.items()}


def _checked(field: Field, outputs: Arrays, rows: int) -> Column:
    array = outputs.get(field.name)
    if array is None:
        raise Failed(Code.BAD_OUTPUT_SHAPE, f"the model returned no output {field.name}", field=field.name)
    if field.datatype == "BYTES":
        if array.dtype.kind in "US":
            array = array.astype(object)
        right = array.dtype == object
    else:
        right = array.dtype == NUMPY_NAMES.get(field.datatype)
    if not right:
        text = f"{field.name}: the model returned {array.dtype}; {field.datatype} is declared"
        raise Failed(Code.BAD_OUTPUT_SHAPE, text, field=field.name)
    if array.shape[:1] != (rows,):
        came = f"{array.shape[0]} rows" if array.shape else "no rows"
        raise Failed(Code.BAD_OUTPUT_SHAPE, f"{field.name}: the model returned {came} for {rows}", field=field.name)
    if not fits(array.shape[1:], field.shape):
        text = f"{field.name}: the model returned rows of {list(array.shape[1:])}; {list(field.shape)} is declared"
        raise Failed(Code.BAD_OUTPUT_SHAPE, text, field=field.name)
    return array


def fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Whether a row's shape is as declared, -1 being any."""
    if shape == declared:  # nearly always, and this is called for every batch
        return True
    return len(shape) == len(declared) and all(map(_size_fits, shape, declared))


def _size_fits(size: int, declared: int) -> bool:
    return declared in (-1, size)
