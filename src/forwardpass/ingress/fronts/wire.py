"""What a front and the owner say to each other over a SOCK_SEQPACKET pair: many messages in one packet.

A packet is a msgpack list of messages, decoded only into the types below. What is larger than INLINE_BYTES_MAX travels
in a memory file whose descriptor rides along, in the order of the messages that say so.
"""

import array
import os
import socket
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from forwardpass.ingress.cors import Origins
from forwardpass.ingress.message import HttpLimits

INLINE_BYTES_MAX = 64 * 1024
PACKET_BYTES_MAX = 256 * 1024  # a head of the largest size beside a body that is inline has room in it
DESCRIPTORS_MAX = 16
SLOTS_MAX = 1024  # of heads that are remembered for one front
OPENINGS_MAX = 256  # of what answers begin with
SEND_BUFFER_BYTES = 1024 * 1024
_RIGHTS = socket.CMSG_SPACE(4 * DESCRIPTORS_MAX)


class Message(msgspec.Struct, array_like=True, gc=False):
    """``number`` is that of a request, counted by the front that it came to; 0 where it is about none."""

    number: int


class Opening(Message, tag=1, kw_only=True):
    """The first thing a front is told: how it serves."""

    number: int = 0
    limits: HttpLimits
    origins: Origins
    health_route: str
    predict_route: str
    tls: tuple[str, str, str] | None
    """Certificate, key and the authority of clients ("": none)."""
    row: int
    rows: int
    salt: bytes
    log: str


class Renew(Message, tag=2):
    """Look at the certificate now."""


class Drain(Message, tag=3):
    """Accept no more, let what runs end within so long, then end."""

    grace_s: float


class Ready(Message, tag=4):
    """A front accepts."""


class Line(msgspec.Struct, array_like=True, gc=False):
    """A head, and whose it is."""

    method: bytes
    path: str
    query: str
    headers: dict[bytes, bytes]
    encoding: bytes
    http_1_0: bool
    peer: str
    subject: str


class Asked(Message, tag=5):
    """A request; ``screens``: only its head, to be let in or not.

    A connection's head that it repeats has a ``slot``, and is told once; -1: none.
    """

    slot: int
    received_s: float
    body: bytes
    line: Line | None = None
    screens: bool = False
    memory: bool = False  # the body is in a memory file


class GivenUp(Message, tag=6):
    """Nobody waits for its answer any more."""


class Taken(Message, tag=7):
    """So many bytes of a stream went to the client."""

    size: int


class Answered(Message, tag=8):
    """``streams``: its body comes in pieces."""

    status: int
    body: bytes
    content_type: bytes
    headers: list[tuple[bytes, bytes]]
    close: bool = False
    streams: bool = False
    memory: bool = False


class Row(Message, tag=12):
    """A small answer whose head begins as others' did: ``opening`` (headers, and how they are sent) is told once."""

    slot: int
    id: str
    text: bytes
    opening: tuple[list[tuple[bytes, bytes]], bytes] | None = None


class LetIn(Message, tag=9):
    """The body of what was screened may come in."""


class Piece(Message, tag=10):
    data: bytes


class Ended(Message, tag=11):
    """There is no more of a stream; not ``whole``: it broke off, or there is no answer at all."""

    whole: bool


Said = Opening | Renew | Drain | Ready | Asked | GivenUp | Taken | Answered | Row | LetIn | Piece | Ended
encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Said]).decode


class BrokenWire(Exception):
    """The other side said what it never says."""


class Received(NamedTuple):
    """Whoever takes the descriptors closes them. The last may be missing: here there was no room for more."""

    messages: list[Said]
    descriptors: list[int]


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends, both non-blocking."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        end.setblocking(False)
    return ends


def send(end: socket.socket, messages: Sequence[bytes], descriptors: Sequence[int]) -> None:
    """One packet of encoded messages. Raises BlockingIOError (nothing was sent), OSError."""
    packet = (b"\xdd" + len(messages).to_bytes(4, "big"), *messages)  # the head of a msgpack list
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    end.sendmsg(packet if len(messages) < 512 else (packet[0], b"".join(messages)), rights)


def receive(end: socket.socket, buffer: bytearray) -> Received | None:
    """The next packet; None when the other side is gone. Raises BlockingIOError, OSError, BrokenWire."""
    size, ancillary, flags, _ = end.recvmsg_into((buffer,), _RIGHTS, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % 4])
    try:
        if not size:
            return None
        if flags & socket.MSG_TRUNC:
            raise BrokenWire("a cut packet")
        with memoryview(buffer) as view:
            messages = _decode(view[:size])
        told = sum(isinstance(message, Asked | Answered) and message.memory for message in messages)
        if told < len(descriptors) or (told > len(descriptors) and not flags & socket.MSG_CTRUNC):
            raise BrokenWire("another number of memory files than were told of")
    except (msgspec.MsgspecError, BrokenWire) as error:
        for descriptor in descriptors:
            os.close(descriptor)
        raise BrokenWire(str(error)) from error
    return Received(messages, list(descriptors))
