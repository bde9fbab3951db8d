"""Answers compressed as their clients accept it (RFC 9110, 12.5.3), and only where it is worth it."""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable

import pytest
from tests.ingress.small_plane import SmallPlane, headers_of

from forwardpass.ingress.compression import OFF_LOOP_BYTES_MIN, chosen
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.message import HttpAnswer

LEAST = 1000
LONG = b"[" + b"0.5," * LEAST + b"1]"
UNPACKED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


def plane(body: bytes | list[bytes | memoryview] = LONG, kind: bytes = b"application/json") -> SmallPlane:
    async def answering(call: Call) -> HttpAnswer:
        return HttpAnswer(200, body, kind)

    return SmallPlane(Edge(compress_bytes_min=LEAST), answering)


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (b"gzip", b"gzip"), (b"deflate", b"deflate"), (b"gzip, deflate", b"gzip"), (b"deflate, gzip", b"gzip"),
        (b"x-gzip", b"gzip"), (b"GZIP", b"gzip"), (b"gzip, deflate, br, zstd", b"gzip"), (b"br", b""), (b"", b""),
        (b"*", b"gzip"), (b"*;q=0.5, gzip;q=0", b"deflate"), (b"*;q=0", b""), (b"gzip;q=0", b""),
        (b"gzip;q=0.2, deflate;q=0.9", b"deflate"), (b"deflate ; q=0.5 , gzip ; q=0.50", b"gzip"),
        (b"identity", b""), (b"identity, gzip;q=0.5", b""), (b"identity;q=0.5, gzip", b"gzip"),
        (b"identity;q=0.5, *;q=0.5", b"gzip"), (b"gzip;q=2", b""), (b"gzip;q=0.1234", b""), (b"gzip;level=9", b""),
        (b",,;;gzip;, gzip", b"gzip"),
    ],
)  # fmt: skip
def test_the_coding_is_the_one_the_client_likes_best(accept: bytes, coding: bytes) -> None:
    assert chosen(accept)[0] == coding


@pytest.mark.parametrize("accept", [b"identity;q=0", b"gzip, identity;q=0.0", b"*;q=0", b"gzip, *;q=0"])
def test_an_uncoded_answer_is_refused_only_where_it_is_said(accept: bytes) -> None:
    assert chosen(accept)[1] and not chosen(b"gzip")[1] and not chosen(b"*;q=0, identity")[1]


@pytest.mark.parametrize("coding", UNPACKED)
@pytest.mark.parametrize("size", [LEAST, OFF_LOOP_BYTES_MIN + 1])
def test_an_answer_unpacks_to_what_it_was(coding: str, size: int) -> None:
    body = bytes(number % 7 for number in range(size))
    answer = plane([body[:100], memoryview(body)[100:]]).ask(headers={"Accept-Encoding": coding})
    assert isinstance(answer.body, bytes) and len(answer.body) < size
    assert UNPACKED[coding](answer.body) == body
    assert (headers_of(answer)["content-encoding"], headers_of(answer)["vary"]) == (coding, "Accept-Encoding")


def test_an_answer_that_could_be_compressed_says_what_it_depends_on() -> None:
    answer = plane().ask()
    assert answer.body == LONG
    assert headers_of(answer)["vary"] == "Accept-Encoding" and "content-encoding" not in headers_of(answer)


@pytest.mark.parametrize(
    ("body", "kind"),
    [(LONG[: LEAST - 1], b"application/json"), (LONG, b"image/png"), (LONG, b"audio/wav"), (b"", b"text/plain")],
)
def test_what_is_not_worth_it_goes_out_as_it_is(body: bytes, kind: bytes) -> None:
    answer = plane(body, kind).ask(headers={"Accept-Encoding": "gzip"})
    assert answer.body == body
    assert headers_of(answer).keys() == {"x-request-id"}


def test_a_short_answer_is_compressed_for_a_client_that_refuses_it_uncoded() -> None:
    answer = plane(b"[]").ask(headers={"Accept-Encoding": "gzip, identity;q=0"})
    assert isinstance(answer.body, bytes) and gzip.decompress(answer.body) == b"[]"


def test_a_client_that_accepts_nothing_gets_its_answer_uncoded() -> None:
    assert plane().ask(headers={"Accept-Encoding": "br, *;q=0"}).body == LONG


def test_a_body_that_does_not_get_smaller_goes_out_as_it_is() -> None:
    packed = gzip.compress(bytes(number * number % 251 for number in range(LEAST * 40)), 9)
    assert plane(packed).ask(headers={"Accept-Encoding": "gzip"}).body == packed


def test_a_stream_is_never_compressed() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield LONG

    async def answering(call: Call) -> HttpAnswer:
        return HttpAnswer(200, pieces(), b"text/event-stream")

    answer = SmallPlane(Edge(compress_bytes_min=1), answering).ask(headers={"Accept-Encoding": "gzip, identity;q=0"})
    assert isinstance(answer.body, AsyncIterator)


def test_compression_can_be_switched_off() -> None:
    small = plane()
    small = SmallPlane(Edge(), small.answering)
    assert small.ask(headers={"Accept-Encoding": "gzip"}).body == LONG
