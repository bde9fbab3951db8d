"""When an HTTP/1.1 answer is complete, from the bytes that have come so far; as little work as the load allows."""

from typing import NamedTuple

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_CHUNKED = b"\r\ntransfer-encoding: chunked"
_CLOSE = b"\r\nconnection: close"
_LAST_CHUNK = b"0\r\n\r\n"


class Answer(NamedTuple):
    """One complete answer. ``keeps``: the connection may be used again; a body in chunks is given as on the wire."""

    status: int
    keeps: bool
    body_at: int


def complete(data: bytes) -> Answer | None:
    """The answer, or None while some of it is missing. Without a length and chunks its body is held to be empty."""
    end = data.find(_HEAD_END)
    if end < 0:
        return None
    body_at = end + len(_HEAD_END)
    head = data[:body_at].lower()
    found = head.find(_LENGTH)
    if found >= 0:
        begin = found + len(_LENGTH)
        if len(data) - body_at < int(head[begin : head.find(b"\r", begin)]):
            return None
    elif _CHUNKED in head and not data.endswith(_LAST_CHUNK):
        return None
    return Answer(int(data[9:12]), _CLOSE not in head, body_at)


def post(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """The bytes of one request, for a connection that is kept."""
    fields = {"Host": "127.0.0.1", **headers, "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body
