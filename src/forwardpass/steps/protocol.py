"""What a step is: checked options, the fields it needs and makes, and a function on a batch.

A step is prepared once, in the worker, and then called with every batch. Row-wise steps isolate rows: a row that cannot
be done is failed with ``batch.fail(row, why)`` and the others go on; the runner takes failed rows out before the next
step, so the model never sees them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Field, Options

Column = NDArray[Any]
"""Rows of one field; what it holds is said by ``Field.kind``."""

Slots = dict[str, Any]
"""What the steps keep of a sequence from one request to the next: each under its own ``Context.place``."""


@dataclass(slots=True)
class Level:
    """Rows that wait while their elements are worked on; ``parents[i]`` is the row that element i belongs to."""

    columns: dict[str, Column]
    rows: int
    origin: list[int]
    parents: NDArray[np.int64]


@dataclass(slots=True)
class Batch:
    """The rows on their way through the steps. ``rows`` counts those still alive; ``origin[i]`` is row i's first place.

    Between ``expand`` and ``fold`` a row is one element of an outer row (a crop of an image, a window of a text), and
    all elements of all outer rows are together. An element that fails takes its outer row with it, and no other.
    """

    columns: dict[str, Column]
    rows: int
    origin: list[int] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)  # by first place
    notes: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)  # (first place, name, value)
    failing: dict[int, Failure] = field(default_factory=dict)  # by current place, until settled
    outer: list[Level] = field(default_factory=list)  # the outermost first
    withheld: set[tuple[int, str]] = field(default_factory=set)  # (first place, output): floats that rules dropped
    sequences: dict[int, Slots] = field(default_factory=dict)  # by first place, of rows that continue a sequence
    ending: set[int] = field(default_factory=set)  # first places of those whose sequence ends with this request
    tokens: dict[int, int] = field(default_factory=dict)  # by first place: how many a tokenizer made of the row
    elements: int = 0  # of rows of different length that were filled up to one,
    padding: int = 0  # and with how many

    def expand(self, counts: Sequence[int], columns: dict[str, Column]) -> None:
        """From now on row r is ``counts[r]`` rows, in order; ``columns`` holds all of them. Nothing else comes along."""
        assert len(counts) == self.rows, "a count for every row"
        parents = np.repeat(np.arange(self.rows), counts)
        self.outer.append(Level(self.columns, self.rows, self.origin, parents))
        self.origin = [self.origin[parent] for parent in parents]
        self.columns, self.rows = columns, len(parents)

    def fold(self) -> NDArray[np.int64]:
        """Back to the rows before the last ``expand``: for each element, the row it belongs to."""
        level = self.outer.pop()
        self.columns, self.rows, self.origin = level.columns, level.rows, level.origin
        return level.parents

    def slots(self, row: int) -> Slots | None:
        """What is kept of the current row's sequence, to be read and written; None when it continues none.

        What is written counts only if the row gets an answer; what is read must be replaced, never changed in place.
        """
        return self.sequences.get(self.origin[row])

    def ends(self, row: int) -> bool:
        """Whether nothing comes after the current row: it is the last of its sequence, or continues none."""
        origin = self.origin[row]
        return origin in self.ending or origin not in self.sequences

    def fail(self, row: int, failure: Failure) -> None:
        """Take current row ``row`` out of the batch once this step is done."""
        self.failing.setdefault(row, failure)

    def note(self, row: int, name: str, value: dict[str, Any]) -> None:
        """Tell the caller of current row ``row`` something about its answer, e.g. that it was cut.

        Of an element the note says which it is: "element", counted from 0; inside several expansions one for each.
        """
        if self.outer:
            places = self._element(row)
            value = {**value, "element": places[0] if len(places) == 1 else places}
        self.notes.append((self.origin[row], name, value))

    def count_tokens(self, row: int, count: int) -> None:
        """So many tokens more go to a model for current row ``row``: all that are no padding."""
        origin = self.origin[row]
        self.tokens[origin] = self.tokens.get(origin, 0) + count

    def count_padding(self, lengths: Sequence[int], filled_up_to: int) -> None:
        """Rows of these lengths go to a model as if they all had that one."""
        elements = sum(lengths)
        self.elements += elements
        self.padding += len(lengths) * filled_up_to - elements

    def _element(self, row: int) -> list[int]:
        places: list[int] = []
        for level in reversed(self.outer):
            parent = int(level.parents[row])
            places.insert(0, row - int(np.searchsorted(level.parents, parent)))
            row = parent
        return places

    def settle(self) -> None:
        """Remove the rows failed since the last call; called by the runner between steps."""
        if not self.failing:
            return
        for row, failure in sorted(self.failing.items()):
            self.failures.setdefault(self.origin[row], failure)
        lost = {self.origin[row] for row in self.failing}
        self.failing = {}
        self._remove(lost)

    def leave_out(self, places: Collection[int], failure: Failure) -> None:
        """Fail the rows that were at these first places, with all their elements, at once; called by the runner."""
        for place in places:
            self.failures.setdefault(place, failure)
        self._remove(places)

    def _remove(self, lost: Collection[int]) -> None:
        levels: list[Level | Batch] = [*self.outer, self]
        stay = [np.array([origin not in lost for origin in level.origin], dtype=np.bool_) for level in levels]
        for level, own, inner in zip(self.outer, stay, stay[1:], strict=False):
            level.parents = (np.cumsum(own) - 1)[level.parents[inner]]
        for each, own in zip(levels, stay, strict=True):
            each.columns = {name: column[own] for name, column in each.columns.items()}
            each.origin = [origin for origin in each.origin if origin not in lost]
            each.rows = len(each.origin)


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
    place: str = "steps[0]"  # of the step in its pipeline: the name of its slot in a sequence


class Watched(dict[str, Field]):
    """The fields there are. ``read`` are those that were taken, ``named`` those that were asked for, there or not.

    Watching what is watched tells both. Only going through all of them, to list them, tells nothing.
    """

    def __init__(self, known: FieldMap) -> None:
        super().__init__(known)
        self.known = known
        self.read: set[str] = set()
        self.named: set[str] = set()

    def __getitem__(self, name: str) -> Field:
        self.read.add(name)
        self.named.add(name)
        return self.known[name]

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            self.named.add(name)
        return name in self.known


class StepKind(Protocol):
    """One kind of step; each lives in a small module of ``steps/`` and is listed in ``steps/catalogue.py``."""

    name: str
    level: int  # 1 when it makes elements of rows (Batch.expand), -1 when it makes rows of them again (Batch.fold)
    exportable: bool  # can be written as ONNX operators (for the edge export)

    def check(self, options: Options, folder: Path) -> Sequence[tuple[str, str, str]]:
        """Problems in the options as (key, what was found, what is allowed); heavy libraries stay unimported."""

    def fields(self, options: Options, known: FieldMap) -> Sequence[Field]:
        """The fields this step makes: of elements with ``level`` 1, which then are all there are; of rows with -1.

        Raises Misconfigured when an input field is missing or does not fit.
        """

    def prepare(self, options: Options, known: FieldMap, context: Context) -> Prepared:
        """Load what is needed (tokenizer, labels …) and return the function. Raises Misconfigured.

        It reads those columns only that were asked for in ``known``, here or by ``fields``.
        """

    def takes_token_ids(self, options: Options) -> bool:
        """Whether the texts it reads may also be ``TokenIds``."""


def object_column(values: Sequence[Any]) -> Column:
    """An object column of these values: text, bytes, arrays, lists (numpy would make something else of these)."""
    column = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        column[row] = value
    return column


def text_column(values: Sequence[str | bytes | None]) -> Column:
    """``object_column`` of text or bytes, quicker."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
