"""The frames of HTTP/2 (RFC 9113) as bytes, and the settings we send; no connection, no state."""

from enum import IntEnum
from struct import Struct

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20
PRIORITY_BYTES = 5
PING_BYTES = 8

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">HBBBI")  # the length in two parts, kind, flags, stream
HEAD_BYTES = HEAD.size
WINDOW_MAX = 2**31 - 1
WINDOW_DEFAULT = 65535
FRAME_BYTES_DEFAULT = 16384
FRAME_BYTES_MAX = 256 * 1024
"""The largest frame we take: large tensors come in few pieces."""

STREAM_WINDOW = 1024 * 1024
CONNECTION_WINDOW = 16 * 1024 * 1024
"""What a client may send before we say that it may go on, of one call and of all."""

SETTINGS_MAX = 32
"""Entries of one frame: there are a handful of settings, and each client sends each once."""

ENABLE_PUSH, MAX_CONCURRENT, INITIAL_WINDOW, MAX_FRAME, MAX_HEADER_LIST = 2, 3, 4, 5, 6
_ENTRY = Struct(">HI")
_NUMBER = Struct(">I")

_SPOKEN = b'{"error":"this port speaks gRPC: HTTP/2 from the start"}'
HTTP_1 = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_SPOKEN), _SPOKEN)
)
"""To a client that begins with something else than the preface."""


class Reason(IntEnum):
    """Why a stream or the connection ends, in HTTP/2's numbers."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Broken(Exception):
    """The client broke a rule after which nothing of the connection can be trusted."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return head(kind, flags, stream, len(payload)) + payload


def head(kind: int, flags: int, stream: int, length: int) -> bytes:
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream)


def settings(streams_max: int, header_bytes_max: int) -> bytes:
    """What a server says first: our settings, and a larger window for the connection."""
    entries = (
        (MAX_CONCURRENT, streams_max),
        (INITIAL_WINDOW, STREAM_WINDOW),
        (MAX_FRAME, FRAME_BYTES_MAX),
        (MAX_HEADER_LIST, header_bytes_max),
    )
    payload = b"".join(_ENTRY.pack(*entry) for entry in entries)
    return frame(SETTINGS, 0, 0, payload) + window_update(0, CONNECTION_WINDOW - WINDOW_DEFAULT)


def read_settings(payload: bytes) -> dict[int, int]:
    """A client's settings by number, the last of each. Raises Broken."""
    if len(payload) % _ENTRY.size:
        raise Broken(Reason.FRAME_SIZE_ERROR, "settings that are cut off")
    if len(payload) > SETTINGS_MAX * _ENTRY.size:
        raise Broken(Reason.ENHANCE_YOUR_CALM, "more settings than there are")
    found: dict[int, int] = {}
    for name, value in _ENTRY.iter_unpack(payload):
        if name == ENABLE_PUSH and value > 1:
            raise Broken(Reason.PROTOCOL_ERROR, "a push setting that is neither 0 nor 1")
        if name == INITIAL_WINDOW and value > WINDOW_MAX:
            raise Broken(Reason.FLOW_CONTROL_ERROR, "an initial window that is too large")
        if name == MAX_FRAME and not FRAME_BYTES_DEFAULT <= value < 2**24:
            raise Broken(Reason.PROTOCOL_ERROR, "a frame size that is out of bounds")
        found[name] = value
    return found


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW, 0, stream, _NUMBER.pack(size))


def reset(stream: int, reason: Reason) -> bytes:
    return frame(RESET, 0, stream, _NUMBER.pack(reason))


def go_away(last_stream: int, reason: Reason, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last_stream) + _NUMBER.pack(reason) + text.encode())


def number(payload: bytes) -> int:
    """The 31 bits that make up a frame. Raises Broken for any other length."""
    if len(payload) != _NUMBER.size:
        raise Broken(Reason.FRAME_SIZE_ERROR, "a frame of the wrong size")
    value: int = _NUMBER.unpack(payload)[0] & WINDOW_MAX
    return value


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload of DATA without its padding, or what is left of HEADERS. Raises Broken."""
    if not flags & PADDED:
        return payload
    if not payload:
        raise Broken(Reason.FRAME_SIZE_ERROR, "a frame without the length of its padding")
    end = len(payload) - payload[0]
    if end < 1:
        raise Broken(Reason.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1:end]


def block(payload: bytes, flags: int, stream: int) -> bytes:
    """The part of a header block in HEADERS: without padding, and without the priority that nobody uses. Raises Broken."""
    fragment = unpadded(payload, flags)
    if not flags & WITH_PRIORITY:
        return fragment
    if len(fragment) < PRIORITY_BYTES:
        raise Broken(Reason.FRAME_SIZE_ERROR, "a priority that is cut off")
    check_priority(fragment[:PRIORITY_BYTES], stream)
    return fragment[PRIORITY_BYTES:]


def check_ping(payload: bytes, stream: int) -> None:
    """Raises Broken for what is no ping."""
    if stream:
        raise Broken(Reason.PROTOCOL_ERROR, "a ping of a stream")
    if len(payload) != PING_BYTES:
        raise Broken(Reason.FRAME_SIZE_ERROR, "a ping of the wrong size")


def check_priority(payload: bytes, stream: int) -> None:
    """Raises Broken for what is no priority; what a right one says has no meaning here."""
    if len(payload) != PRIORITY_BYTES:
        raise Broken(Reason.FRAME_SIZE_ERROR, "a priority of the wrong size")
    if stream == 0:
        raise Broken(Reason.PROTOCOL_ERROR, "a priority of no stream")
