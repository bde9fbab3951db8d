"""One item's answer as it is kept, and what it takes of the memory."""

from collections.abc import Sequence

import msgspec

from forwardpass.core.request import Note
from forwardpass.core.tensor import Tensor

ENTRY_BYTES = 640
"""What an entry takes beside its bytes: its key, its places in the shelf, and the objects that it is made of."""
TENSOR_BYTES = 320
SHAPE_BYTES = 64
NOTE_BYTES = 800


class Kept(msgspec.Struct, gc=False):
    """One item's answer: complete, and its own copy of the bytes, which nobody can change."""

    rows: int
    outputs: Sequence[Tensor]
    notes: Sequence[Note]
    tokens: int
    made_s: float  # on the server's clock

    @property
    def bytes_total(self) -> int:
        """What it takes of the memory."""
        total = ENTRY_BYTES
        for output in self.outputs:
            total += len(output.data) + TENSOR_BYTES + SHAPE_BYTES * len(output.shapes)
        for note in self.notes:
            total += NOTE_BYTES + 2 * len(repr(note.value))
        return total
