"""What the server costs on top of the model: ``make bench``, or ``python bench/overhead.py [--rounds N]``.

Needs wrk and the built examples (``make services examples``). Every figure is printed with its bar, met or missed; the
last line is the summary. Server and in-process runs alternate in one process tree, so that ratios hold on a noisy
machine; absolute times are of this machine and this hour only.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import MODELS, Figure, say, summarise  # noqa: E402
from bench.tabular import write_tabular  # noqa: E402
from tests.serving import Server, serving  # noqa: E402  (the tests' harness starts and stops the server)

CONNECTIONS = 32
TOKENS = 32
SENTENCE = "the quick brown fox jumps over one lazy dog and then it runs away " * 2 + "the quick"  # 32 tokens
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
LUA = 'wrk.method="POST"\nlocal f=io.open("{body}","rb"); wrk.body=f:read("*a"); f:close()\nwrk.headers["Content-Type"]="application/json"\n'


BARE = """
import asyncio, httptools, uvloop
class Bare(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.parser = transport, httptools.HttpRequestParser(self)
    def data_received(self, data):
        self.parser.feed_data(data)
    def on_message_complete(self):
        self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
async def main():
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
uvloop.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement; medians are reported")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one load round")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is missing: make services")
    if not (MODELS / "sentences").is_dir():
        sys.exit("the examples are not built: make examples")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        write_tabular(work / "tabular.onnx")
        figures.append(front_cpu(work, arguments.rounds, arguments.seconds))
        figures += embedding(work, arguments.rounds, arguments.seconds)
    summarise(figures)


def front_cpu(work: Path, rounds: int, seconds: float) -> Figure:
    """CPU of the front process alone per small V2 request, JSON in and out, 30 floats, one row."""
    tensor = {"name": "x", "shape": [1, 30], "datatype": "FP32", "data": [0.1] * 30}
    body = work / "tabular.json"
    body.write_text(json.dumps({"inputs": [tensor]}))
    with serving(work / "tabular.onnx", data=work / "data") as server:
        url = f"http://127.0.0.1:{server.port}/v2/models/tabular/infer"
        wrk(url, body, CONNECTIONS, 1.0)
        costs: list[float] = []
        rates: list[float] = []
        for _ in range(rounds):
            before = cpu_s(server.process.pid)
            requests = wrk(url, body, CONNECTIONS, seconds)
            costs.append((cpu_s(server.process.pid) - before) / requests * 1e6)
            rates.append(requests / seconds)
    spread = f"{min(costs):.1f} to {max(costs):.1f} us; {median(rates):.0f} requests/s"
    bare = median(bare_cpu_us(body, seconds) for _ in range(rounds))
    print(f"for comparison: asyncio, uvloop and httptools alone, answering a constant: {bare:.1f} us", flush=True)
    spread += f"; {median(costs) / bare:.1f} x the bare protocol"
    return say(Figure("front CPU per small V2 request, 32 connections", median(costs), "us", 60, True, spread))


def bare_cpu_us(body: Path, seconds: float) -> float:
    """CPU per request of the smallest server these libraries make: what this machine charges for sockets alone."""
    process = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        wrk(f"http://127.0.0.1:{port}/", body, CONNECTIONS, 1.0)
        before = cpu_s(process.pid)
        requests = wrk(f"http://127.0.0.1:{port}/", body, CONNECTIONS, seconds)
        return (cpu_s(process.pid) - before) / requests * 1e6
    finally:
        process.kill()
        process.wait()


def embedding(work: Path, rounds: int, seconds: float) -> list[Figure]:
    """The sentence pipeline through the server against its model in process."""
    limits = {layout: in_process(*layout, seconds / 2) for layout in layouts()}
    best = max(limits, key=lambda layout: limits[layout])
    body = work / "sentence.json"
    body.write_text(json.dumps({"text": SENTENCE}))
    alone = Alone(threads=1)  # as each of the two workers has
    ratios: list[float] = []
    extra_ms: list[float] = []
    with serving(MODELS / "sentences", data=work / "data") as server:
        url = f"http://127.0.0.1:{server.port}/predict/sentences"
        wrk(url, body, CONNECTIONS, 1.0)
        for _ in range(rounds):
            through = wrk(url, body, CONNECTIONS, seconds) / seconds
            ratios.append(through / in_process(*best, seconds))
            served = median(lone(server, body.read_bytes(), seconds))
            extra_ms.append((served - median(alone.run(seconds))) * 1000)
    layout = f"in process best: {best[0]} session(s) x {best[1]} thread(s), batch {best[2]}: {limits[best]:.0f}/s"
    return [
        say(Figure("embedding throughput, server / in process", median(ratios), "", 0.85, False,
                   f"{min(ratios):.2f} to {max(ratios):.2f}; {layout}")),
        say(Figure("lone embedding request, p50 beyond in process", median(extra_ms), "ms", 1.0, True,
                   f"{min(extra_ms):.2f} to {max(extra_ms):.2f} ms")),
    ]  # fmt: skip


def layouts() -> list[tuple[int, int, int]]:
    """Sessions x threads x batch: one session with all cores, or one a core."""
    cores = len(os.sched_getaffinity(0))
    return [(s, t, b) for s, t in {(1, cores), (cores, 1)} for b in (1, 4, 8, 16, 32)]


def in_process(sessions: int, threads: int, batch: int, seconds: float) -> float:
    """Sentences a second of the model alone on ready-made token ids: no tokenizing, no pooling, no server."""
    feeds = token_feeds(batch)
    runs = [session(threads) for _ in range(sessions)]
    counts = [0] * sessions
    stop = time.perf_counter() + seconds

    def work(index: int) -> None:
        while time.perf_counter() < stop:
            runs[index].run(None, feeds)
            counts[index] += batch

    parallel = [threading.Thread(target=work, args=(index,)) for index in range(sessions)]
    started = time.perf_counter()
    for thread in parallel:
        thread.start()
    for thread in parallel:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


class Alone:
    """The whole pipeline in process, one sentence at a time: tokenize, model, pool, normalise."""

    def __init__(self, threads: int) -> None:
        from forwardpass.core.clock import random_id
        from forwardpass.core.pipeline import Version
        from forwardpass.execution.kinds import kinds
        from forwardpass.execution.plan import build
        from forwardpass.pipeline import definition

        folder = MODELS / "sentences" / "1"
        text = (folder / "pipeline.toml").read_text()
        parsed = definition.parse(text, file="pipeline.toml", folder=folder, kinds=kinds())
        self._plan = build(Version("sentences", 1, random_id(), str(folder), parsed), threads=threads)

    def run(self, seconds: float) -> list[float]:
        from forwardpass.steps.protocol import Batch, text_column

        times: list[float] = []
        stop = time.perf_counter() + seconds
        while time.perf_counter() < stop:
            started = time.perf_counter()
            batch = Batch({"text": text_column([SENTENCE])}, 1, [0])
            self._plan.preprocess(batch)
            self._plan.execute(batch)
            self._plan.postprocess(batch)
            times.append(time.perf_counter() - started)
        return times


def token_feeds(batch: int) -> dict[str, Any]:
    ids = np.tile(np.arange(1000, 1000 + TOKENS, dtype=np.int64), (batch, 1))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def session(threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    model = str(MODELS / "sentences" / "1" / "model.onnx")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def lone(server: Server, body: bytes, seconds: float) -> list[float]:
    """Seconds of each request of one client that waits for every answer, on one kept connection, without a library."""
    head = f"POST /predict/sentences HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    request = head.encode() + b"\r\n\r\n" + body
    times: list[float] = []
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stop = time.perf_counter() + seconds
        while time.perf_counter() < stop:
            started = time.perf_counter()
            client.sendall(request)
            answer = client.recv(65536)
            while not answer.endswith(b"}}"):
                answer += client.recv(65536)
            times.append(time.perf_counter() - started)
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    return times


def wrk(url: str, body: Path, connections: int, seconds: float) -> int:
    """Requests answered with 200 in one run; any other status ends the benchmark."""
    script = body.with_suffix(".lua")
    script.write_text(LUA.format(body=body))
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 30).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(f"the server refused requests:\n{text}")
    return next(int(line.split()[0]) for line in text.splitlines() if "requests in" in line)


def cpu_s(pid: int) -> float:
    """CPU seconds of one process, user and system, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


if __name__ == "__main__":
    main()
