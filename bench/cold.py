"""How soon a server answers, after its start and after its worker was killed, and what memory it takes: ``make bench``.

A start is measured from the call that makes the process to the first right answer, with files in the page cache and the
version taken in before, in turn with the least there is: a Python that loads the model and runs it. Absolute times are
of this machine and this hour; every figure is printed with its bar, met or missed, and the last line is the summary.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import Figure, say, summarise  # noqa: E402
from bench.tabular import write_tabular  # noqa: E402
from tests.serving import command, free_port  # noqa: E402

START_BAR_S = 1.0
RESTART_BAR_S = 1.0
MEMORY_BAR_MB = 200
SETTLED_S = 1.5  # a file that was just written is waited for, as it may still be
POLL_S = 0.005
LIMIT_S = 60.0
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 30], "datatype": "FP32", "data": [0.1] * 30}]}).encode()
BARE = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print(session.run(None, {"x": numpy.full((1, 30), 0.1, "f4")})[0].shape == (1, 1))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="starts of each kind; medians are reported")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch, "tabular.onnx")
        write_tabular(model)
        time.sleep(SETTLED_S)
        first_s = start_s(model)
        print(f"for comparison: the very first start, which takes the model in: {first_s:.2f} s", flush=True)
        figures = [starts(model, rounds), *lives(model, rounds)]
    summarise(figures)


def starts(model: Path, rounds: int) -> Figure:
    served: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        bare.append(bare_s(model))
        served.append(start_s(model))
    spread = (
        f"{min(served):.2f} to {max(served):.2f} s; {median(served) / median(bare):.1f} x a bare Python with the model"
    )
    return say(Figure("start to first answer, tabular", median(served), "s", START_BAR_S, True, spread))


def lives(model: Path, rounds: int) -> list[Figure]:
    """Of one server: how soon a killed worker is replaced, and its memory before that."""
    with server(model) as (process, port):
        until_right(port)
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        memory = [each.memory_full_info() for each in family]
        back = [replaced_s(process.pid, port) for _ in range(min(rounds, 4))]  # five deaths in a minute are too many
    shared = sum(each.pss for each in memory) / 1e6
    resident = " + ".join(f"{each.rss / 1e6:.0f}" for each in memory)
    return [
        say(Figure("worker killed to next answer, tabular", back[0], "s", RESTART_BAR_S, True,
                   "then, each after a longer pause: " + ", ".join(f"{each:.2f}" for each in back[1:]) + " s")),
        say(Figure("memory of all processes, shared pages once", shared, "MB", MEMORY_BAR_MB, True,
                   f"resident {resident} MB")),
    ]  # fmt: skip


def start_s(model: Path) -> float:
    started = time.perf_counter()
    with server(model) as (_, port):
        until_right(port)
        return time.perf_counter() - started


def bare_s(model: Path) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", BARE, str(model)], check=True, capture_output=True)
    return time.perf_counter() - started


def replaced_s(server_pid: int, port: int) -> float:
    """A worker is the child that is no template: the newest."""
    worker = max(psutil.Process(server_pid).children(), key=psutil.Process.create_time)
    killed = time.perf_counter()
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(LIMIT_S)
    until_right(port)
    return time.perf_counter() - killed


@contextmanager
def server(model: Path) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
    port = free_port()
    data = f"run.data={model.parent / 'data'}"
    serve = command("serve", model, "--port", str(port), "--admin-port", "0", "--set", data, "--set", "grpc.serve=off")
    process = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process, port
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)


def until_right(port: int) -> None:
    """Ask until the answer is right; ends the benchmark when it never is. Asking is cheap, as it is paid by the server's cores."""
    request = b"POST /v2/models/tabular/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request += b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    until = time.perf_counter() + LIMIT_S
    while time.perf_counter() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client, client.makefile("rb") as answer:
                client.sendall(request)
                head, _, body = answer.read().partition(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 200") and json.loads(body)["outputs"][0]["shape"] == [1, 1]:
                return
        except OSError:
            pass  # not yet
        time.sleep(POLL_S)
    sys.exit("no right answer came")


if __name__ == "__main__":
    main()
