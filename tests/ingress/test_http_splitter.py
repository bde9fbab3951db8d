"""Where the bytes are cut on their way never changes what is read from them."""

import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.bodies import CHUNKS_AT_ONCE_MAX
from forwardpass.ingress.message import HttpLimits
from forwardpass.ingress.splitter import Splitter

LIMITS = HttpLimits()
Read = list[tuple[bytes, str, bytes] | Code]


def read(pieces: list[bytes], limits: HttpLimits = LIMITS) -> Read:
    """Everything a splitter makes of these pieces."""
    splitter, out = Splitter(limits), Read()
    try:
        for piece in pieces:
            splitter.feed(piece)
            while (request := splitter.take(1.0)) is not None:
                out.append((request[0].method, request[0].path, request[1]))
    except Refused as refused:
        out.append(refused.code)
    return out


def message(body: bytes, chunks: list[int] | None, path: bytes = b"/p") -> bytes:
    head = b"POST " + path + b" HTTP/1.1\r\nHost: a\r\n"
    if chunks is None:
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    wire = head + b"Transfer-Encoding: chunked\r\n\r\n"
    for size in [*chunks, len(body) or 1]:
        if piece := body[:size]:
            wire += b"%x;note\r\n%b\r\n" % (len(piece), piece)
        body = body[size:]
    return wire + b"0\r\n\r\n"


WHOLE = message(b"abc", None, b"/1") + b"\r\n" + message(b"defghi", [2, 3], b"/2") + message(b"", None, b"/3")


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_a_cut_at_any_byte_gives_the_same_requests(cut: int) -> None:
    expected = [(b"POST", "/1", b"abc"), (b"POST", "/2", b"defghi"), (b"POST", "/3", b"")]
    assert read([WHOLE[:cut], WHOLE[cut:]]) == expected


def test_requests_that_come_byte_by_byte_are_the_same() -> None:
    assert read([WHOLE[i : i + 1] for i in range(len(WHOLE))]) == read([WHOLE])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=40), st.none() | st.lists(st.integers(1, 9), max_size=4)), max_size=4),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_any_messages_cut_anywhere_come_out_whole_and_in_order(
    messages: list[tuple[bytes, list[int] | None]], cuts: list[int]
) -> None:
    wire = b"".join(message(body, chunks) for body, chunks in messages)
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    pieces = [wire[a:b] for a, b in pairwise(edges)]
    assert read(pieces) == [(b"POST", "/p", body) for body, _ in messages]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_message_is_read_one_way_or_refused_wherever_it_is_cut(data: st.DataObject) -> None:
    wire = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.sampled_from(b"\r\n \t:;,0fx\x00\xff/%"))
    whole = read([bytes(wire)])
    assert read([bytes(wire[i : i + 1]) for i in range(len(wire))]) == whole


def test_a_body_at_the_limit_is_taken_and_one_byte_more_refused() -> None:
    limits = HttpLimits(body_bytes_max=1000)
    for size, refused in ((1000, False), (1001, True)):
        for chunks in (None, [7] * 200):
            assert (read([message(bytes(size), chunks)], limits) == [Code.BODY_TOO_LARGE]) is refused


def test_chunks_at_the_limit_are_taken_and_one_more_refused() -> None:
    limits = HttpLimits(chunks_max=10)  # the last, empty one counts
    assert read([message(b"x" * 9, [1] * 9)], limits) == [(b"POST", "/p", b"x" * 9)]
    assert read([message(b"x" * 10, [1] * 10)], limits) == [Code.TOO_MANY_CHUNKS]


def test_a_head_has_its_time_and_a_body_its_pace() -> None:
    splitter = Splitter(HttpLimits(header_time_s=5, body_grace_s=10, body_rate_min=100))
    assert not splitter.begun
    splitter.feed(b"POST / HTTP/1.1\r\n")
    splitter.take(100.0)
    assert splitter.begun and splitter.overdue(105.0) is None
    late = splitter.overdue(105.1)
    splitter.feed(b"Host: a\r\nContent-Length: 100000\r\n\r\n")
    splitter.take(106.0)
    splitter.feed(bytes(1100))
    splitter.take(110.0)
    assert splitter.overdue(116.0) is None and splitter.overdue(116.5) is None
    slow = splitter.overdue(126.6)
    assert late is not None and slow is not None
    assert (late.code, slow.code) == (Code.HEADER_TIMEOUT, Code.BODY_TOO_SLOW)


def test_chunks_of_one_byte_are_read_some_thousand_at_a_time() -> None:
    """43,000 in one read would hold up the loop for a tenth of a second."""
    splitter, turns = Splitter(LIMITS), 0
    splitter.feed(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 43_000 + b"0\r\n\r\n"
    )
    while (request := splitter.take(1.0)) is None:
        assert splitter.tired
        turns += 1
    assert (turns, request[1]) == (43_000 // CHUNKS_AT_ONCE_MAX, b"x" * 43_000)


def test_a_body_in_short_chunks_that_is_not_whole_is_no_reason_to_go_on() -> None:
    splitter = Splitter(LIMITS)
    splitter.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 9)
    assert splitter.take(1.0) is None and not splitter.tired


@pytest.mark.alone
def test_a_head_byte_by_byte_costs_no_more_than_its_bytes() -> None:
    """128 KiB took 46 s when each byte had all that came before it judged again."""
    splitter, started = Splitter(replace(LIMITS, header_bytes_max=2**17)), time.process_time()
    wire = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 130_000 + b"\r\n\r\n"
    for i in range(len(wire)):
        splitter.feed(wire[i : i + 1])
        request = splitter.take(1.0)
    assert request is not None and time.process_time() - started < 5


@pytest.mark.parametrize("line", [b"X: a\n", b"\n", b"X: a\r\r\n", b"\nX"])
def test_a_bare_line_feed_is_found_wherever_it_is_cut(line: bytes) -> None:
    wire = b"\r\nGET / HTTP/1.1\r\n" + line + b"Host: a\r\n\r\n"
    for cut in range(1, len(wire)):
        assert read([wire[:cut], wire[cut:]])[:1] == [Code.BAD_REQUEST]
    assert read([wire[i : i + 1] for i in range(len(wire))])[:1] == [Code.BAD_REQUEST]


def test_an_empty_line_in_two_pieces_begins_nothing() -> None:
    splitter = Splitter(LIMITS)
    for piece in (b"\r", b"\n"):
        splitter.feed(piece)
        assert splitter.take(1.0) is None
    assert not splitter.begun and splitter.overdue(1000.0) is None


def splitter_after(first: bytes, limits: HttpLimits = LIMITS) -> Splitter:
    """One that has read a whole request."""
    splitter = Splitter(limits)
    splitter.feed(first)
    assert splitter.take(1.0) is not None
    return splitter


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=30), st.binary(max_size=300), st.sampled_from([b"", b"X-After: 1\r\n"]))
def test_a_head_that_comes_again_is_told_with_its_own_body(first: bytes, body: bytes, after: bytes) -> None:
    def whole(of: bytes) -> bytes:
        return b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (len(of), after, of)

    repeated = splitter_after(whole(first)).repeated(whole(body))
    assert repeated is not None and (repeated[0].path, repeated[1]) == ("/p", body)


@pytest.mark.parametrize(
    "again",
    [
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab",  # not whole
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcPOST",  # more than one
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc",
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nX-More: 1\r\n\r\nabc",
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n",
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 0000000003\r\n\r\nabc",
        b"POST /q HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789",  # over the limit
        b"POST /p HTTP/1.1\r\nhost: a\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
def test_anything_else_is_read_in_full(again: bytes) -> None:
    first = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    assert splitter_after(first, replace(LIMITS, body_bytes_max=8)).repeated(again) is None


def test_nothing_is_taken_for_a_head_that_came_before_in_the_middle_of_a_message() -> None:
    first = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\n"
    splitter = splitter_after(first + b"x" * 200)
    splitter.feed(first + b"x")
    assert splitter.take(1.0) is None
    assert splitter.repeated(first + b"x" * 200) is None
