"""Frames between the front and a worker over a SOCK_SEQPACKET pair: fixed head, msgpack meta, raw columns.

A frame is one packet, so it is whole or absent. Up to INLINE_BYTES_MAX travel in the packet itself; anything larger in
a sealed memfd whose descriptor rides along. Both sides check every length before they touch the bytes, and decode meta
only into the declared types: nothing here can name a class, a path or a piece of code.
"""

import array
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from forwardpass.core.pipeline import Signature, Version
from forwardpass.core.tensor import Buffer

INLINE_BYTES_MAX = 64 * 1024
META_BYTES_MAX = 64 * 1024**2
PAYLOAD_BYTES_MAX = 2 * 1024**3
ANSWER_BYTES_MAX = 64 * 1024**2  # of one request's outputs: as much as a body may have by default
PACKET_BYTES_MAX = INLINE_BYTES_MAX + 64
_HEAD = struct.Struct("<4sBBHIQ")
_MAGIC = b"FPW1"
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_ONE_FD = socket.CMSG_SPACE(4)
_CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_NO_DESCRIPTORS = array.array("i")


class Kind(IntEnum):
    """What a frame says; the first two go to the worker, the others come from it."""

    LOAD = 1
    RUN = 2
    BEAT = 10
    LOADED = 11
    REFUSED = 12
    DONE = 13


class WireError(Exception):
    """The other side broke the protocol: the connection is of no more use."""


class NoRoom(WireError):
    """A whole frame came, but there is no memory for its payload; ``meta`` is all that could be read."""

    def __init__(self, meta: bytes) -> None:
        super().__init__("no memory for a payload")
        self.meta = meta


class Frame(NamedTuple):
    kind: Kind
    meta: bytes
    payload: memoryview


class Load(msgspec.Struct, array_like=True, frozen=True):
    """``settings`` and ``independent`` of an earlier load of the same version: what was tested is not tested again.

    ``careful``: no engine and no layout is tried, as a worker has ended when they were.
    """

    version: Version
    threads: int
    settings: list[dict[str, Any]] | None
    independent: bool = False
    careful: bool = False


class Loaded(msgspec.Struct, array_like=True, frozen=True):
    """``independent``: the self-test proved that rows do not depend on their batch mates."""

    signature: Signature
    platform: str
    independent: bool
    bitwise: bool
    max_difference: float
    reason: str
    warnings: list[str]
    settings: list[dict[str, Any]]
    load_s: float
    workers: int = 1  # as many as are best, where the version leaves that open,
    layout: str = ""  # and why


class RefusedLoad(msgspec.Struct, array_like=True, frozen=True):
    code: str
    problems: list[tuple[str, str, str, str, int | None]]
    detail: str


class Run(msgspec.Struct, array_like=True, frozen=True):
    """``rows`` per item; per column its row shape (per item when rows differ) and bytes in the payload."""

    batch: int
    rows: list[int]
    shapes: list[list[tuple[int, ...]]]  # [column][item], or one entry when all items agree
    sizes: list[int]  # bytes per column, all items
    sequences: list[tuple[int, bool, bool] | None] = []  # per item (number, starts it, ends it); [] = none has one
    given_up: list[int] = []  # numbers of sequences that nobody will ask for again
    until: list[float] = []  # per item, on the clock that both processes have: later it is not begun; [] = always


class PartMeta(msgspec.Struct, array_like=True, frozen=True):
    """One item: rows that succeeded, failed rows (row, code, text, detail, field), notes (row, name, value)."""

    rows: int
    failures: list[tuple[int, str, str, str, str]]
    notes: list[tuple[int, str, dict[str, Any]]]
    failure: tuple[str, str, str, str] | None = None  # the item as a whole
    tokens: int = 0  # that were made of the rows that succeeded


class OutputMeta(msgspec.Struct, array_like=True, frozen=True):
    name: str
    datatype: str
    shapes: list[list[tuple[int, ...]]]  # [item][row], one row where an item's agree; one item where all agree
    sizes: list[int]  # bytes per item


class Done(msgspec.Struct, array_like=True, frozen=True):
    batch: int
    parts: list[PartMeta]
    outputs: list[OutputMeta]
    preprocess_s: float
    execute_s: float
    postprocess_s: float
    begun: float = 0.0  # when the model was given the batch, on the clock that both processes have
    elements: int = 0  # of rows of different length that were filled up to one,
    padding: int = 0  # and with how many


encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Decoders:
    load: msgspec.msgpack.Decoder[Load]
    loaded: msgspec.msgpack.Decoder[Loaded]
    refused: msgspec.msgpack.Decoder[RefusedLoad]
    run: msgspec.msgpack.Decoder[Run]
    done: msgspec.msgpack.Decoder[Done]


decode = _Decoders(
    msgspec.msgpack.Decoder(Load),
    msgspec.msgpack.Decoder(Loaded),
    msgspec.msgpack.Decoder(RefusedLoad),
    msgspec.msgpack.Decoder(Run),
    msgspec.msgpack.Decoder(Done),
)
"""Typed decoders; each raises msgspec.ValidationError (a DecodeError) for anything else."""


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends: front (non-blocking) and worker (blocking); no other process gets to know either."""
    front, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (front, worker):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * PACKET_BYTES_MAX)
    front.setblocking(False)
    return front, worker


def send(end: socket.socket, kind: Kind, meta: bytes, columns: Sequence[Buffer] = ()) -> None:
    """One frame. Raises BlockingIOError on a full non-blocking socket (nothing was sent), OSError on a dead one."""
    size = sum(len(column) for column in columns)
    if len(meta) > META_BYTES_MAX or size > PAYLOAD_BYTES_MAX:
        raise WireError(f"a frame of {len(meta)} + {size} bytes")
    if len(meta) + size <= INLINE_BYTES_MAX:
        parts = columns if len(columns) <= 64 else (b"".join(columns),)
        end.sendmsg((_HEAD.pack(_MAGIC, kind, 0, 0, len(meta), size), meta, *parts))
        return
    memory = os.memfd_create("forwardpass", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write_all(memory, (meta, *columns))
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))]
        end.sendmsg((_HEAD.pack(_MAGIC, kind, 1, 0, len(meta), size),), rights)
    finally:
        os.close(memory)


def receive(end: socket.socket) -> Frame | None:
    """The next frame, or None when the other side is gone. BlockingIOError when there is none yet; WireError if broken.

    NoRoom when the payload does not fit into memory.
    """
    packet, ancillary, flags, _ = end.recvmsg(PACKET_BYTES_MAX, _ONE_FD)
    descriptors = array.array("i") if ancillary else _NO_DESCRIPTORS
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % 4])
    try:
        if not packet:
            return None
        if flags & _CUT or len(packet) < _HEAD.size:
            raise WireError("a cut packet")
        magic, kind_number, memfd, _, meta_size, size = _HEAD.unpack_from(packet)
        if magic != _MAGIC or meta_size > META_BYTES_MAX or size > PAYLOAD_BYTES_MAX or memfd != len(descriptors):
            raise WireError("a head out of bounds")
        if len(packet) != _HEAD.size + (0 if memfd else meta_size + size):
            raise WireError("lengths that do not add up")
        body = _mapped(descriptors[0], meta_size, size) if memfd else memoryview(packet)[_HEAD.size :]
        return Frame(Kind(kind_number), bytes(body[:meta_size]), body[meta_size:])
    except ValueError as error:
        raise WireError("an unknown kind") from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def split(payload: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    """Cut a payload into parts of these sizes; WireError when they do not add up to it."""
    parts: list[memoryview] = []
    position = 0
    for size in sizes:
        if size < 0:
            raise WireError("a negative size")
        parts.append(payload[position : position + size])
        position += size
    if position != len(payload):
        raise WireError("sizes that do not add up to the payload")
    return parts


def _write_all(memory: int, columns: Sequence[Buffer]) -> None:
    for start in range(0, len(columns), 512):
        pending = [memoryview(column).cast("B") for column in columns[start : start + 512] if len(column)]
        while pending:
            written = os.writev(memory, pending)
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if written:
                pending[0] = pending[0][written:]


def _mapped(descriptor: int, meta_size: int, payload_size: int) -> memoryview:
    size = meta_size + payload_size
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS or os.fstat(descriptor).st_size != size:
        raise WireError("shared memory that is not sealed at its size")
    try:
        return memoryview(mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))
    except (OSError, MemoryError) as error:
        raise NoRoom(os.pread(descriptor, meta_size, 0)) from error
