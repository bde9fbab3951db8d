"""Bytes fields of a protobuf message kept out of protobuf, which copies them: cut out of one, or put behind one."""

from collections.abc import Sequence

Buffers = Sequence[bytes | memoryview]

FIELDS_MAX = 256
"""So many fields of a message are looked at; one that has more is protobuf's to read, whole."""

_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10


def cut(body: bytes | bytearray, number: int) -> tuple[bytes, list[memoryview]] | None:
    """The message without its fields of that number, and these, in their order, as parts of ``body``.

    None for what is not well-formed or has too many fields.
    """
    view = memoryview(body)
    found: list[memoryview] = []
    rest: list[memoryview] = []
    position = kept = 0
    for _ in range(FIELDS_MAX):
        if position == len(view):
            rest.append(view[kept:])
            return b"".join(rest), found
        start = position
        key, position = _varint(view, position)
        kind = key & 7
        if kind == _DELIMITED:
            size, position = _varint(view, position)
        elif kind == _VARINT:
            size = _varint(view, position)[1] - position
        else:
            size = {_FIXED_64: 8, _FIXED_32: 4}.get(kind, len(view))
        end = position + size
        if end > len(view):
            return None
        if kind == _DELIMITED and key >> 3 == number:
            rest.append(view[kept:start])
            found.append(view[position:end])
            kept = end
        position = end
    return None


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """A number and where it ends; what is cut off or too long ends beyond the message."""
    number = 0
    for index, byte in enumerate(view[position : position + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    return 0, len(view) + 1


def head(number: int, size: int) -> bytes:
    """What stands before the bytes of a field of bytes or a message."""
    return _as_varint(number << 3 | _DELIMITED) + _as_varint(size)


def _as_varint(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
