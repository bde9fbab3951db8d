"""Token ids in place of a text: what a caller sends who has cut the text into tokens already.

On the way to the worker such an element of a text column begins with a byte that no UTF-8 text contains, and then has
each id as a little-endian int32. Only ``pack_token_ids`` makes one: every way in for text refuses that byte.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from forwardpass.core.errors import Code, Refused, show
from forwardpass.core.tensor import Buffer

ID_BYTES = 4
"""About what a token of English text has, too: batches by length and costs in bytes take both alike."""

ID_MAX = 2**31 - 1
_MARK = b"\xff"


@dataclass(frozen=True, slots=True)
class TokenIds:
    """A row's text as ids of the model's own tokenizer; a value of a record, and of a column whose ``Field.ids`` is set."""

    ids: tuple[int, ...]


def pack_token_ids(ids: Sequence[int], field: str) -> bytes:
    """One element of a text column. Raises Refused for an id that no vocabulary has, naming it as ``<field>/<place>``."""
    try:
        packed = struct.pack(f"<{len(ids)}i", *ids)
    except struct.error:
        packed = b""
    if ids and (not packed or min(ids) < 0):
        place = next(place for place, each in enumerate(ids) if not 0 <= each <= ID_MAX)
        where = f"{field}/{place}"
        text = f"{where}: a token id is an integer from 0 to {ID_MAX}, got {show(ids[place])}"
        raise Refused(Code.OUT_OF_RANGE, text, field=where)
    return _MARK + packed


def holds_token_ids(element: Buffer) -> bool:
    """Whether an element of a text column is no text."""
    return element[:1] == _MARK


def unpack_token_ids(element: Buffer) -> TokenIds:
    """What ``pack_token_ids`` packed. Raises ValueError for anything else."""
    count, rest = divmod(len(element) - 1, ID_BYTES)
    if not holds_token_ids(element) or rest:
        raise ValueError("an element that holds no token ids")
    return TokenIds(struct.unpack_from(f"<{count}i", element, 1))
