"""Cuts the bytes of one connection into whole requests: no socket, no loop, so every cut can be tested at every byte."""

import re
from collections.abc import Mapping

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.bodies import ChunkedBody, SizedBody
from forwardpass.ingress.framing import Head, check_begun, first_line, read_head
from forwardpass.ingress.message import HttpLimits

LENGTH_DIGITS_MAX = 9
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)", re.IGNORECASE)
_ORIGIN = re.compile(rb"\r\norigin:[ \t]*([^\r\n]*?)[ \t]*\r\n", re.IGNORECASE)


class Splitter:
    """``feed`` what came, then ``take`` until it gives None. After it raised Refused the connection is lost: stop.

    ``here`` is the address that was connected to, as a host.
    """

    def __init__(self, limits: HttpLimits, here: bytes = b"") -> None:
        self.awaits_go_ahead = False  # the client holds its body back until it is told 100 Continue
        self._limits = limits
        self._here = here
        self._buffer = b""  # read up to _position
        self._position = 0
        self._judged = 0  # bytes from there on that begin a head and were looked at
        self._head: Head | None = None  # of the message whose body is coming in
        self._body: SizedBody | ChunkedBody | None = None  # set when it does not come in one piece
        self._last_raw = b""  # a client mostly repeats its head: then it is not judged again
        self._last_head: Head | None = None
        self._before = self._after = b""  # of it, what stands around the length of its body; empty where there is none
        self._begun_s = 0.0  # when the head began, or when the body's pace was last looked at; 0.0 = between messages
        self._begun_bytes = 0  # of the body, at that moment

    def feed(self, data: bytes) -> None:
        self._buffer = self._buffer[self._position :] + data if self._position < len(self._buffer) else data
        self._position = 0

    def repeated(self, data: bytes) -> tuple[Head, bytes] | None:
        """The last head and a body, where nothing else is here and ``data`` is just that head once more and all of the body.

        It may say another Content-Length, which the head that is given does not show.
        """
        head, before, after = self._last_head, self._before, self._after
        if head is None or not before or self._head is not None or self._position < len(self._buffer):
            return None
        if not data.startswith(before):
            return None
        start = len(before)
        end = data.find(after, start, start + LENGTH_DIGITS_MAX + len(after))
        body = data[end + len(after) :]
        length = data[start:end]
        if end < 0 or not length.isdigit() or int(length) != len(body) or len(body) > self._limits.body_bytes_max:
            return None
        return head, body

    def take(self, now_s: float) -> tuple[Head, bytes] | None:
        """The next whole request, its body as sent; None when more bytes are needed. Raises Refused."""
        head = self._head
        if head is None:
            head = self._take_head(now_s) if self._position < len(self._buffer) else None
            if head is None:
                return None
        length = head.length
        if self._body is None and length is not None and length <= len(self._buffer) - self._position:
            body = self._buffer[self._position : self._position + length]
            self._position += length
        else:
            if self._body is None:
                self._body = ChunkedBody(self._limits) if length is None else SizedBody(length)
                self._head, self._begun_s, self._begun_bytes = head, now_s, 0
                self.awaits_go_ahead = head.expects_continue and self._position == len(self._buffer)
            self._position, whole = self._body.take(self._buffer, self._position)
            if not whole:
                return None
            body = self._body.whole()
        self._head = self._body = None
        self._begun_s = 0.0
        if self._position == len(self._buffer):
            self._buffer, self._position = b"", 0  # the body is the request's now
        return head, body

    def _take_head(self, now_s: float) -> Head | None:
        while self._buffer.startswith(b"\r\n", self._position):
            self._position += 2  # some clients end a body with an empty line that belongs to nothing
            self._judged = 0
            if self._position == len(self._buffer):
                self._begun_s = 0.0  # it was not the beginning of a head
        judged = self._position + self._judged
        end = self._buffer.find(b"\r\n\r\n", max(self._position, judged - 3)) + 4
        if end < 4:
            if self._position < len(self._buffer):  # more than empty lines
                self._begun_s = self._begun_s or now_s
                check_begun(self._buffer, self._position, judged, self._limits)
                self._judged = len(self._buffer) - self._position
            return None
        raw = self._buffer[self._position : end]
        if raw != self._last_raw or self._last_head is None:
            self._last_head = read_head(raw, self._limits, self._here)
            self._last_raw = raw
            said = _LENGTH.search(raw) if self._last_head.length else None
            self._before, self._after = (raw[: said.start(1)], raw[said.end(1) :]) if said is not None else (b"", b"")
        self._position = end
        self._judged = 0
        return self._last_head

    @property
    def begun(self) -> bool:
        """Whether a part of a message is here."""
        return bool(self._begun_s)

    @property
    def coming(self) -> Head | None:
        """The head of the body that is coming in."""
        return self._head

    @property
    def tired(self) -> bool:
        """Whether ``take`` gave None though it could go on: others should have their turn first."""
        return isinstance(self._body, ChunkedBody) and self._body.tired

    @property
    def asked(self) -> tuple[bytes, str, Mapping[bytes, bytes]]:
        """Method, path and headers of the message that is coming in, as far as its first line is here and right.

        Of a head that was refused its origin is all that is told; what is not known is empty.
        """
        if self._head is not None:
            return self._head.method, self._head.path, self._head.headers
        raw, end, _ = self._buffer[self._position :].partition(b"\r\n\r\n")
        line, broken, _ = raw.partition(b"\r\n")
        if not (broken or end):
            return b"", "", {}
        origins = _ORIGIN.findall(raw + b"\r\n") if end else []
        return *first_line(line), {b"origin": origins[0]} if len(origins) == 1 else {}

    @property
    def head_bytes(self) -> int:
        """Of the head that was taken last."""
        return len(self._last_raw)

    @property
    def unread_bytes(self) -> int:
        return len(self._buffer) - self._position

    @property
    def body_bytes(self) -> int:
        """What is here of a body that is not whole."""
        return 0 if self._body is None else self._body.size

    @property
    def announced_bytes(self) -> int:
        """What is still to come of that body, where its head says so."""
        head = self._head
        return 0 if head is None or head.length is None else head.length - self.body_bytes

    def drop(self) -> None:
        """Hold nothing any more: what is here will not be read on."""
        self._buffer, self._position, self._judged = b"", 0, 0
        if self._body is not None:
            self._body.drop()

    def excuse(self, now_s: float) -> None:
        """The client could not send until now: its time begins anew."""
        if self._begun_s:
            self._begun_s, self._begun_bytes = now_s, self.body_bytes

    def cut_short(self) -> Refused:
        """What to say when the client ends its side in the middle of a message."""
        code = Code.BAD_REQUEST if self._head is None else Code.INCOMPLETE_BODY
        return Refused(code, "the connection ended before the request was whole")

    def overdue(self, now_s: float) -> Refused | None:
        """Whether a message comes in too slowly: a head has one limit in all, a body a pace to keep."""
        limits = self._limits
        elapsed_s = now_s - self._begun_s
        if not self._begun_s:
            return None
        if self._head is None or self._body is None:
            if elapsed_s <= limits.header_time_s:
                return None
            return Refused(Code.HEADER_TIMEOUT, f"the request head took longer than {limits.header_time_s:g} s")
        if elapsed_s <= limits.body_grace_s:
            return None
        received = self._body.size
        if received - self._begun_bytes < limits.body_rate_min * elapsed_s:
            return Refused(Code.BODY_TOO_SLOW, f"the body came slower than {limits.body_rate_min} bytes a second")
        self._begun_s, self._begun_bytes = now_s, received
        return None
