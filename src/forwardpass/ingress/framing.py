"""The rules of an HTTP/1.1 message as pure functions: bytes in, meaning or refusal out; no socket, no clock.

llhttp judges the grammar of a head, one head at a time; the rules here close what it lets through (HTTP/0.9 and 2.0,
RTSP, doubled spaces) and bound what it does not. Bodies are framed here and not by llhttp, which takes chunk
extensions without end and does not tell where a message stopped. There is one reading of every message or none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from forwardpass.core.clock import random_id
from forwardpass.core.errors import Code, Failure, Refused, show
from forwardpass.ingress.message import HttpAnswer, HttpLimits
from forwardpass.ingress.routes import Family
from forwardpass.ingress.status import error_answer

METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"QUERY"))
_LINE_REST_BYTES = 64  # what a request line may have besides its target

_WORD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TOKEN = re.compile(_WORD)
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::[0-9]{1,5})?")
_TARGET = re.compile(rb"[!\"$-\[\]-~]+")  # visible ASCII without # (a fragment is never sent) and backslash
_BAD_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}
_BODILESS = (204, 304)
# Headers that decide what the message is or who sent it: two of them are two readings.
_ONCE = frozenset(
    (
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-encoding",
        b"content-type",
        b"authorization",
        b"expect",
    )
)


@dataclass(slots=True)
class Head:
    """A head that passed every rule. ``length`` is the body's as sent; None means chunked."""

    method: bytes
    path: str
    query: str
    headers: dict[bytes, bytes]
    length: int | None
    encoding: bytes  # of the body: b"", b"gzip" or b"deflate"
    keep_alive: bool
    http_1_0: bool
    expects_continue: bool
    asked: Any = None  # what whoever answers has found out of it; a client that repeats its head need not be read again


class _Fields:
    """What llhttp calls back; the names set to None spare it the look-up and the call."""

    on_message_begin = on_url = on_headers_complete = on_body = on_message_complete = None
    on_chunk_header = on_chunk_complete = on_status = None

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.doubled: bytes | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self.headers:
            if name in _ONCE:
                self.doubled = name
            value = self.headers[name] + b", " + value
        self.headers[name] = value


def bad_request(text: str, detail: str = "") -> Refused:
    return Refused(Code.BAD_REQUEST, text, detail=detail)


def read_head(raw: bytes, limits: HttpLimits, here: bytes = b"") -> Head:
    """The head in ``raw``, which ends with its empty line; ``here`` is the address that it came to, as a host.

    Raises Refused; the connection cannot go on after that.
    """
    if len(raw) > limits.header_bytes_max:
        check_size(raw, limits)
    _check_lines(raw)  # before anything else, as while it comes in: a head is refused alike however it is cut
    line, _, rest = raw.partition(b"\r\n")
    method, target, http_1_0 = _request_line(line)
    if len(target) > limits.url_bytes_max:
        raise url_too_long(limits)
    if rest.count(b"\n") - 1 > limits.header_count_max:
        raise Refused(Code.HEADERS_TOO_LARGE, f"more than {limits.header_count_max} headers were sent")
    fields = _Fields()
    try:
        HttpRequestParser(fields).feed_data(raw)
    except HttpParserUpgrade:
        pass  # an offer to switch protocols that we do not take up: the request stands as HTTP/1.1
    except HttpParserError as error:
        raise bad_request("the request head is not well-formed HTTP/1.1", str(error)) from None
    if fields.doubled is not None:
        raise bad_request(f"the header {show(fields.doubled.decode('latin-1'))} may be sent only once")
    headers = fields.headers
    if b" \r\n" in rest or b"\t\r\n" in rest:
        headers = {name: value.rstrip(b" \t") for name, value in headers.items()}
    host = _host(headers, http_1_0, limits, here)
    path, query = split_target(target, host, method)
    length = body_length(headers, http_1_0, limits)
    keep_alive = not http_1_0
    if b"connection" in headers:
        options = [option.strip() for option in headers[b"connection"].lower().split(b",")]
        keep_alive = b"close" not in options and (not http_1_0 or b"keep-alive" in options)
    encoding = content_encoding(headers[b"content-encoding"]) if b"content-encoding" in headers else b""
    expects = b"expect" in headers and _expects(headers[b"expect"], http_1_0)
    return Head(method, path, query, headers, length, encoding, keep_alive, http_1_0, expects)


def first_line(line: bytes) -> tuple[bytes, str]:
    """The method and path of a request line, whatever the method; both empty where the path breaks a rule."""
    method, _, rest = line.partition(b" ")
    try:
        return method, split_target(rest.partition(b" ")[0], b"", method)[0]
    except Refused:
        return b"", ""


def refusal_of(failure: Failure, family: Family) -> HttpAnswer:
    """What a client is told whose message broke a rule, in the shape of its family, with what would be right."""
    answer = error_answer(failure, family, random_id())
    if failure.code is Code.METHOD_NOT_ALLOWED:
        answer.headers.append((b"Allow", b", ".join(sorted(METHODS))))
    elif failure.code is Code.UNSUPPORTED_MEDIA_TYPE:
        answer.headers.append((b"Accept-Encoding", b"gzip, deflate"))
    return answer


def check_begun(buffer: bytes, start: int, judged: int, limits: HttpLimits) -> None:
    """Refuse the beginning of a head that cannot become a good one: too large already, or a line without CR LF.

    It begins at ``start``, and was judged before as far as ``judged``: byte by byte it is judged once, not each time.
    """
    size = len(buffer) - start
    if size > min(limits.header_bytes_max, limits.url_bytes_max + _LINE_REST_BYTES):
        check_size(buffer, limits, start)
    if buffer.count(b"\n", judged) != buffer.count(b"\r\n", max(start, judged - 1)):
        raise _bad_line()


def _bad_line() -> Refused:
    return bad_request("the request head has a line that does not end with CR LF")


def _check_lines(raw: bytes) -> None:
    if raw.count(b"\n") != raw.count(b"\r\n"):
        raise _bad_line()


def check_size(buffer: bytes, limits: HttpLimits, start: int = 0) -> None:
    """Refuse a head, whole or begun, that is too large; names the target when that is what is too long."""
    size = len(buffer) - start
    if size > limits.url_bytes_max + _LINE_REST_BYTES and buffer.find(b"\r\n", start, start + limits.url_bytes_max) < 0:
        raise url_too_long(limits)
    if size > limits.header_bytes_max:
        raise Refused(Code.HEADERS_TOO_LARGE, f"the request head is larger than {limits.header_bytes_max} bytes")


def url_too_long(limits: HttpLimits) -> Refused:
    return Refused(Code.URL_TOO_LONG, f"the request target is longer than {limits.url_bytes_max} bytes")


def _request_line(line: bytes) -> tuple[bytes, bytes, bool]:
    parts = line.split(b" ")
    if len(parts) != 3 or not (parts[2] == b"HTTP/1.1" or parts[2] == b"HTTP/1.0"):
        raise bad_request("the request line is not METHOD TARGET HTTP/1.1")
    method, target, version = parts
    if method not in METHODS:
        if _TOKEN.fullmatch(method) is None or method != method.upper():
            raise bad_request("the method is not a word of upper-case letters")
        if method in (b"TRACE", b"CONNECT"):
            raise Refused(Code.METHOD_NOT_ALLOWED, f"the method {method.decode()} is not allowed here")
        raise Refused(Code.NOT_IMPLEMENTED, f"the method {show(method.decode())} is not known")
    return method, target, version == b"HTTP/1.0"


def _host(headers: dict[bytes, bytes], http_1_0: bool, limits: HttpLimits, here: bytes) -> bytes:
    host = headers.get(b"host")
    if host is None:
        if http_1_0 and not limits.hosts:
            return b""
        raise bad_request("the Host header is missing")
    check_host(host, limits, here)
    return host


def check_host(host: bytes, limits: HttpLimits, here: bytes = b"") -> None:
    """Raises Refused for what is no host name with an optional port, or one that is not served here.

    ``here``, the address that was connected to, is always served: probes know no name, and no name stands for it.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        raise bad_request("the Host header is not a host name with an optional port")
    name = match[1].lower()
    if limits.hosts and name != here and name.decode() not in limits.hosts:
        raise Refused(Code.MISDIRECTED, f"the host {show(host.decode())} is not served here")


def split_target(target: bytes, host: bytes, method: bytes) -> tuple[str, str]:
    """Path, percent-decoded exactly once, and query as sent. Refuses what two readers could take for two paths."""
    if _TARGET.fullmatch(target) is None:
        raise bad_request("the request target has a character that is not allowed")
    if target[:1] != b"/":
        if target == b"*" and method == b"OPTIONS":
            return "*", ""
        target = _without_authority(target, host)
    raw, _, query = target.partition(b"?")
    if b"%" in raw:
        raw = _decode_path(raw)
    path = raw.decode("utf-8")
    if "/." in path and any(part in (".", "..") for part in path.split("/")):
        raise bad_request("the path has a . or .. segment")
    return path, query.decode("ascii")


def _without_authority(target: bytes, host: bytes) -> bytes:
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        raise bad_request("the request target does not begin with /")
    end = min(rest.find(mark) % (len(rest) + 1) for mark in (b"/", b"?"))
    if rest[:end].lower() != host.lower():
        raise bad_request("the request target names another host than the Host header")
    return rest[end:] if rest[end:].startswith(b"/") else b"/" + rest[end:]


def _decode_path(raw: bytes) -> bytes:
    decoded = unquote_to_bytes(raw)
    if _BAD_PERCENT.search(raw) or decoded.count(b"/") != raw.count(b"/") or b"\\" in decoded:
        raise bad_request("the path has a percent sign without two hex digits, or an encoded slash")
    try:
        text = decoded.decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8 once decoded") from None
    if not text.isprintable():
        raise bad_request("the path has a control character once decoded")
    return decoded


def body_length(headers: dict[bytes, bytes], http_1_0: bool, limits: HttpLimits) -> int | None:
    """How many bytes of body follow the head; None means chunked."""
    transfer = headers.get(b"transfer-encoding")
    length = headers.get(b"content-length")
    if transfer is not None:
        if length is not None or http_1_0 or transfer.lower() != b"chunked":
            raise bad_request("Transfer-Encoding must be exactly chunked, in HTTP/1.1, without Content-Length")
        return None
    if length is None:
        return 0
    if not length.isdigit() or len(length) > 18:
        raise bad_request("Content-Length is not a whole number")
    count = int(length)
    if count > limits.body_bytes_max:
        raise too_large(limits)
    return count


def too_large(limits: HttpLimits) -> Refused:
    return Refused(Code.BODY_TOO_LARGE, f"the body is larger than {limits.body_bytes_max} bytes")


def _expects(expect: bytes, http_1_0: bool) -> bool:
    if http_1_0:
        return False
    if expect.lower() != b"100-continue":
        raise Refused(Code.EXPECTATION_FAILED, "the only expectation that can be met is 100-continue")
    return True


def content_encoding(value: bytes) -> bytes:
    """The body's one encoding: b"" for none. Raises Refused (unsupported_media_type)."""
    name = value.lower()
    if name in (b"gzip", b"x-gzip"):
        return b"gzip"
    if name == b"deflate":
        return name
    if name == b"identity":
        return b""
    raise Refused(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding must be gzip, deflate or left out")


class Opening(NamedTuple):
    """What many answers begin with: 200, JSON, these headers; ``lines`` are that as it is sent."""

    headers: Sequence[tuple[bytes, bytes]]
    lines: bytes

    def answer(self, id: str, text: bytes) -> HttpAnswer:
        """One of them."""
        return HttpAnswer(200, text, headers=[(b"X-Request-Id", id.encode()), *self.headers])


def opening_of(headers: Sequence[tuple[bytes, bytes]]) -> Opening:
    whole = answer_head(HttpAnswer(200, headers=list(headers)), 0, False, False)
    return Opening(headers, whole.replace(b"Content-Length: 0\r\n", b"")[:-2])


def answer_head(answer: HttpAnswer, length: int | None, http_1_0: bool, close: bool) -> bytes:
    """The answer's first bytes; length None is a body of unknown length: chunked, in HTTP/1.0 until the close."""
    lines = [_STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d Unnamed" % answer.status]
    lines.append(b"Content-Type: " + answer.content_type)
    if length is None:
        if not http_1_0:
            lines.append(b"Transfer-Encoding: chunked")
    elif answer.status not in _BODILESS:
        lines.append(b"Content-Length: %d" % length)
    if close:
        lines.append(b"Connection: close")
    elif http_1_0:
        lines.append(b"Connection: keep-alive")
    lines += [b": ".join(header) for header in answer.headers]
    breaks = len(lines) + 1
    lines += (b"", b"")
    head = b"\r\n".join(lines)
    assert head.count(b"\n") == head.count(b"\r") == breaks, "a header of ours has a line break in it"
    return head
