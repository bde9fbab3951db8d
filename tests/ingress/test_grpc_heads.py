"""Which fields are a request of HTTP/2 (RFC 9113, 8.2 and 8.3), and which may end one."""

import pytest

from forwardpass.ingress.grpc.heads import is_trailer, read_head

RIGHT = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/inference.GRPCInferenceService/ServerLive"),
    (b":authority", b"a.example"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]


def test_several_fields_of_one_name_are_joined() -> None:
    headers = read_head([*RIGHT, (b"a", b"1"), (b"a", b"2")])
    assert headers == {**dict(RIGHT), b"a": b"1, 2"}


WRONG = {
    "a name with an upper-case letter": (b"X-Client-Name", b"a"),
    "a name with a space": (b"x client", b"a"),
    "an empty name": (b"", b"a"),
    "a pseudo field that there is not": (b":status", b"200"),
    "a pseudo field twice": (b":method", b"GET"),
    "connection": (b"connection", b"close"),
    "transfer-encoding": (b"transfer-encoding", b"chunked"),
    "upgrade": (b"upgrade", b"h2c"),
    "te twice": (b"te", b"gzip"),
    "a line end in a value": (b"a", b"b\r\nc: d"),
    "NUL in a value": (b"a", b"b\0"),
    "a length that is none": (b"content-length", b"-1"),
    "a host that is another": (b"host", b"b.example"),
}


@pytest.mark.parametrize("field", WRONG.values(), ids=WRONG)
def test_a_field_that_is_not_allowed_makes_it_no_request(field: tuple[bytes, bytes]) -> None:
    assert read_head([*RIGHT, field]) is None


@pytest.mark.parametrize("name", [b":method", b":scheme", b":path"])
def test_what_every_request_has_may_not_be_missing(name: bytes) -> None:
    assert read_head([field for field in RIGHT if field[0] != name]) is None


def test_pseudo_fields_come_first() -> None:
    assert read_head([RIGHT[4], *RIGHT[:4]]) is None


def test_trailers_have_no_pseudo_fields() -> None:
    assert is_trailer([(b"a", b"b")])
    assert not is_trailer([(b":path", b"/")])
