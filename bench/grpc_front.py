"""What gRPC costs the front beside HTTP: the same raw request of a small model over both, asked from another process."""

import http.client
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median

import orjson

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import Figure, say  # noqa: E402
from bench.overhead import cpu_s  # noqa: E402
from bench.tabular import write_tabular  # noqa: E402
from tests.serving import serving  # noqa: E402  (the tests' harness starts and stops the server)

CALLERS = 8
CALLS = 4000
RAW = bytes(4 * 30)
INPUT = {"name": "x", "shape": [1, 30], "datatype": "FP32"}
METHOD = "/inference.GRPCInferenceService/ModelInfer"


def grpc_over_http(rounds: int) -> Figure:
    """Processor time of the front per raw request over gRPC, to that per binary request over HTTP/1.1."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        write_tabular(work / "tabular.onnx")
        with serving(work / "tabular.onnx", data=work / "data", settings={"grpc.serve": "on"}) as server:
            pid = server.process.pid
            ports = {"http": server.port, "grpc": server.grpc_port}
            costs: dict[str, list[float]] = {"http": [], "grpc": []}
            for _ in range(rounds + 1):
                for kind, port in ports.items():
                    before = cpu_s(pid)
                    subprocess.run([sys.executable, __file__, kind, str(port)], check=True)
                    costs[kind].append((cpu_s(pid) - before) / CALLS * 1e6)
    over_http, over_grpc = costs["http"][1:], costs["grpc"][1:]  # the first round is the warm-up
    ratios = [one / other for one, other in zip(over_grpc, over_http, strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}; {median(over_grpc):.0f} us against {median(over_http):.0f} us"
    title = f"front CPU per small raw request, gRPC / HTTP binary, {CALLERS} at a time"
    return say(Figure(title, median(ratios), "", 1.6, True, spread))


def ask(kind: str, port: int) -> None:
    """CALLS requests from CALLERS threads: each with a connection of its own over HTTP, all on one over gRPC."""
    caller = http_caller if kind == "http" else grpc_caller
    make = caller(port)

    def work() -> None:
        call = make()
        for _ in range(CALLS // CALLERS):
            call()

    threads = [threading.Thread(target=work) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def http_caller(port: int) -> Callable[[], Callable[[], None]]:
    tensor = {**INPUT, "parameters": {"binary_data_size": len(RAW)}}
    head = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    headers = {"Inference-Header-Content-Length": str(len(head))}

    def make() -> Callable[[], None]:
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def call() -> None:
            connection.request("POST", "/v2/models/tabular/infer", head + RAW, headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()

        return call

    return make


def grpc_caller(port: int) -> Callable[[], Callable[[], None]]:
    import grpc

    from forwardpass.ingress.grpc.messages import classes

    message = classes()["ModelInferRequest"](model_name="tabular", raw_input_contents=[RAW])
    message.inputs.add(**INPUT)
    body = message.SerializeToString()
    method = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary(METHOD)

    def make() -> Callable[[], None]:
        return lambda: method(body)

    return make


if __name__ == "__main__":
    ask(sys.argv[1], int(sys.argv[2]))
