"""What every engine is: a runtime that executes one model file, one-shot or token by token, behind six methods.

A one-shot answer is a stream of one: ``oneshot.py`` makes an Engine of anything with ``predict(batch) -> batch``.
Engines live in a worker, never in the front. Heavy imports happen inside ``load``. An engine must pass
``forwardpass.testing.conformance``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Field

Arrays = Mapping[str, NDArray[Any]]
"""Name -> rows. Numeric arrays are C-contiguous; BYTES is an object array of str or bytes."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What to load: an absolute path inside the version's private folder, and the model step's engine options."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    state: Mapping[str, str] = field(default_factory=dict)  # graph input = the output of the step before that it takes
    constants: Mapping[str, Any] = field(default_factory=dict)  # graph input = what it is in every call


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """Inputs and outputs with the batch axis removed; ``batched`` is False when the first axis is not a free one.

    What the model file names as state or constant is apart, with all its axes, and says nothing of rows.
    """

    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]
    batched: bool
    fixed_rows: int | None = None  # when not batched: the first axis' fixed size, if it is one
    whole_inputs: tuple[Field, ...] = ()
    whole_outputs: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to run: for a one-shot model a whole batch of rows, for a token model one sequence."""

    id: int
    inputs: Arrays
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of an answer that goes on."""

    id: int
    outputs: Arrays


@dataclass(frozen=True, slots=True)
class End:
    """The last event of an id: its outputs (the whole answer of a one-shot model) or why there is none."""

    id: int
    outputs: Arrays
    failure: Failure | None = None


Event = Chunk | End


class Engine(Protocol):
    """Used by one thread at a time. After ``submit(id)`` exactly one End for that id comes out of ``step``."""

    def load(self, file: ModelFile) -> None:
        """Import the runtime and load the model. Raises Misconfigured (model_invalid, runtime_missing)."""

    def signature(self) -> ModelSignature:
        """The loaded model's inputs and outputs; row shapes, -1 for a free dimension."""

    def submit(self, items: Sequence[Work]) -> None:
        """Take work in. Never blocks and never raises for an item: a bad one ends with a failure."""

    def step(self) -> list[Event]:
        """Run once and return what came out of it; [] when nothing is in."""

    def cancel(self, ids: Sequence[int]) -> None:
        """Drop these; no event for them follows. Unknown ids are ignored."""

    def close(self) -> None:
        """Release everything. Idempotent."""


class Predictor(Protocol):
    """A one-shot runtime before ``oneshot`` makes an Engine of it."""

    def load(self, file: ModelFile) -> None: ...

    def signature(self) -> ModelSignature: ...

    def predict(self, batch: Arrays) -> Arrays:
        """Outputs by name, rows as in the batch. Raises Failed (engine_failed, engine_out_of_memory)."""

    def close(self) -> None: ...
