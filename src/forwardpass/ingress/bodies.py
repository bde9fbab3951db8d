"""Bodies as they come in, in pieces of any size: of a length that was said, or in chunks. Pure: no socket, no clock."""

import re

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.framing import bad_request, too_large
from forwardpass.ingress.message import HttpLimits

CHUNK_LINE_BYTES_MAX = 256
CHUNKS_AT_ONCE_MAX = 4096  # are read before others have their turn: the smallest cost as much as kilobytes
PIECE_BYTES_MIN = 16 * 1024

_WORD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# Extensions mean nothing, and are held to their grammar: others read what is not of it each in a way of its own.
_CHUNK_SIZE = re.compile(rb'([0-9A-Fa-f]{1,8})(?:;%b(?:=(?:%b|"[\t !#-\[\]-~]*"))?)*' % (_WORD, _WORD))


class SizedBody:
    """Takes a body of known length in pieces; memory follows what came, not what was announced.

    Large pieces are kept as they came, and joined once; small ones, each of which costs more than its bytes, in one.
    """

    def __init__(self, length: int) -> None:
        self.size = 0
        self._length = length
        self._pieces: list[bytes | bytearray] = []

    def take(self, buffer: bytes, position: int) -> tuple[int, bool]:
        """Read on from ``position``; returns where it stopped and whether the body is whole."""
        end = min(len(buffer), position + self._length - self.size)
        pieces, count = self._pieces, end - position
        if count >= PIECE_BYTES_MIN:
            pieces.append(buffer[position:end])  # itself, where it is all of it
        elif pieces and isinstance(pieces[-1], bytearray):
            pieces[-1] += memoryview(buffer)[position:end]
        else:
            pieces.append(bytearray(memoryview(buffer)[position:end]))
        self.size += count
        return end, self.size == self._length

    def whole(self) -> bytes:
        return b"".join(self._pieces)

    def drop(self) -> None:
        """Hold nothing any more."""
        self._pieces, self.size = [], 0


class ChunkedBody:
    """Takes a chunked body in pieces of any size. Linear in the bytes; holds no more than the body's limit."""

    def __init__(self, limits: HttpLimits) -> None:
        self.data = bytearray()
        self._limits = limits
        self.tired = False  # it stopped where it could go on, for others to have their turn
        self._chunks = 0
        self._left = 0  # of the current chunk, its CR LF included; 0 = a size line is next

    @property
    def size(self) -> int:
        return len(self.data)

    def whole(self) -> bytes:
        return bytes(self.data)

    def drop(self) -> None:
        """Hold nothing any more."""
        self.data = bytearray()

    def take(self, buffer: bytes, position: int) -> tuple[int, bool]:
        """Read on from ``position``; returns where it stopped and whether the body is whole. Raises Refused."""
        last = self._chunks + CHUNKS_AT_ONCE_MAX
        self.tired = False
        while True:
            if self._left > 2:
                piece = buffer[position : position + self._left - 2]
                self.data += piece
                self._left -= len(piece)
                position += len(piece)
            if self._left > 2 or (self._left == 2 and len(buffer) - position < 2):
                return position, False
            if self._left == 2:
                if buffer[position : position + 2] != b"\r\n":
                    raise bad_request("a chunk is longer than the size before it says")
                self._left = 0
                position += 2
            end = buffer.find(b"\r\n", position, position + CHUNK_LINE_BYTES_MAX)
            if end < 0:
                if len(buffer) - position >= CHUNK_LINE_BYTES_MAX:
                    raise bad_request(f"a chunk's size line is longer than {CHUNK_LINE_BYTES_MAX} bytes")
                return position, False
            if self._chunks >= last:
                self.tired = True
                return position, False
            size = self._size(buffer[position:end])
            if size == 0:
                return self._last(buffer, position, end + 2)
            position = end + 2
            self._left = size + 2

    def _size(self, line: bytes) -> int:
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise bad_request("a chunk's size is not one to eight hex digits, with or without extensions")
        size = int(match[1], 16)
        self._chunks += 1
        if size > self._limits.body_bytes_max - len(self.data):
            raise too_large(self._limits)
        if self._chunks > self._limits.chunks_max:
            raise Refused(Code.TOO_MANY_CHUNKS, f"the body has more than {self._limits.chunks_max} chunks")
        return size

    def _last(self, buffer: bytes, line: int, end: int) -> tuple[int, bool]:
        if len(buffer) < end + 2:
            self._chunks -= 1  # the size line is read again once the empty line is here
            return line, False
        if buffer[end : end + 2] != b"\r\n":
            raise bad_request("trailers after a chunked body are not supported")
        return end + 2, True
