"""What gRPC costs the front beside HTTP: the same raw requests over both, asked from another process."""

import http.client
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median

import orjson

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import Figure, say  # noqa: E402
from bench.overhead import cpu_s  # noqa: E402
from bench.tabular import write_tabular  # noqa: E402
from tests import fixtures_onnx  # noqa: E402
from tests.serving import serving  # noqa: E402  (the tests' harness starts and stops the server)

CALLERS = 8
BAR = 1.6
METHOD = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of zeros to one model; ``calls`` in a round, of all callers together."""

    title: str
    model: str
    shape: tuple[int, ...]
    calls: int
    write: Callable[[Path], object]

    @property
    def raw(self) -> bytes:
        return bytes(4 * prod(self.shape))

    @property
    def tensor(self) -> dict[str, object]:
        return {"name": "x", "shape": self.shape, "datatype": "FP32"}


LOADS = {
    load.model: load
    for load in (
        Load("small raw request", "tabular", (1, 30), 4000, write_tabular),
        Load(
            "1x3x224x224 FP32 there and back",
            "image",
            (1, 3, 224, 224),
            800,
            lambda path: fixtures_onnx.identity(path, ("N", 3, 224, 224)),
        ),
    )
}


def grpc_over_http(rounds: int) -> list[Figure]:
    """Processor time of the front per raw request over gRPC, to that per binary request over HTTP/1.1."""
    with tempfile.TemporaryDirectory() as scratch:
        return [_figure(load, Path(scratch), rounds) for load in LOADS.values()]


def _figure(load: Load, work: Path, rounds: int) -> Figure:
    path = work / f"{load.model}.onnx"
    load.write(path)
    with serving(path, data=work / f"{load.model}-data", settings={"grpc.serve": "on"}) as server:
        pid = server.process.pid
        ports = {"http": server.port, "grpc": server.grpc_port}
        costs: dict[str, list[float]] = {"http": [], "grpc": []}
        for _ in range(rounds + 1):
            for kind, port in ports.items():
                before = cpu_s(pid)
                subprocess.run([sys.executable, __file__, kind, str(port), load.model], check=True)
                costs[kind].append((cpu_s(pid) - before) / load.calls * 1e6)
    over_http, over_grpc = costs["http"][1:], costs["grpc"][1:]  # the first round is the warm-up
    ratios = [one / other for one, other in zip(over_grpc, over_http, strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}; {median(over_grpc):.0f} us against {median(over_http):.0f} us"
    title = f"front CPU per {load.title}, gRPC / HTTP binary, {CALLERS} connections of each"
    return say(Figure(title, median(ratios), "", BAR, True, spread))


def ask(kind: str, port: int, load: Load) -> None:
    """All calls of a round from CALLERS threads, each with a connection of its own."""
    make = {"http": http_caller, "grpc": grpc_caller}[kind]

    def work() -> None:
        call = make(port, load)
        for _ in range(load.calls // CALLERS):
            call()

    threads = [threading.Thread(target=work) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def http_caller(port: int, load: Load) -> Callable[[], None]:
    tensor = {**load.tensor, "parameters": {"binary_data_size": len(load.raw)}}
    head = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    headers = {"Inference-Header-Content-Length": str(len(head))}
    connection, body = http.client.HTTPConnection("127.0.0.1", port), head + load.raw

    def call() -> None:
        connection.request("POST", f"/v2/models/{load.model}/infer", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()

    return call


def grpc_caller(port: int, load: Load) -> Callable[[], None]:
    import grpc

    from forwardpass.ingress.grpc.messages import classes

    message = classes()["ModelInferRequest"](model_name=load.model, raw_input_contents=[load.raw])
    message.inputs.add(**load.tensor)
    body = message.SerializeToString()
    own = (("grpc.use_local_subchannel_pool", 1),)  # else all channels to one address share a connection
    method = grpc.insecure_channel(f"127.0.0.1:{port}", own).unary_unary(METHOD)
    return lambda: method(body)


if __name__ == "__main__":
    ask(sys.argv[1], int(sys.argv[2]), LOADS[sys.argv[3]])
