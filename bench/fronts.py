"""What a second front brings, and costs: python bench/fronts.py [--rounds N]. Needs wrk (make services).

The same small V2 requests to a server with one front (the owner itself) and to one with two, in turn. Where the load's
generator, both fronts, the owner and the workers share two cores, the rate can hardly rise; what shows there is how
much of a request the owner no longer does, which is the limit once there are cores for everybody.
"""

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import Figure, say, summarise  # noqa: E402
from bench.load import tree  # noqa: E402
from bench.load.closed_loop import close_loop  # noqa: E402
from bench.overhead import cpu_s  # noqa: E402
from bench.peers.forms import Request  # noqa: E402
from bench.tabular import write_tabular  # noqa: E402
from tests.serving import Server, serving, wait_until  # noqa: E402  (the tests' harness starts and stops the server)

CONNECTIONS = 64
FRONTS = (1, 2)


@dataclass(slots=True)
class Found:
    """Of one number of fronts, a value for each round."""

    rates_per_s: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    owner_us: list[float] = field(default_factory=list)  # processor time of the owner per request
    tree_us: list[float] = field(default_factory=list)  # of all processes of the server
    rows: list[float] = field(default_factory=list)  # of a batch: smaller ones cost the owner more for each request

    def take(self, server: Server, body: bytes, seconds: float) -> None:
        pid = server.process.pid
        owner, every = cpu_s(pid), tree.cpu_s(pid)
        executed = _executions(server)
        url = f"http://127.0.0.1:{server.port}/v2/models/tabular/infer"
        closed = close_loop(url, [Request(body, {"Content-Type": "application/json"})], CONNECTIONS, seconds)
        assert not closed.failed, closed
        self.rows.append(closed.requests / max(1, _executions(server) - executed))
        self.rates_per_s.append(closed.rate_per_s)
        self.p99_ms.append(closed.p99_s * 1e3)
        self.owner_us.append((cpu_s(pid) - owner) / closed.requests * 1e6)
        self.tree_us.append((tree.cpu_s(pid) - every) / closed.requests * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement; medians are reported")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one load round")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(Path(scratch), arguments.rounds, arguments.seconds)
    for fronts, each in found.items():
        rate, p99, rows = median(each.rates_per_s), median(each.p99_ms), median(each.rows)
        used = f"owner {median(each.owner_us):.1f} us, all {median(each.tree_us):.1f} us"
        print(f"{fronts} front(s): {rate:.0f} requests/s, p99 {p99:.1f} ms, {rows:.1f} rows a batch, {used}")
    summarise(figures(found[1], found[2]))


def _executions(server: Server) -> int:
    lines = server.get("/metrics", admin=True).body.decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("forwardpass_executions_total{"))


def _memory_mb(pid: int) -> str:
    told = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    resident, own = (int(told[name].split()[0]) / 1000 for name in ("Rss", "Private_Dirty"))
    return f"{resident:.0f} MB resident, {own:.0f} MB of it its own"


def measure(work: Path, rounds: int, seconds: float) -> dict[int, Found]:
    write_tabular(work / "tabular.onnx")
    row = {"name": "x", "datatype": "FP32", "shape": [1, 30], "data": [round(0.1 * n, 1) for n in range(30)]}
    body = json.dumps({"inputs": [row]}).encode()
    found = {fronts: Found() for fronts in FRONTS}
    with ExitStack() as stack:
        servers = {
            fronts: stack.enter_context(
                serving(work / "tabular.onnx", data=work / str(fronts), settings={"run.fronts": fronts})
            )
            for fronts in FRONTS
        }
        for server in servers.values():
            wait_until(lambda server=server: all(front["state"] == "ready" for front in server.status()["fronts"]))
            Found().take(server, body, 1.0)
        for front in servers[2].status()["fronts"]:
            print(f"a front's memory: {_memory_mb(front['pid'])}")
        for _ in range(rounds):
            for fronts, server in servers.items():
                found[fronts].take(server, body, seconds)
    return found


def figures(one: Found, two: Found) -> list[Figure]:
    cores = f"{len(os.sched_getaffinity(0))} cores, shared with the load's generator"
    load = f"small V2 request, {CONNECTIONS} connections, 2 fronts / 1"
    return [
        _ratio(f"owner CPU per {load}", two.owner_us, one.owner_us, 0.6, "", lower_is_better=True),
        _ratio(f"CPU of all processes per {load}", two.tree_us, one.tree_us, 1.5, "", lower_is_better=True),
        _ratio(f"requests/s, {load}", two.rates_per_s, one.rates_per_s, 1.0, cores, lower_is_better=False),
    ]


def _ratio(name: str, of: list[float], to: list[float], bar: float, note: str, *, lower_is_better: bool) -> Figure:
    ratios = [one / other for one, other in zip(of, to, strict=True)]
    spread = "; ".join(filter(None, (f"{min(ratios):.2f} to {max(ratios):.2f}", note)))
    return say(Figure(name, median(ratios), "", bar, lower_is_better, spread))


if __name__ == "__main__":
    main()
