"""What a step is: checked options, the fields it needs and makes, and a function on a batch.

A step is prepared once, in the worker, and then called with every batch. Row-wise steps isolate rows: a row that cannot
be done is failed with ``batch.fail(row, why)`` and the others go on; the runner takes failed rows out before the next
step, so the model never sees them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Field, Options

Column = NDArray[Any]
"""Rows of one field: a numeric array [rows, *shape], or an object array [rows] of str, bytes or None (missing)."""


@dataclass(slots=True)
class Batch:
    """The rows on their way through the steps. ``rows`` counts those still alive; ``origin[i]`` is row i's first place."""

    columns: dict[str, Column]
    rows: int
    origin: list[int] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)  # by first place
    notes: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)  # (first place, name, value)
    failing: dict[int, Failure] = field(default_factory=dict)  # by current place, until settled

    def fail(self, row: int, failure: Failure) -> None:
        """Take current row ``row`` out of the batch once this step is done."""
        self.failing.setdefault(row, failure)

    def note(self, row: int, name: str, value: dict[str, Any]) -> None:
        """Tell the caller of current row ``row`` something about its answer, e.g. that it was cut."""
        self.notes.append((self.origin[row], name, value))

    def settle(self) -> None:
        """Remove the rows failed since the last call; called by the runner between steps."""
        if not self.failing:
            return
        for row, failure in self.failing.items():
            self.failures[self.origin[row]] = failure
        alive = [row for row in range(self.rows) if row not in self.failing]
        self.columns = {name: column[alive] for name, column in self.columns.items()}
        self.origin = [self.origin[row] for row in alive]
        self.rows = len(alive)
        self.failing = {}


Prepared = Callable[[Batch], None]
"""Reads ``batch.columns`` and writes new ones. Raises Failure only for what concerns the whole batch."""

FieldMap = Mapping[str, Field]
"""The fields known so far, in the order in which they were made (inputs first)."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a step may touch while it is prepared: its version's private folder and the threads it may use."""

    folder: Path
    threads: int = 1
    trusted: bool = False


class StepKind(Protocol):
    """One kind of step; each lives in a small module of ``steps/`` and is listed in ``steps/catalogue.py``."""

    name: str
    row_wise: bool  # each row's result depends on that row only
    exportable: bool  # can be written as ONNX operators (for the edge export)

    def check(self, options: Options, folder: Path) -> Sequence[tuple[str, str, str]]:
        """Problems in the options as (key, what was found, what is allowed); heavy libraries stay unimported."""

    def fields(self, options: Options, known: FieldMap) -> Sequence[Field]:
        """The fields this step makes. Raises Misconfigured when an input field is missing or does not fit."""

    def prepare(self, options: Options, known: FieldMap, context: Context) -> Prepared:
        """Load what is needed (tokenizer, labels …) and return the function. Raises Misconfigured."""


def text_column(values: Sequence[str | bytes | None]) -> Column:
    """An object column of these values (numpy would guess otherwise)."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
