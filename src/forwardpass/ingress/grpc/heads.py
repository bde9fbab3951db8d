"""The head of a call: a client's fields by name, where they are a request as RFC 9113 (8.2, 8.3) has it."""

import re
from functools import lru_cache

from forwardpass.ingress.grpc.hpack import Fields

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_OF_HTTP_1 = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_FORBIDDEN = re.compile(rb"[\0\r\n]")
_LENGTH = re.compile(rb"[0-9]{1,18}")


def read_head(fields: Fields) -> dict[bytes, bytes] | None:
    """The fields by name, several of one name joined with ", "; None for what is no request."""
    headers: dict[bytes, bytes] = {}
    regular = False  # the fields that are not HTTP/2's own have begun
    for name, value in fields:
        if name[:1] == b":":
            if regular or name in headers or name not in _PSEUDO:
                return None
        else:
            regular = True
            if not _allowed(name):
                return None
        headers[name] = headers[name] + b", " + value if name in headers else value
    if _FORBIDDEN.search(b"".join(headers.values())):
        return None
    return headers if _complete(headers) else None


def _complete(headers: dict[bytes, bytes]) -> bool:
    authority, host = headers.get(b":authority"), headers.get(b"host")
    return (
        b":method" in headers
        and b":scheme" in headers
        and headers.get(b":path", b"") != b""
        and headers.get(b"te", b"trailers") == b"trailers"
        and _LENGTH.fullmatch(headers.get(b"content-length", b"0")) is not None
        and (authority is None or host is None or authority == host)
    )


def is_trailer(fields: Fields) -> bool:
    """Whether the fields may end a request."""
    return all(_allowed(name) and not _FORBIDDEN.search(value) for name, value in fields)


@lru_cache(1024)
def _allowed(name: bytes) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _OF_HTTP_1
