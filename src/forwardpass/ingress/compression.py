"""Answers compressed, for clients that accept it and where it is worth it. Bodies that come in are unpacked in ``framing``."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Sequence

from forwardpass.ingress.message import HttpAnswer

LEVEL = 1  # of zlib: higher ones cost several times as much for a few percent
OFF_LOOP_BYTES_MIN = 64 * 1024  # compressing more than this would hold up everybody else
WINDOW_BITS = {b"gzip": 31, b"deflate": 15}
"""What we compress with; deflate is the zlib format, as RFC 9110 has it."""
_PACKED = (b"image/", b"audio/", b"video/", b"application/zip", b"application/gzip", b"application/pdf")
"""Media types that are compressed in themselves."""
_WEIGHT = re.compile(rb"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")

Buffers = Sequence[bytes | memoryview]


def chosen(accept: bytes) -> tuple[bytes, bool]:
    """The coding that an Accept-Encoding header likes best, b"" for none, and whether it refuses an uncoded answer.

    A part of it that is not well-formed counts as absent.
    """
    weights: dict[bytes, float] = {}
    for part in accept.lower().split(b","):
        name, *parameters = (piece.strip() for piece in part.split(b";"))
        weight = _weight(parameters)
        if weight is not None:
            weights.setdefault(name.removeprefix(b"x-"), weight)
    others = weights.get(b"*")
    best, coding = max((weights.get(name, others or 0.0), name) for name in (b"deflate", b"gzip"))
    plain = weights.get(b"identity", 0.0 if others == 0 else None)
    if not best or (plain is not None and plain > best):
        return b"", plain == 0
    return coding, plain == 0


def _weight(parameters: list[bytes]) -> float | None:
    if not parameters:
        return 1.0
    found = _WEIGHT.fullmatch(parameters[0])
    return float(found[1]) if found is not None and len(parameters) == 1 else None


def worth(answer: HttpAnswer, accept: bytes | None, bytes_min: int) -> bool:
    """Whether an answer's coding depends on what its client accepts: it has at least ``bytes_min`` bytes.

    A shorter one is compressed only for a client that refuses it uncoded; a stream, packed media and what has a
    coding already never are.
    """
    body = answer.body
    size = len(body) if isinstance(body, bytes) else _size(body)
    if size < bytes_min and (accept is None or b";" not in accept or not size or not _needed(accept)):
        return False  # no weight of zero without a semicolon: most clients pay for no more than that
    packed = answer.content_type.startswith(_PACKED)
    return not packed and all(name != b"Content-Encoding" for name, _ in answer.headers)


def _needed(accept: bytes) -> bool:
    """Whether an answer must be compressed, however short it is, and can be."""
    coding, needed = chosen(accept)
    return needed and bool(coding)


async def compress(answer: HttpAnswer, accept: bytes | None) -> None:
    """Compress the body of an answer that is worth it, in place, as its client likes it best.

    A client that accepts nothing we have gets it uncoded, and so does one of whose body compressing makes no less.
    """
    body = answer.body
    assert not isinstance(body, AsyncIterator), "a stream is never worth it"
    buffers: Buffers = (body,) if isinstance(body, bytes) else body
    size = _size(buffers)
    answer.headers.append((b"Vary", b"Accept-Encoding"))
    coding, needed = chosen(accept or b"")
    if not coding:
        return
    if size > OFF_LOOP_BYTES_MIN:
        packed = await asyncio.to_thread(pack, buffers, coding)
    else:
        packed = pack(buffers, coding)
    if len(packed) < size or needed:
        answer.body = packed
        answer.headers.append((b"Content-Encoding", coding))


def _size(body: Buffers | AsyncIterator[bytes]) -> int:
    return 0 if isinstance(body, AsyncIterator) else sum([memoryview(buffer).nbytes for buffer in body])


def pack(buffers: Buffers, coding: bytes) -> bytes:
    """All of the buffers as one gzip member or one zlib stream."""
    stream = zlib.compressobj(LEVEL, wbits=WINDOW_BITS[coding])
    return b"".join([*[stream.compress(buffer) for buffer in buffers], stream.flush()])
