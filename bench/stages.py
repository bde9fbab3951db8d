"""What each stage of a request costs the front: ``python bench/stages.py [--requests N] [--write]``.

Needs valgrind. The front runs under callgrind with a fixed number of the same requests; each row is the instructions of
one request, and what it has more than the plain one: a stage is priced by a configuration with it and one without. No
time is measured; other work on the machine still makes the front see less at a time, so run it alone. Each row says by which
way its requests went, counted without valgrind: bundled with others of the same pass, by themselves without a task, or the
long way. The second table is sampled: at each millisecond of CPU, whose code runs. Workers run outside of valgrind.
``--write`` puts both tables into docs/benchmarks.md.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.load.answers import complete, post  # noqa: E402
from bench.load.closed_loop import close_loop  # noqa: E402
from bench.load.served import free_port  # noqa: E402
from bench.load.tree import MARK, end  # noqa: E402
from bench.page import put  # noqa: E402
from bench.peers.forms import FORMS, Request  # noqa: E402
from bench.peers.models import MODELS, inputs, make  # noqa: E402
from bench.sampling.parts import shares, way_text  # noqa: E402

SAMPLING = Path(__file__).resolve().parent / "sampling"
PATH = "/v2/models/tabular/infer"
WARM = 300
REPEATED = 5
BODIES = 32  # different ones, while functions are sampled
IDLE_S = 2.0
FUNCTIONS = 20  # that are printed
START_LIMIT_S = 300.0
PATIENCE_S = 10.0
CONNECTIONS = 16  # so that a turn of the loop under valgrind stays below what the watchdog reports
PATIENT = {
    "deadline_s": 300,
    "header_time_s": 60,
    "body_grace_s": 600,
    "write_time_s": 600,
}  # valgrind is fifty times slower
PIPELINE = """
[[inputs]]
name = "x"
type = "tensor"
datatype = "FP32"
shape = [30]

[[steps]]
use = "model"
engine = "onnxruntime"
file = "tabular.onnx"
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One row: the same request again and again, over so many connections."""

    name: str
    request: bytes
    connections: int = CONNECTIONS


@dataclass(frozen=True, slots=True)
class Variant:
    """A server, and what it is asked. ``keyed``: every request shows a key."""

    settings: Mapping[str, object] = field(default_factory=dict)
    pipeline: str = PIPELINE
    keyed: bool = False
    names: tuple[str, ...] = ()


VARIANTS = (
    Variant(names=("plain", "alone", "binary", "live")),
    Variant({"auth.required": "true"}, keyed=True, names=("identity",)),
    Variant({"limits.requests_per_minute": 10_000_000}, names=("rate",)),
    Variant({"run.receipts_kept": 0}, names=("unkept",)),
    Variant(pipeline=PIPELINE + "\n[cache]\napproximate = true\n", names=("cache",)),
)
SAYS = {
    "plain": "V2 JSON, one row, 16 connections: all stages",
    "alone": "the same from one connection: nothing is shared with a neighbour",
    "binary": "V2 binary in and out: no numbers as text",
    "live": "GET /v2/health/live: framing, routing and writing alone",
    "identity": "with a key to be checked (auth.required)",
    "rate": "with a rate to be kept (limits.requests_per_minute)",
    "unkept": "no receipts kept (run.receipts_kept = 0)",
    "cache": "with [cache], the answer known",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=160, help="of each row, five times")
    parser.add_argument("--seconds", type=int, default=10, help="of load for the samples")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is missing: apt-get install valgrind")
    make()
    with tempfile.TemporaryDirectory() as scratch:
        counts: dict[str, float] = {}
        ways: dict[str, str] = {}
        for number, variant in enumerate(VARIANTS):
            ways |= gone(variant, Path(scratch, f"ways-{number}"))
            for name, repeated in counted(variant, Path(scratch, str(number)), arguments.requests):
                counts[name] = median(repeated)  # what the front does anyway is only roughly taken off
                spread = f"{min(repeated):,.0f} to {max(repeated):,.0f}; {_beside(counts, name)}"
                print(f"{SAYS[name]}: {counts[name]:,.0f} instructions ({spread}); {ways[name]}", flush=True)
        seen = sampled(Path(scratch, "sampled"), arguments.seconds)
    found = shares(seen)
    for part, share in found.items():
        print(f"{part}: {share:.1%} of the front's CPU", flush=True)
    for function, times in seen.most_common(FUNCTIONS):
        print(f"  {function}: {times / seen.total():.1%}", flush=True)
    if arguments.write:
        put("stages", report(counts, ways, found, arguments.requests))


def counted(variant: Variant, work: Path, requests: int) -> Iterator[tuple[str, list[float]]]:
    """Instructions of the front for one request of each row, as often as it is repeated.

    What the front does anyway is taken off: its timers go by the clock, and valgrind makes requests take longer.
    """
    output = work / "callgrind"
    tool = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={output}")
    with _running(variant, work, tool, {"UNDER_VALGRIND": "1"}) as (process, port, headers):
        asked = [_asked(name, headers) for name in variant.names]
        for each in asked:
            with _clients(port, each) as clients:
                _ask(process, clients, each, WARM)
        _control("--instr=on", process)
        meter = Meter(process, output)
        meter.count(partial(time.sleep, IDLE_S))
        idle_per_s = meter.count(partial(time.sleep, IDLE_S)) / IDLE_S
        for each in asked:
            repeated = []
            with _clients(port, each) as clients:
                _ask(process, clients, each, max(requests // 4, 3 * len(clients)))
                for _ in range(REPEATED):
                    started = time.perf_counter()
                    total = meter.count(partial(_ask, process, clients, each, requests))
                    repeated.append((total - idle_per_s * (time.perf_counter() - started)) / requests)
            yield each.name, repeated


@dataclass(slots=True)
class Meter:
    """callgrind's counter of a process, read by its dumps."""

    process: "subprocess.Popen[bytes]"
    output: Path
    dumps: int = 0

    def count(self, act: Callable[[], None]) -> int:
        """Instructions while ``act`` runs."""
        _control("--zero", self.process)
        act()
        _control("--dump", self.process)
        self.dumps += 1
        total = re.search(r"^(?:totals|summary): (\d+)", Path(f"{self.output}.{self.dumps}").read_text(), re.MULTILINE)
        assert total is not None, "callgrind wrote no total"
        return int(total[1])


@contextmanager
def _clients(port: int, asked: Asked) -> Iterator[list[socket.socket]]:
    """Its connections. The first request of each goes the long way, so they are kept from warming up to the end."""
    with ExitStack() as opened:
        address = "127.0.0.1", port
        yield [opened.enter_context(socket.create_connection(address)) for _ in range(asked.connections)]


def _ask(process: "subprocess.Popen[bytes]", clients: Sequence[socket.socket], asked: Asked, requests: int) -> None:
    """Waves of one request on each connection; the front is halted while one is sent, and so finds it complete.

    Otherwise how many requests it finds at a time, and so what they share, would be another number each time.
    """
    for _ in range(max(1, requests // len(clients))):
        process.send_signal(signal.SIGSTOP)
        for client in clients:
            client.sendall(asked.request)
        process.send_signal(signal.SIGCONT)
        for client in clients:
            status = _status(client)
            if status != 200:
                sys.exit(f"{asked.name}: answered with status {status}")


def _status(client: socket.socket) -> int:
    data = client.recv(65536)
    while (answer := complete(data)) is None:
        more = client.recv(65536)
        if not more:
            return 0
        data += more
    return answer.status


def gone(variant: Variant, work: Path) -> dict[str, str]:
    """Which way the requests of each row go."""
    into = work.with_suffix(".json")
    found = {}
    with _running(variant, work, (), {"WAYS_INTO": str(into)}) as (process, port, headers):
        for name in variant.names:
            asked = _asked(name, headers)
            with _clients(port, asked) as clients:
                _ask(process, clients, asked, WARM)
                _told(process, into)
                _ask(process, clients, asked, WARM)
                found[name] = way_text(_told(process, into))
    return found


def _told(process: "subprocess.Popen[bytes]", into: Path) -> dict[str, int]:
    """What the front has counted since it was asked last."""
    into.unlink(missing_ok=True)
    process.send_signal(signal.SIGUSR2)
    until = time.monotonic() + PATIENCE_S
    while not into.exists():
        if time.monotonic() > until:
            sys.exit("the front does not say which way its requests went")
        time.sleep(0.01)
    counted: dict[str, int] = json.loads(into.read_text())
    return counted


def sampled(work: Path, seconds: int) -> Counter[str]:
    """How often each function of the server was seen to use the front's CPU under load, without valgrind."""
    into = work / "seen"
    into.mkdir(parents=True)
    with _running(VARIANTS[0], work, (), {"SAMPLED_INTO": str(into)}) as (process, port, _):
        url, asked = f"http://127.0.0.1:{port}{PATH}", [_request("v2", variant) for variant in range(BODIES)]
        close_loop(url, asked, CONNECTIONS, 1)
        process.send_signal(signal.SIGUSR2)
        close_loop(url, asked, CONNECTIONS, seconds)
        pid = process.pid
    return Counter(json.loads((into / f"{pid}.json").read_text()))


def _request(form: str, variant: int = 0) -> Request:
    return FORMS[form](inputs("tabular", variant))


def _asked(name: str, headers: Mapping[str, str]) -> Asked:
    if name == "live":
        return Asked(name, b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    request = _request("v2_binary" if name == "binary" else "v2")
    body = post(PATH, {**request.headers, **headers}, request.body)
    return Asked(name, body, 1 if name == "alone" else CONNECTIONS)


@contextmanager
def _running(
    variant: Variant, work: Path, tool: tuple[str, ...], environment: Mapping[str, str]
) -> "Iterator[tuple[subprocess.Popen[bytes], int, dict[str, str]]]":
    """The server, its port, and the headers that it wants; ready to answer."""
    version = work / "repository" / "tabular" / "1"
    version.mkdir(parents=True)
    (version / "pipeline.toml").write_text(variant.pipeline)
    shutil.copy(MODELS / "tabular.onnx", version)
    data = f"run.data={work / 'data'}"
    serve = [sys.executable, "-m", "forwardpass"]
    headers = {"Authorization": f"Bearer {_key(serve, data)}"} if variant.keyed else {}
    port = free_port()
    settings = {f"limits.{key}": value for key, value in PATIENT.items()} | dict(variant.settings)
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [*tool, *serve, "serve", str(work / "repository"), "--port", str(port), "--admin-port", "0"]
    command += ["--grpc-port", "0", "--set", data, "--set", "grpc.serve=off", *sets]
    inherited = {**os.environ, "PYTHONPATH": str(SAMPLING), MARK: str(work), **environment}
    with (work / "log").open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=inherited, start_new_session=True)
        try:
            _wait(process, port, headers, work / "log")
            yield process, port, headers
        finally:
            end(process, str(work))


def _key(serve: list[str], data: str) -> str:
    command = [*serve, "keys", "create", "--tenant", "bench", "--scope", "infer:tabular", "--set", data]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _wait(process: "subprocess.Popen[bytes]", port: int, headers: Mapping[str, str], log: Path) -> None:
    until = time.monotonic() + START_LIMIT_S
    request = _request("v2")
    while time.monotonic() < until and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", PATH, request.body, {**request.headers, **headers})
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.2)
    sys.exit(f"the server does not answer; its log ends:\n{log.read_text()[-1000:]}")


def _control(act: str, process: "subprocess.Popen[bytes]") -> None:
    subprocess.run(["callgrind_control", act, str(process.pid)], check=True, capture_output=True, timeout=60)


def _beside(counts: Mapping[str, float], name: str) -> str:
    return "all" if name == "plain" else f"{counts[name] - counts['plain']:+,.0f}"


def report(counts: Mapping[str, float], ways: Mapping[str, str], found: Mapping[str, float], requests: int) -> str:
    """Both tables."""
    rows = [
        f"| {SAYS[name]} | {count:,.0f} | {_beside(counts, name)} | {ways[name]} |" for name, count in counts.items()
    ]
    parts = [f"| {part} | {share:.1%} |" for part, share in found.items()]
    return "\n".join([
        f"Instructions of the front a request, callgrind, median of {REPEATED} times {requests} requests:", "",
        "| what is asked | instructions | beside the first | way |", "|---|---|---|---|", *rows, "",
        "Samples of the front's CPU under load, each counted for the server's function that ran or had called what ran:", "",
        "| part | share |", "|---|---|", *parts,
    ])  # fmt: skip


if __name__ == "__main__":
    main()
