"""HTTP/2 and gRPC that no honest client sends (H29 to H31): each ends as it should, and others are served meanwhile."""

import gzip
import os
import socket
import struct
import time
from pathlib import Path

import grpc
import pytest
from tests.faults.h2_wire import (
    CALM,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PUSH,
    REQUEST,
    RESET,
    SETTINGS,
    WINDOW,
    call,
    field,
    frame,
    head,
    message,
    wire,
)  # fmt: skip
from tests.grpc_calls import channel, infer_request
from tests.serving import Server

PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED, COMPRESSION_ERROR = 1, 3, 5, 6, 7, 9
OK = field(b"grpc-status", b"0")
CPU_S_MAX = 2.0


def status(number: int) -> bytes:
    return field(b"grpc-status", b"%d" % number)


def answers(server: Server) -> None:
    """A right request on a connection of its own."""
    with wire(server) as other:
        other.say(call(1))
        assert OK in other.trailers(1)


def cpu_s(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_h29_http_1_on_the_grpc_port_is_told_so_and_closed(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.grpc_port), 10) as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        said = sock.makefile("rb").read()
    assert said.startswith(b"HTTP/1.1 400 ") and b"gRPC" in said


def test_h29_a_preface_that_does_not_come_is_not_waited_for_for_ever(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.grpc_port), 10) as sock:
        sock.sendall(PREFACE[:10])
        started = time.monotonic()
        while sock.recv(4096):
            pass
    assert time.monotonic() - started < 6


OPEN = frame(HEADERS, END_HEADERS, 1, head())
BROKEN = {
    "a frame of 16 MiB": (b"\xff\xff\xff" + bytes(6), FRAME_SIZE_ERROR),
    "data of no stream": (frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
    "data of a stream that was never opened": (frame(DATA, 0, 7, b"x"), PROTOCOL_ERROR),
    "a stream of the server's": (frame(HEADERS, END_HEADERS, 2, head()), PROTOCOL_ERROR),
    "headers of no stream": (frame(HEADERS, END_HEADERS, 0, head()), PROTOCOL_ERROR),
    "a push": (frame(PUSH, END_HEADERS, 1, bytes(4)), PROTOCOL_ERROR),
    "headers that are interrupted": (frame(HEADERS, 0, 1, head()) + frame(PING, 0, 0, bytes(8)), PROTOCOL_ERROR),
    "headers that go on without a beginning": (frame(CONTINUATION, END_HEADERS, 1, head()), PROTOCOL_ERROR),
    "headers that cannot be decoded": (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), COMPRESSION_ERROR),
    "padding longer than its frame": (frame(HEADERS, END_HEADERS | 8, 1, b"\xff" + head()[:20]), PROTOCOL_ERROR),
    "a ping of 7 bytes": (frame(PING, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "settings that are cut off": (frame(SETTINGS, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
    "an initial window of 2^31": (frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31)), FLOW_CONTROL_ERROR),
    "a window widened by nothing": (frame(WINDOW, 0, 0, bytes(4)), PROTOCOL_ERROR),
    "a window of a stream that was never opened": (frame(WINDOW, 0, 9, b"\0\0\0\1"), PROTOCOL_ERROR),
    "a ping of a stream": (frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "a priority of 4 bytes": (frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    "a priority of no stream": (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
    "headers whose priority is cut off": (frame(HEADERS, END_HEADERS | 0x20, 1, bytes(4)), FRAME_SIZE_ERROR),
    "pushes switched to 2": (frame(SETTINGS, 0, 0, struct.pack(">HI", 2, 2)), PROTOCOL_ERROR),
    "data after the end": (call(1) + frame(DATA, 0, 1, b"x"), STREAM_CLOSED),
    "headers after the end": (call(1) + frame(HEADERS, END_HEADERS, 1, head()), STREAM_CLOSED),
    "data after a reset": (OPEN + frame(RESET, 0, 1, bytes(4)) + frame(DATA, 0, 1, b"x"), STREAM_CLOSED),
    "pseudo fields in trailers": (OPEN + frame(HEADERS, 5, 1, field(b":path", b"/")), PROTOCOL_ERROR),
    "headers twice": (OPEN * 2, PROTOCOL_ERROR),
    "a stream lower than the last": (call(5) + call(3), STREAM_CLOSED),
    "33 settings in one frame": (frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535) * 33), CALM),
    "a header block of 33 KiB": (
        frame(HEADERS, 0, 1, bytes(17_000)) + frame(CONTINUATION, END_HEADERS, 1, bytes(17_000)),
        CALM,
    ),
    "a window widened too far": (frame(WINDOW, 0, 0, struct.pack(">I", 2**31 - 1)) * 2, FLOW_CONTROL_ERROR),
    "an end of a stream that was never opened": (frame(RESET, 0, 9, bytes(4)), PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_protocol_ends_the_connection_with_the_reason(server: Server, name: str) -> None:
    sent, reason = BROKEN[name]
    with wire(server) as broken:
        broken.say(sent + call(11))
        said = list(broken.frames())
    assert [got.reason for got in said if got.kind == GOAWAY] == [reason]
    assert all(got.stream != 11 for got in said)
    answers(server)


FLOODS = {
    "rapid reset": b"".join(call(2 * n + 1) + frame(RESET, 0, 2 * n + 1, bytes(4)) for n in range(5000)),
    "resets of one stream": call(1) + frame(RESET, 0, 1, bytes(4)) * 50_000,
    "CONTINUATION": frame(HEADERS, 0, 1, head()) + frame(CONTINUATION, 0, 1, field(b"a", b"b" * 100) * 100) * 500,
    "empty CONTINUATION": frame(HEADERS, 0, 1, head()) + frame(CONTINUATION, 0, 1) * 50_000,
    "ping": frame(PING, 0, 0, bytes(8)) * 50_000,
    "settings": frame(SETTINGS, 0, 0) * 50_000,
    "priority": frame(PRIORITY, 0, 1, bytes(5)) * 50_000,
    "windows": frame(HEADERS, END_HEADERS, 1, head()) + frame(WINDOW, 0, 1, b"\0\0\0\1") * 50_000,
    "empty data": frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 0, 1) * 50_000,
    "heads that are no request": b"".join(frame(HEADERS, 5, 2 * n + 1, field(b"A", b"b")) for n in range(5000)),
    "data of what was answered": call(1, head(path="/a/b"), b"")[:-9] + frame(DATA, 0, 1, bytes(20)) * 50_000,
    "tiny data": frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 0, 1, b"\0") * 50_000,
    "large headers": b"".join(frame(HEADERS, 5, 2 * n + 1, bytes(3) * 5000) for n in range(500)),
}


@pytest.mark.parametrize("name", FLOODS)
def test_h30_a_flood_is_told_to_calm_down_and_costs_little(server: Server, name: str) -> None:
    before = cpu_s(server)
    with wire(server) as flood:
        flood.say(FLOODS[name])
        reasons = [got.reason for got in flood.frames() if got.kind == GOAWAY]
    assert reasons == [CALM]
    assert cpu_s(server) - before < CPU_S_MAX
    answers(server)


def test_h30_of_2000_streams_100_are_open_and_the_others_refused(server: Server) -> None:
    with wire(server, 2.0) as many:
        many.say(b"".join(frame(HEADERS, END_HEADERS, 2 * n + 1, head()) for n in range(150)))
        refused = [got.stream for got in many.frames() if got.kind == RESET and got.reason == REFUSED]
    assert refused == [2 * n + 1 for n in range(100, 150)]
    answers(server)


def test_h30_an_answer_for_which_there_is_no_window_waits_and_leaves_when_there_is(server: Server) -> None:
    with wire(server, settings=struct.pack(">HI", 4, 0)) as slow:
        slow.say(call(1))
        slow.until(HEADERS, 1)
        answers(server)
        slow.say(frame(WINDOW, 0, 1, struct.pack(">I", 10)))
        assert len(slow.until(DATA, 1).payload) == 10
        slow.say(frame(WINDOW, 0, 1, struct.pack(">I", 10_000)))
        assert OK in slow.trailers(1)


def test_data_beyond_the_window_ends_the_connection(server: Server) -> None:
    with wire(server, settings=struct.pack(">HI", 4, 0)) as pushy:  # takes no answer, so little is taken of it
        pushy.say(frame(HEADERS, END_HEADERS, 1, head("ModelStreamInfer")))
        pushy.say(frame(DATA, 0, 1, REQUEST * 200) * (2 * 1024 * 1024 // len(REQUEST * 200)))
        assert pushy.until(GOAWAY).reason == FLOW_CONTROL_ERROR
    answers(server)


def test_a_stream_whose_answers_are_not_taken_is_not_read_on(server: Server) -> None:
    with wire(server, settings=struct.pack(">HI", 4, 0)) as greedy:
        greedy.say(frame(HEADERS, END_HEADERS, 1, head("ModelStreamInfer")) + frame(DATA, END_STREAM, 1, REQUEST * 200))
        greedy.until(HEADERS, 1)
        answers(server)
        greedy.say(frame(WINDOW, 0, 1, struct.pack(">I", 2**30)))
        assert OK in greedy.trailers(1)
        assert sum(got.kind == DATA for got in greedy.frames_so_far()) == 200


BOMB = gzip.compress(bytes(200_000_000))
GZIP = head(grpc_encoding="gzip")
H31 = {
    "a message larger than allowed": (head(), struct.pack(">BI", 0, 2**31) + b"x", 8),
    "gzip bomb": (GZIP, message(BOMB, 1), 8),
    "gzip that is cut off": (GZIP, message(BOMB[:100], 1), 3),
    "compressed, with no coding said": (head(), message(b"x", 1), 3),
    "a coding that is not known": (head(grpc_encoding="br"), REQUEST, 12),
    "corrupt protobuf": (head(), message(b"\xff" * 20), 3),
    "text that is no UTF-8": (head(), message(b"\x0a\x02\xff\xfe"), 3),
    "an unknown field": (head(), message(REQUEST[5:] + b"\xfa\x01\x01x"), 0),
    "deadline 0": (head(grpc_timeout="0m"), REQUEST, 4),
    "deadline of 1e8 hours": (head(grpc_timeout="99999999H"), REQUEST, 0),
    "a deadline that is none": (head(grpc_timeout="soon"), REQUEST, 3),
    "no message": (head(), b"", 3),
    "two messages": (head(), REQUEST * 2, 3),
    "half a message": (head(), REQUEST[:20], 3),
    "a length longer than what comes": (head(), struct.pack(">BI", 0, 100) + b"x", 3),
    "a method that is not there": (head("ModelStealWeights"), REQUEST, 12),
    "a path": (head(path="/v2/models/identity/infer"), REQUEST, 12),
}


@pytest.mark.parametrize("name", H31)
def test_h31_what_is_wrong_with_a_call_ends_that_call_alone(server: Server, name: str) -> None:
    block, body, expected = H31[name]
    pieces = [body[start : start + 16_000] for start in range(0, len(body), 16_000)] or [b""]
    data = b"".join(frame(DATA, 0, 1, piece) for piece in pieces) + frame(DATA, END_STREAM, 1)
    with wire(server) as bad:
        bad.say(frame(HEADERS, END_HEADERS, 1, block) + data + call(3))
        ended = [bad.trailers(1), bad.trailers(3)]
    assert status(expected) in ended[0], ended[0]
    assert OK in ended[1]
    for told in (b"Traceback", b"google", b"upb", b"/work", b"zlib", b"forwardpass."):
        assert told not in ended[0]


def test_calls_that_end_with_their_head_are_refused_and_leave_nothing_open(server: Server) -> None:
    with wire(server) as empty:
        for n in range(150):
            empty.say(frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, head()))
            assert status(3) in empty.trailers(2 * n + 1)
        empty.say(call(301))
        assert OK in empty.trailers(301)


def test_frames_in_single_bytes_are_read_as_any_other(server: Server) -> None:
    with wire(server) as drops:
        drops.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in call(1):
            drops.say(bytes((byte,)))
        assert OK in drops.trailers(1)


def test_a_content_type_that_is_not_grpcs_is_refused_in_http(server: Server) -> None:
    with wire(server) as odd:
        odd.say(frame(HEADERS, END_HEADERS | END_STREAM, 1, head(content_type="application/json")))
        assert b"415" in odd.until(HEADERS, 1).payload


def test_h31_20_kb_of_metadata_are_refused_and_the_connection_goes_on(server: Server) -> None:
    block = head() + field(b"long", b"x" * 120) * 160
    with wire(server) as large:
        large.say(frame(HEADERS, 0, 1, block[:16_000]) + frame(CONTINUATION, END_HEADERS, 1, block[16_000:]))
        large.say(frame(DATA, END_STREAM, 1, REQUEST) + call(3))
        assert status(8) in large.trailers(1)
        assert OK in large.trailers(3)


def test_h31_101_entries_of_metadata_are_refused_and_the_connection_goes_on(server: Server) -> None:
    with wire(server) as many:
        many.say(call(1, head() + field(b"a", b"b") * 95) + call(3, head() + field(b"a", b"b") * 94))
        ended = many.trailers(1)
        assert status(8) in ended and b"16384 bytes in 100 entries" in ended
        assert OK in many.trailers(3)  # with the 6 of its own, 100


def test_h31_grpcios_own_client_sees_the_metadata_refused(server: Server) -> None:
    request = infer_request("identity", "x", "FP32", [1, 4], bytes(16))
    with channel(server.grpc_port) as client:
        with pytest.raises(grpc.RpcError) as caught:
            client.infer(request, metadata=(("long", "x" * 20_000),))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert list(client.infer(request).outputs[0].shape) == [1, 4]


def test_a_message_that_comes_too_slowly_is_not_waited_for(server: Server) -> None:
    with wire(server, 20.0) as slow:
        slow.say(frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 0, 1, REQUEST[:20]))
        ended = slow.trailers(1)
    assert b"body_too_slow" in ended and status(4) in ended
