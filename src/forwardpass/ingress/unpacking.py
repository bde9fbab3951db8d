"""Bodies that come compressed: undone piece by piece, within bounds, exactly one member."""

import zlib

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.message import HttpLimits

PIECE_BYTES = 1024 * 1024
INPUT_BYTES = 64 * 1024  # given to zlib at a time: what it leaves of that it copies
RATIO_FREE_BYTES = 1024 * 1024  # a body may always be unpacked to this size, whatever the ratio


class Unpacking:
    """One body in gzip or deflate (zlib format). ``size`` is what came out so far."""

    def __init__(self, body: bytes | bytearray, encoding: bytes, limits: HttpLimits) -> None:
        self.size = 0
        self._body = memoryview(body)
        self._position = 0
        self._name = encoding.decode()
        self._bytes_max = min(limits.body_bytes_max, max(RATIO_FREE_BYTES, limits.decompressed_ratio_max * len(body)))
        self._inflate = zlib.decompressobj(wbits=31 if encoding == b"gzip" else 15)

    def next(self) -> bytes:
        """The next PIECE_BYTES, fewer before the end; b"" after it. Raises Refused bad_encoding, body_too_large."""
        left = min(PIECE_BYTES, self._bytes_max + 1 - self.size)
        pieces: list[bytes] = []
        try:
            while left and not self._inflate.eof:
                data = self._inflate.unconsumed_tail or self._input()
                piece = self._inflate.decompress(data, left)
                if not (data or piece):
                    break
                left -= len(piece)
                pieces.append(piece)
        except zlib.error as error:
            raise Refused(Code.BAD_ENCODING, f"the body is not valid {self._name}", detail=str(error)) from None
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.size += len(whole)
        if self.size > self._bytes_max:
            text = f"the body is larger than {self._bytes_max} bytes once decoded from {self._name}"
            raise Refused(Code.BODY_TOO_LARGE, text)
        if not whole:
            self._check_end()
        return whole

    def _input(self) -> memoryview:
        start = self._position
        self._position = min(start + INPUT_BYTES, len(self._body))
        return self._body[start : self._position]

    def _check_end(self) -> None:
        if not self._inflate.eof or self._inflate.unused_data or self._position < len(self._body):
            raise Refused(Code.BAD_ENCODING, f"the {self._name} body is cut short, or has bytes after its end")


def decode_content(body: bytes | bytearray, encoding: bytes, limits: HttpLimits) -> bytes:
    """All of it at once. Raises Refused bad_encoding, body_too_large."""
    return b"".join(iter(Unpacking(body, encoding, limits).next, b""))
