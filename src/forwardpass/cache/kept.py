"""One item's answer as it is kept, and what it takes of the memory."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from forwardpass.core.request import Note
from forwardpass.core.tensor import Tensor

ENTRY_BYTES = 640
"""What an entry takes beside its bytes: its key, its places in the shelf, and the objects that it is made of."""
TENSOR_BYTES = 320
SHAPE_BYTES = 64
DIMENSION_BYTES = 40
NOTE_BYTES = 400


class Kept(msgspec.Struct, gc=False):
    """One item's answer: complete, and its own copy of the bytes, which nobody can change."""

    rows: int
    outputs: Sequence[Tensor]
    notes: Sequence[Note]
    tokens: int
    made_s: float  # on the server's clock
    bytes_total: int = 0  # what it takes of the memory

    def __post_init__(self) -> None:
        total = ENTRY_BYTES
        for output in self.outputs:
            total += len(output.data) + TENSOR_BYTES
            for shape in output.shapes:
                total += SHAPE_BYTES + DIMENSION_BYTES * len(shape)
        for note in self.notes:
            total += NOTE_BYTES + sys.getsizeof(note.name) + _memory(note.value)
        self.bytes_total = total


def _memory(value: Any) -> int:
    """Of a value as JSON has them: a text of a few characters may take four bytes for each, an empty list 56."""
    total = sys.getsizeof(value)
    if isinstance(value, dict):
        return total + sum([_memory(name) + _memory(each) for name, each in value.items()])
    if isinstance(value, list | tuple):
        return total + sum(map(_memory, value))
    return total
