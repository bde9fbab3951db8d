"""A kept answer as bytes for a store that servers share, and back: what comes from there is checked, not trusted."""

from hashlib import sha256
from math import prod
from typing import Any

import msgspec

from forwardpass.cache.kept import Kept
from forwardpass.core.clock import wall_s
from forwardpass.core.request import Note
from forwardpass.core.tensor import ITEM_BYTES, Tensor, byte_offsets


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    made_at_s: float  # since 1970: it is told to other machines
    rows: int
    outputs: list[tuple[str, tuple[int, ...], bytes, list[tuple[int, ...]]]]
    notes: list[Note]
    tokens: int


SUM_BYTES = 16
NESTED_MAX = 16
"""Of lists and objects in the value of a note."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


def packed(key: bytes, kept: Kept, made_at_s: float) -> bytes:
    """``made_at_s`` since 1970. The answer cannot be damaged, nor stand under another key, unseen."""
    outputs = [(each.datatype, each.shape, bytes(each.data), list(each.shapes)) for each in kept.outputs]
    value = _encoder.encode(_Packed(made_at_s, kept.rows, outputs, list(kept.notes), kept.tokens))
    return _sum(key, value) + value


def unpacked(key: bytes, data: bytes, now: float) -> Kept | None:
    """None for what is no whole answer. One that another machine's clock puts into the future was made now."""
    value = data[SUM_BYTES:]
    if data[:SUM_BYTES] != _sum(key, value):
        return None
    try:
        found = _decoder.decode(value)
    except (msgspec.MsgspecError, RecursionError):
        return None
    outputs = [Tensor(kind, shape, data, shapes or ()) for kind, shape, data, shapes in found.outputs]
    if found.rows < 1 or found.tokens < 0 or not all(_whole(each, found.rows) for each in outputs):
        return None
    if any(not 0 <= note.row < found.rows or not _plain(note.value, NESTED_MAX) for note in found.notes):
        return None
    return Kept(found.rows, outputs, found.notes, found.tokens, now - max(0.0, wall_s() - found.made_at_s))


def _whole(tensor: Tensor, rows: int) -> bool:
    """Whether it has as many bytes as its shape says."""
    shapes = [(1, *each) for each in tensor.shapes] or [tensor.shape]
    if tensor.shape[:1] != (rows,) or any(min(each, default=0) < 0 for each in shapes):
        return False
    if tensor.shapes and (
        len(tensor.shapes) != rows or {len(each) + 1 for each in tensor.shapes} != {len(tensor.shape)}
    ):
        return False
    elements = sum(map(prod, shapes))
    if tensor.datatype in ITEM_BYTES:
        return elements * ITEM_BYTES[tensor.datatype] == len(tensor.data)
    try:
        return tensor.datatype == "BYTES" and len(byte_offsets(tensor.data, elements)) > 0
    except ValueError:
        return False


def _plain(value: Any, nested_max: int) -> bool:
    """Whether it can be said as JSON."""
    if isinstance(value, dict):
        return nested_max > 0 and all(type(name) is str and _plain(value[name], nested_max - 1) for name in value)
    if isinstance(value, list):
        return nested_max > 0 and all(_plain(each, nested_max - 1) for each in value)
    return value is None or isinstance(value, str | int | float)


def _sum(key: bytes, value: bytes) -> bytes:
    return sha256(key + value).digest()[:SUM_BYTES]
