"""What a worker keeps of each sequence from one request to the next.

A request works on a copy, which counts only once its row has an answer: a row that fails, and a batch that must be run
again item by item, find what was there before. The front decides which sequences there are, and says with each batch
which ones it gave up.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Sequences
from forwardpass.execution.wire import Run, WireError
from forwardpass.steps.protocol import Batch, Column, Slots

SLACK = 2
"""So many times what the front allows: it may take a new sequence in before we are told which old one it gave up."""


class States:
    """The store. Used by both threads of a worker; no sequence is ever in two batches at a time."""

    def __init__(self, limits: Sequences | None) -> None:
        self._kept_max = SLACK * (limits or Sequences()).sequences_max
        self._kept: OrderedDict[int, Slots] = OrderedDict()  # the least lately used first
        self._staged: set[int] = set()
        self._given_up: set[int] = set()  # while a batch works on them
        self._before: dict[int, Slots | None] = {}  # what the last batch replaced, while that may be undone
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def stage(self, run: Run) -> "Staged":
        """What the batch of this frame works on; ``commit`` it once it is done."""
        self.forget(run.given_up)
        if not run.sequences:
            return Staged(self, run, {})
        if len(run.sequences) != len(run.rows):
            raise WireError("another number of sequences than items")
        found: dict[int, Slots | None] = {}
        with self._lock:
            for item, (rows, sequence) in enumerate(zip(run.rows, run.sequences, strict=True)):
                if sequence is None:
                    continue
                number, start, _ = sequence
                if rows != 1:
                    raise WireError("an item of a sequence with another number of rows than 1")
                assert number not in self._staged, "one sequence is in two batches at a time"
                self._staged.add(number)
                found[item] = {} if start else self._kept.get(number)
        return Staged(self, run, found)

    def forget(self, numbers: Sequence[int]) -> None:
        """Nobody will ask for these again; what a batch still works on goes once that is done."""
        if not numbers:
            return
        with self._lock:
            for number in numbers:
                self._kept.pop(number, None)
                self._before.pop(number, None)
                if number in self._staged:
                    self._given_up.add(number)

    def settle(self, run: Run, written: Mapping[int, Slots]) -> Callable[[], None]:
        """Keep what the items of a batch wrote; the sequences of other items stay as they were. Returns what undoes it.

        To be undone only while the front has not been answered: until then nobody else sees these sequences.
        """
        before: dict[int, Slots | None] = {}
        with self._lock:
            self._before = before
            for item, sequence in enumerate(run.sequences):
                if sequence is None:
                    continue
                number, _, end = sequence
                self._staged.discard(number)
                if number in self._given_up:
                    self._given_up.discard(number)
                elif item in written:
                    before[number] = self._kept.get(number)
                    self._put(number, None if end else _frozen(written[item]))
            self._make_room()
        return lambda: self._restore(before)

    def _restore(self, before: Mapping[int, Slots | None]) -> None:
        with self._lock:
            for number, kept in before.items():
                self._put(number, kept)

    def _put(self, number: int, slots: Slots | None) -> None:
        self._kept.pop(number, None)
        if slots is not None:
            self._kept[number] = slots  # as the last used

    def _make_room(self) -> None:
        """Only a front that does not say what it gave up makes it needed."""
        while len(self._kept) > self._kept_max:
            number = next(iter(self._kept))
            if number in self._staged:
                return
            del self._kept[number]


@dataclass(slots=True)
class Staged:
    """What one batch works on: its rows get copies, and what they wrote waits for ``commit``."""

    states: States
    run: Run
    found: Mapping[int, Slots | None]  # by item; None = the worker does not have its sequence
    written: dict[int, Slots] = field(default_factory=dict)  # by item

    def batch(self, columns: Mapping[str, Column], item: int | None = None) -> Batch:
        """All items' rows, or only one item's, as they begin. Rows whose sequence is not here have failed."""
        rows = sum(self.run.rows) if item is None else self.run.rows[item]
        batch = Batch(dict(columns), rows, list(range(rows)))
        if not self.found:
            return batch
        for row, slots in self._by_place(item).items():
            if slots is None:
                text = "what was kept of this sequence is lost; start it again with sequence_start"
                batch.fail(row, Failed(Code.SEQUENCE_LOST, text, field="sequence_id"))
            else:
                batch.sequences[row] = dict(slots)
        batch.ending = {place for each, place in self._places(item).items() if self._ends(each)}
        batch.settle()
        return batch

    def keep(self, batch: Batch, item: int | None = None) -> None:
        """The batch has answers for the rows that did not fail: what these wrote is to count."""
        if not batch.sequences:
            return
        places = {place: each for each, place in self._places(item).items()}
        for place, slots in batch.sequences.items():
            if place not in batch.failures:
                self.written[places[place]] = slots

    def commit(self) -> Callable[[], None]:
        """See ``States.settle``."""
        if not self.run.sequences:
            return _nothing
        return self.states.settle(self.run, self.written)

    def _ends(self, item: int) -> bool:
        sequence = self.run.sequences[item]
        return sequence is not None and sequence[2]

    def _by_place(self, item: int | None) -> dict[int, Slots | None]:
        return {place: self.found[each] for each, place in self._places(item).items()}

    def _places(self, item: int | None) -> dict[int, int]:
        """The items that continue a sequence, each with its row's first place in the batch."""
        if item is not None:
            return {item: 0} if item in self.found else {}
        if not self.found:
            return {}
        starts = list(accumulate(self.run.rows, initial=0))
        return {each: starts[each] for each in self.found}


def _nothing() -> None:
    """Nothing was kept, so nothing is to be undone."""


def _frozen(slots: Slots) -> Slots:
    """Arrays that nobody can change in place: the next request would see it, whether or not that one gets an answer."""
    for value in slots.values():
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        for array in inside:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
    return slots
