"""Bodies that come in packed: unpacked exactly, within bounds, and only for whoever is let in."""

import asyncio
import gzip
import zlib
from dataclasses import replace

import pytest
from tests.ingress.small_plane import SmallPlane, counting, headers_of

from forwardpass.ingress.cors import Origins
from forwardpass.ingress.edge import INLINE_BYTES_MAX, Edge
from forwardpass.ingress.grpc.plane import GrpcCall, GrpcPlane
from forwardpass.ingress.message import HttpLimits, HttpRequest
from forwardpass.ingress.rates import Rates
from forwardpass.ingress.route_table import SERVICE, routes_of

MIB = 1024 * 1024
BODY = b"hello " * 100
PACKED = gzip.compress(BODY, mtime=0)  # the same in every process: it is part of a test's id
GZIP = {"Content-Encoding": "gzip"}


def plane(bytes_max: int = MIB) -> SmallPlane:
    return SmallPlane(Edge(limits=replace(HttpLimits(), body_bytes_max=bytes_max)), counting)


@pytest.mark.parametrize(("coding", "packed"), [("gzip", PACKED), ("deflate", zlib.compress(BODY))])
def test_a_packed_body_is_what_it_was(coding: str, packed: bytes) -> None:
    assert plane().ask(packed, {"Content-Encoding": coding}).body == b"600"


def test_a_body_that_is_unpacked_in_a_thread_is_what_it_was() -> None:
    packed = gzip.compress(bytes(900_000), 0)
    assert len(packed) > INLINE_BYTES_MAX
    assert plane().ask(packed, GZIP).body == b"900000"


BAD_ENCODINGS = {
    "truncated": PACKED[:-5],
    "corrupt": PACKED[:20] + bytes(5) + PACKED[25:],
    "not gzip": b"hello",
    "trailing garbage": PACKED + b"x",
    "two members": PACKED + PACKED,
    "empty": b"",
}


@pytest.mark.parametrize("row", BAD_ENCODINGS)
def test_a_body_that_is_not_its_encoding_is_refused_and_never_run(row: str) -> None:
    small = plane()
    answer = small.ask(BAD_ENCODINGS[row], GZIP)
    assert (answer.status, headers_of(answer)["x-error-code"], small.runs) == (400, "bad_encoding", 0)
    assert small.inference.outside == {"bad_encoding": 1}


@pytest.mark.parametrize("size", [MIB + 1, 50_000_000])
def test_a_body_that_unpacks_past_the_limit_is_refused(size: int) -> None:
    assert plane().ask(gzip.compress(bytes(size)), GZIP).status == 413


@pytest.mark.parametrize(("size", "status"), [(MIB, 200), (MIB + 1, 413)])
def test_a_ratio_above_the_limit_is_refused_only_beyond_one_mebibyte(size: int, status: int) -> None:
    assert plane(4 * MIB).ask(gzip.compress(bytes(size)), GZIP).status == status


def test_nothing_is_unpacked_for_a_page_of_another_origin() -> None:
    answer = SmallPlane(Edge(Origins()), counting).ask(b"not gzip", {**GZIP, "Origin": "http://evil.example"})
    assert headers_of(answer)["x-error-code"] == "forbidden"


def test_nothing_is_unpacked_for_a_caller_over_its_rate() -> None:
    small = plane()
    small = SmallPlane(Edge(rates=Rates(1, small.clock)), counting, small.clock)
    codes = [headers_of(small.ask(b"not gzip", GZIP, peer="a"))["x-error-code"] for _ in range(2)]
    assert codes == ["bad_encoding", "rate_limited"]


def test_nothing_is_unpacked_where_no_body_is_taken() -> None:
    answer = plane().ask(b"not gzip", GZIP, method=b"GET", path="/about")
    assert headers_of(answer)["x-error-code"] == "bad_request"


def test_a_page_may_read_why_its_body_was_refused() -> None:
    page = "https://app.example"
    small = SmallPlane(Edge(Origins(frozenset([page.encode()]))), counting)
    answer = headers_of(small.ask(b"not gzip", {**GZIP, "Origin": page}))
    assert (answer["x-error-code"], answer["access-control-allow-origin"]) == ("bad_encoding", page)


@pytest.mark.parametrize("method", ["ModelInfer", "ServerLive"])
def test_nothing_is_unpacked_for_a_grpc_call_that_is_not_let_in(method: str) -> None:
    async def unpack() -> bytes:
        raise AssertionError("it is unpacked")

    small, routes = plane(), routes_of("data", "grpc")
    endpoints = {route.endpoint: counting for route in routes}
    served = GrpcPlane(small.inference, routes, endpoints, small.edge, small.clock)
    http = HttpRequest(b"POST", f"/{SERVICE}/{method}", "", {b"origin": b"http://evil.example"}, b"", 0.0)
    answer = asyncio.run(served.respond(GrpcCall(http, lambda: None), unpack))
    assert (answer.status, small.inference.outside) == (7, {"forbidden": 1})
