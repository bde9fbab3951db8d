"""One way to run a step in a test: as the worker does, on a batch of its own, settled."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kind_of, kinds
from forwardpass.steps.protocol import Batch, Column, Context, text_column

Columns = Mapping[Field, Sequence[Any] | NDArray[Any]]


class Run(Protocol):
    """The step's batch after it ran on these columns; a list becomes a column of objects."""

    def __call__(
        self, use: str, options: dict[str, Any], columns: Columns, folder: Path = ..., *, trusted: bool = ...
    ) -> Batch: ...


def run_step(
    use: str, options: dict[str, Any], columns: Columns, folder: Path = Path("/nowhere"), *, trusted: bool = False
) -> Batch:
    kind = kind_of(use, kinds())
    known = {field.name: field for field in columns}
    made = kind.fields(options, known)
    rows = len(next(iter(columns.values())))
    arrays: dict[str, Column] = {
        field.name: values if isinstance(values, np.ndarray) else text_column(values)
        for field, values in columns.items()
    }
    batch = Batch(arrays, rows, origin=list(range(rows)))
    kind.prepare(options, known, Context(folder, trusted=trusted))(batch)
    batch.settle()
    assert {field.name for field in made} <= batch.columns.keys()
    return batch


@pytest.fixture(scope="session")
def run() -> Run:
    return run_step
