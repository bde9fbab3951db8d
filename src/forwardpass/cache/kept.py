"""One item's answer as it is kept, and what it takes of the memory."""

from collections.abc import Sequence

import msgspec

from forwardpass.core.request import Note
from forwardpass.core.tensor import Tensor

ENTRY_BYTES = 640
"""What an entry takes beside its bytes: its key, its places in the shelf, and the objects that it is made of."""
TENSOR_BYTES = 320
NOTE_BYTES = 800


class Kept(msgspec.Struct):
    """One item's answer: complete, and its own copy of the bytes, which nobody can change."""

    rows: int
    outputs: Sequence[Tensor]
    notes: Sequence[Note]
    tokens: int
    made_s: float  # on the server's clock

    @property
    def bytes_total(self) -> int:
        """What it takes of the memory."""
        outputs = sum([len(each.data) + TENSOR_BYTES + 64 * len(each.shapes) for each in self.outputs])
        return ENTRY_BYTES + outputs + sum([NOTE_BYTES + 2 * len(repr(note.value)) for note in self.notes])
