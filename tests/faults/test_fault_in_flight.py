"""Fifty clients that each send the largest body there is (FAULTS V10), over HTTP and gRPC: bounded, and others are served."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from tests import fixtures_onnx
from tests.grpc_calls import Channel, channel, infer_request
from tests.serving import Server, serving, wait_until

MIB = 1024**2
BODY_BYTES = 64 * MIB
IN_FLIGHT_BYTES = 256 * MIB
PATH = b"/v2/models/identity/infer"
TENSOR = '{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("flight")
    (root / "models" / "identity" / "1").mkdir(parents=True)
    fixtures_onnx.identity(root / "models" / "identity" / "1" / "model.onnx")
    with serving(root / "models", data=root / "data", settings={"grpc.serve": "on"}) as running:
        yield running


def status_of_a_huge_one(server: Server) -> str:
    """What its client is told; "" where the connection's end overtook the answer."""
    piece = memoryview(bytes(4 * MIB))
    with socket.create_connection(("127.0.0.1", server.port), 60) as client:
        try:
            client.sendall(b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (PATH, BODY_BYTES))
            for _ in range(BODY_BYTES // len(piece)):
                client.sendall(piece)
        except OSError:
            pass
        try:
            return client.recv(4096)[9:12].decode()
        except OSError:
            return ""


def peak_bytes(server: Server) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.alone
def test_v10_fifty_huge_bodies_are_bounded_and_small_requests_answered(server: Server) -> None:
    before = peak_bytes(server)
    with ThreadPoolExecutor(50) as pool:
        huge = [pool.submit(status_of_a_huge_one, server) for _ in range(50)]
        small = [server.call("POST", PATH.decode(), TENSOR.encode()).status for _ in range(50)]
    told = {one.result() for one in huge}
    assert small == [200] * 50
    assert "503" in told and told <= {"503", "413", ""}  # 413: as JSON it is too large
    assert peak_bytes(server) - before < 2 * IN_FLIGHT_BYTES
    assert server.status()["refused"]["bytes_in_flight_full"] > 0


def test_v10_messages_of_grpc_and_bodies_of_http_have_one_room(server: Server) -> None:
    """Bodies that are not whole take 223.5 MiB of 224: a message of 0.25 has room, one of 1 has none."""
    with ExitStack() as stack:
        for number, size in enumerate((*[37 * MIB] * 6, MIB + MIB // 2)):
            address = (f"127.0.0.{number + 2}", 0)  # one alone has half of the room
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 30, address))
            client.sendall(b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (PATH, size + 1))
            client.sendall(bytes(size))
        calls = stack.enter_context(channel(server.grpc_port))
        wait_until(lambda: outcome(calls, MIB) == "bytes_in_flight_full", 10)
        assert outcome(calls, MIB // 4) == "ok"
    with channel(server.grpc_port) as again:
        wait_until(lambda: outcome(again, MIB) == "ok", 10)


def outcome(calls: Channel, size: int) -> str:
    try:
        calls.infer(infer_request("identity", "x", "FP32", [size // 16, 4], bytes(size)))
    except grpc.RpcError as error:
        return str(dict(error.trailing_metadata())["x-error-code"])
    return "ok"
