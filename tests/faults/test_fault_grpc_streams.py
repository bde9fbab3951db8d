"""Streams of one connection of HTTP/2 that are wrong, slow or given up, beside others that are served meanwhile (H30)."""

import json
import socket
import struct
import threading
from collections import Counter

import grpc
import pytest
from tests.faults.h2_wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    REQUEST,
    RESET,
    WINDOW,
    call,
    field,
    frame,
    head,
    wire,
)  # fmt: skip
from tests.faults.test_fault_grpc import OK, cpu_s, status
from tests.grpc_calls import channel, infer_request
from tests.serving import Server

PROTOCOL_ERROR = 1
SENT = frame(DATA, END_STREAM, 1, REQUEST)
ODD = {
    "two methods": (field(b":method", b"GET"), SENT),
    "an upper-case name": (field(b"X-Name", b"a"), SENT),
    "a connection header": (field(b"transfer-encoding", b"chunked"), SENT),
    "more data than it said": (field(b"content-length", b"10"), SENT),
    "less data than it said": (field(b"content-length", b"1000"), SENT),
}


@pytest.mark.parametrize("name", ODD)
def test_a_head_that_is_no_request_ends_its_stream_alone(server: Server, name: str) -> None:
    more, data = ODD[name]
    with wire(server) as odd:
        odd.say(frame(HEADERS, END_HEADERS, 1, head() + more) + data + call(3))
        assert odd.until(RESET, 1).reason == PROTOCOL_ERROR
        assert OK in odd.trailers(3)


def test_a_content_length_that_is_right_is_taken(server: Server) -> None:
    with wire(server) as exact:
        exact.say(call(1, head(content_length=str(len(REQUEST)))))
        assert OK in exact.trailers(1)


def test_trailers_end_a_call(server: Server) -> None:
    with wire(server) as trailing:
        trailing.say(call(1)[: -9 - len(REQUEST)] + frame(DATA, 0, 1, REQUEST))
        trailing.say(frame(HEADERS, END_HEADERS | END_STREAM, 1, field(b"a", b"b")))
        assert OK in trailing.trailers(1)


def test_flag_0x20_means_nothing_on_data(server: Server) -> None:
    with wire(server) as flagged:
        padded = bytes((3,)) + REQUEST + bytes(3)
        flagged.say(frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, END_STREAM | 0x8 | 0x20, 1, padded))
        assert OK in flagged.trailers(1)


def test_what_is_under_way_when_a_call_is_refused_harms_nobody(server: Server) -> None:
    with wire(server) as late:
        late.say(frame(HEADERS, END_HEADERS, 1, head(path="/a/b")))
        assert status(12) in late.trailers(1)
        late.say(frame(DATA, 0, 1, bytes(16_000)) * 64)
        assert late.until(RESET, 1).reason == 0
        late.say(frame(HEADERS, END_HEADERS | END_STREAM, 1, field(b"a", b"b")) + call(3))
        assert OK in late.trailers(3)


def test_5000_calls_of_no_method_are_answered_each(server: Server) -> None:
    before = cpu_s(server)
    with wire(server) as wrong:
        threading.Thread(
            target=wrong.say, args=(b"".join(call(2 * n + 1, head(path="/a/b")) for n in range(5000)) + call(10_001),)
        ).start()
        assert OK in wrong.trailers(10_001)
        assert sum(status(12) in got.payload for got in wrong.frames_so_far()) == 5000
    assert cpu_s(server) - before < 4.0


def test_of_many_initial_windows_the_last_counts(server: Server) -> None:
    entries = struct.pack(">HI", 4, 2**31 - 1) + struct.pack(">HI", 4, 0) + struct.pack(">HI", 4, 7)
    with wire(server, settings=entries) as slow:
        slow.say(call(1))
        assert len(slow.until(DATA, 1).payload) == 7


def test_headers_that_drip_in_are_not_waited_for(server: Server) -> None:
    with wire(server, 1.0) as dripping:
        dripping.say(frame(HEADERS, 0, 1, head()[:20]))
        for byte in head()[20:60]:
            dripping.say(frame(9, 0, 1, bytes((byte,))))
            if any(got.kind == GOAWAY for got in dripping.frames()):  # it listens for a second
                break
        assert [got.reason for got in dripping.frames_so_far() if got.kind == GOAWAY] == [PROTOCOL_ERROR]


def test_clients_with_short_deadlines_do_not_cost_others_the_connection(server: Server) -> None:
    request, hasty = infer_request("identity", "x", "FP32", [1, 4], bytes(16)), Counter[grpc.StatusCode]()
    slow = infer_request("divide", "a", "INT32", [1, 1], struct.pack("<i", 1))  # its batches wait for 0.3 s
    slow.inputs.add(name="b", datatype="INT32", shape=[1, 1])
    slow.raw_input_contents.append(struct.pack("<i", 1))

    def hurry() -> None:
        for _ in range(100):
            try:
                client.infer(slow, timeout=0.02)
            except grpc.RpcError as error:
                hasty[error.code()] += 1

    with channel(server.grpc_port) as client:
        threads = [threading.Thread(target=hurry) for _ in range(20)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            client.infer(request, timeout=20)
        for thread in threads:
            thread.join()
    assert hasty[grpc.StatusCode.DEADLINE_EXCEEDED] > 100


def test_resets_that_cross_the_answers_cost_nothing(server: Server) -> None:
    with wire(server) as eager:
        before = b""
        for stream in range(1, 3001, 2):
            eager.say(before + call(stream))
            assert OK in eager.trailers(stream)
            eager.frames_so_far().clear()
            before = frame(RESET, 0, stream, bytes(4)) + frame(WINDOW, 0, 0, struct.pack(">I", 200))


def test_http_1_is_answered_in_json(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.grpc_port), 10) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        head_text, _, body = sock.makefile("rb").read().partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head_text
    assert "gRPC" in json.loads(body)["error"]
