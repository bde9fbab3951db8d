"""What the calls of one gRPC connection may hold (FAULTS H30): small limits, and clients that do not take answers."""

import gzip
import struct
from collections.abc import Iterator

import pytest
from tests import fixtures_onnx
from tests.faults.h2_wire import (
    CALM,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    WINDOW,
    Wire,
    call,
    field,
    frame,
    head,
    message,
    wire,
)  # fmt: skip
from tests.grpc_calls import channel, infer_request
from tests.serving import Server, serving

BODY_BYTES_MAX = 1024 * 1024
HELD_BYTES_MAX = 4 * BODY_BYTES_MAX
ROW_BYTES = 1000 * 4
NO_WINDOW = struct.pack(">HI", 4, 0)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    work = tmp_path_factory.mktemp("small")
    model = fixtures_onnx.identity(work / "rows.onnx", ("N", 1000))
    settings = {"grpc.serve": "on", "limits.body_bytes_max": BODY_BYTES_MAX}
    with serving(model, data=work / "data", settings=settings) as running:
        yield running


def rows(count: int) -> bytes:
    """A request for so many rows of zeros."""
    asked: bytes = infer_request("rows", "x", "FP32", [count, 1000], bytes(count * ROW_BYTES)).SerializeToString()
    return asked


def answers(server: Server) -> None:
    with wire(server) as other:
        other.say(call(1, body=message(rows(1))))
        assert field(b"grpc-status", b"0") in other.trailers(1)


def refused(client: Wire) -> set[int]:
    return {got.stream for got in client.frames() if b"queue_bytes_full" in got.payload}


def test_compressed_requests_count_with_what_they_are_unpacked(small: Server) -> None:
    packed, block = message(gzip.compress(rows(250)), 1), head(grpc_encoding="gzip")
    with wire(small, 2.0, NO_WINDOW) as client:  # takes no answer
        client.say(b"".join(call(2 * n + 1, block, packed) for n in range(12)))
        assert len(refused(client)) >= 12 - HELD_BYTES_MAX // (250 * ROW_BYTES)
    answers(small)


def test_requests_that_are_not_whole_are_bounded_in_all(small: Server) -> None:
    with wire(small, 2.0) as client:
        for stream in (1, 3, 5, 7, 9):
            client.say(frame(HEADERS, END_HEADERS, stream, head()) + pieces(stream, message(bytes(900_000))[:-1]))
        assert refused(client) == {9}
    answers(small)


def test_answers_that_are_not_taken_count_as_the_requests_did(small: Server) -> None:
    with wire(small, 2.0, NO_WINDOW) as client:
        for n in range(5):
            client.say(frame(HEADERS, END_HEADERS, 2 * n + 1, head()))
            client.say(pieces(2 * n + 1, message(rows(250)), END_STREAM))
            client.until(HEADERS, 2 * n + 1)
        assert refused(client) == {9}
    answers(small)


def pieces(stream: int, data: bytes, last: int = 0) -> bytes:
    """As DATA frames; ``last`` are the flags of the last one."""
    starts = range(0, len(data), 200_000)
    return b"".join(
        frame(DATA, last if start == starts[-1] else 0, stream, data[start : start + 200_000]) for start in starts
    )


def sent_until_it_stops(client: Wire, streams: list[int], data: bytes) -> int:
    """The bytes that the server lets these streams send of ``data`` each, when it is given time."""
    windows = dict.fromkeys(streams, 1024 * 1024)
    sent = dict.fromkeys(streams, 0)
    while any(windows[stream] and sent[stream] < len(data) for stream in streams):
        for stream in streams:
            piece = data[sent[stream] : sent[stream] + windows[stream]]
            client.say(pieces(stream, piece) if piece else b"")
            sent[stream] += len(piece)
        got = [each for each in client.frames() if each.kind == WINDOW and each.stream in sent]
        windows = {
            stream: 1024 * 1024 + sum(int.from_bytes(each.payload) for each in got if each.stream == stream) - taken
            for stream, taken in sent.items()
        }
    return sum(sent.values())


@pytest.mark.parametrize("count", [1, 2])
def test_streams_whose_answers_are_not_taken_are_not_read_on(small: Server, count: int) -> None:
    streams = [2 * n + 1 for n in range(count)]
    with wire(small, 1.0, NO_WINDOW) as client:
        client.say(b"".join(frame(HEADERS, END_HEADERS, stream, head("ModelStreamInfer")) for stream in streams))
        assert sent_until_it_stops(client, streams, message(rows(25)) * 100) <= HELD_BYTES_MAX
        assert not refused(client)
    answers(small)


def test_a_stream_larger_than_what_may_be_held_is_answered_whole(small: Server) -> None:
    asked = infer_request("rows", "x", "FP32", [200, 1000], bytes(200 * ROW_BYTES))
    with channel(small.grpc_port) as client:
        sizes = [len(got.infer_response.raw_output_contents[0]) for got in client.stream([asked] * 30)]
    assert sizes == [200 * ROW_BYTES] * 30


def test_a_message_in_crumbs_is_told_to_calm_down(small: Server) -> None:
    with wire(small) as crumbs:
        crumbs.say(frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 0, 1, message(bytes(BODY_BYTES_MAX))[:5]))
        crumbs.say(frame(DATA, 0, 1, b"xx") * 50_000)
        assert [got.reason for got in crumbs.frames() if got.kind == GOAWAY] == [CALM]
    answers(small)


def test_a_message_in_pieces_of_a_hundred_bytes_is_read_as_any_other(small: Server) -> None:
    whole = message(rows(250))
    with wire(small) as pieced:
        pieced.say(frame(HEADERS, END_HEADERS, 1, head()))
        pieced.say(b"".join(frame(DATA, 0, 1, whole[start : start + 100]) for start in range(0, len(whole), 100)))
        pieced.say(frame(WINDOW, 0, 0, struct.pack(">I", 2**20)) + frame(WINDOW, 0, 1, struct.pack(">I", 2**20)))
        pieced.say(frame(DATA, END_STREAM, 1))
        assert field(b"grpc-status", b"0") in pieced.trailers(1)


@pytest.mark.parametrize("flag", [2, 255])
def test_a_message_that_is_neither_compressed_nor_not_is_refused(small: Server, flag: int) -> None:
    with wire(small) as odd:
        odd.say(call(1, head(grpc_encoding="gzip"), message(gzip.compress(rows(1)), flag)))
        ended = odd.trailers(1)
    assert field(b"grpc-status", b"3") in ended and b"bad_encoding" in ended


def test_a_coding_that_is_not_known_is_answered_with_those_that_are(small: Server) -> None:
    with wire(small) as odd:
        odd.say(call(1, head(grpc_encoding="br")))
        ended = odd.trailers(1)
    assert field(b"grpc-status", b"12") in ended
    assert field(b"grpc-accept-encoding", b"identity,gzip,deflate") in ended
