"""``make bench-peers``: the server and its peers on this machine, in one interleaved run.

Only one server lives at a time: started, checked for right answers, measured and stopped, then the next one; then all of
it again. So no idle server takes cores from the one that is measured, and each round has its own cold start. Everything
found goes to build/bench/peers.json after each cell, and --resume goes on from there; what --minutes leave no time for is
left out, and said. Each bar is printed with its figure, the summary is the last line.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]
from bench.figures import say, summarise  # noqa: E402
from bench.load.limit import Layout  # noqa: E402
from bench.peers import environments, measure, models, plan  # noqa: E402
from bench.peers.bars import figures  # noqa: E402
from bench.peers.found import OURS, Found, layout_text  # noqa: E402
from bench.peers.peer import Peer  # noqa: E402
from bench.peers.registry import ALL  # noqa: E402

OUTPUT = models.WORK / "peers.json"
HUNG_S = 30.0  # who did not start within so long is not waited for again


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # and with it the server that is alive
    if shutil.which("wrk") is None:
        sys.exit("wrk is missing: make services")
    wanted = [peer for peer in ALL if not arguments.peers or peer.name in arguments.peers]
    models.make()
    print("environments: one for each peer, made where there is none yet", flush=True)
    missing = environments.make_all([peer.environment for peer in wanted if peer.environment])
    for why in missing.values():
        print(why, flush=True)
    peers = [peer for peer in wanted if peer.environment not in missing]
    planned = plan.Plan(peers, arguments.models, arguments.rounds, arguments.seconds)
    print(planned, flush=True)
    found: dict[str, Any] = {"machine": machine()}
    found["peers"] = {peer.name: _described(peer, missing) for peer in wanted}
    found |= {"seconds": arguments.seconds, "rounds": arguments.rounds, "models": list(arguments.models)}
    found |= {"lives": [], "limits": [], "layouts": [], "took_s": 0.0, "left_out": []}
    if arguments.resume:
        found |= resumed(found, arguments.output)
    Run(planned, found, arguments.output, arguments.minutes * 60).all()
    print(f"took {found['took_s'] / 60:.1f} minutes", flush=True)
    summarise([say(figure) for figure in figures(Found(found))])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=[peer.name for peer in ALL], help="only these")
    parser.add_argument("--models", nargs="+", choices=[*plan.MAIN, *plan.BESIDE], help="only these workloads")
    parser.add_argument("--rounds", type=int, default=3, help="of everything; medians are reported")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each closed loop")
    parser.add_argument("--quick", action="store_true", help="one round of one-second loops, workloads with bars only")
    parser.add_argument("--minutes", type=float, default=plan.MINUTES, help="after these nothing new is begun")
    parser.add_argument("--resume", action="store_true", help="keep what the output has of a run of the same plan")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the raw results go")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 1.0
    arguments.models = arguments.models or (plan.MAIN if arguments.quick else (*plan.MAIN, *plan.BESIDE))
    return arguments


def resumed(found: dict[str, Any], output: Path) -> dict[str, Any]:
    """What a run that was broken off had found: whole lives only. Ends the program where its plan was another one."""
    if not output.exists():
        return {}
    before = json.loads(output.read_text())
    for key in ("seconds", "rounds", "models"):
        if before.get(key) != found[key]:
            sys.exit(f"cannot resume: that run had {key} = {before.get(key)}, this one has {found[key]}")
    if before["peers"].keys() != found["peers"].keys():
        sys.exit("cannot resume: that run had other peers")
    lives = [life for life in before["lives"] if life["done"]]
    kept = {key: before[key] for key in ("machine", "limits", "layouts", "took_s")}
    return {**kept, "lives": lives}


@dataclass(slots=True)
class Run:
    """Goes through the plan and keeps what it finds, also when it is broken off. ``limit_s``: after these nothing new."""

    planned: plan.Plan
    found: dict[str, Any]
    output: Path
    limit_s: float
    before_s: float = 0.0
    started_s: float = field(default_factory=time.perf_counter)

    def all(self) -> None:
        self.before_s = self.found["took_s"]
        self._probe()
        scan_s = plan.LIMIT_SCAN_S
        layouts = {workload: measure.in_process(workload).best(scan_s) for workload in self.planned.limited}
        for round in range(self.planned.rounds):
            for life in self.planned.lives(round):
                if life.workload in layouts and life.peer.name == OURS:  # next to each other, for their ratio
                    self._limit(life.workload, layouts[life.workload], round)
                self._life(life)
        self._keep()

    @property
    def _took_s(self) -> float:
        return self.before_s + time.perf_counter() - self.started_s

    def _keep(self) -> None:
        self.found["took_s"] = self._took_s
        self.output.parent.mkdir(parents=True, exist_ok=True)
        part = self.output.with_suffix(".part")
        part.write_text(json.dumps(self.found))
        part.replace(self.output)

    def _probe(self) -> None:
        known = {(each["peer"], each["workload"]): each for each in self.found["layouts"]}
        better = {peer.name: peer for peer in self.planned.peers}
        for peer, workload in self.planned.probed:
            probed = known.get((peer.name, workload))
            if probed is None:
                probed = measure.probe(peer, workload)
                self.found["layouts"].append(probed)
                print(_probe_line(probed), flush=True)
                self._keep()
            better[peer.name] = measure.with_layout(better[peer.name], probed)
        self.planned = replace(self.planned, peers=list(better.values()))

    def _limit(self, workload: str, layout: Layout, round: int) -> None:
        if any((each["workload"], each["round"]) == (workload, round) for each in self.found["limits"]):
            return
        self.found["limits"].append(measure.limit(workload, layout, round))
        print(_limit_line(self.found["limits"][-1]), flush=True)

    def _life(self, life: plan.Life) -> None:
        lives = self.found["lives"]
        named = life.round, life.workload, life.peer.name
        if any((each["round"], each["workload"], each["peer"]) == named for each in lives):
            return
        if why := self._left_out(life):
            self.found["left_out"].append(f"{life.peer.name}, {life.workload}, round {life.round + 1}: {why}")
            print(f"left out: {self.found['left_out'][-1]}", flush=True)
            return
        lives.append({})

        def keep(one: Mapping[str, Any]) -> None:
            lives[-1] = one
            self._keep()

        measure.measure(life, self.planned.seconds, keep)
        print(_life_line(lives[-1]), flush=True)

    def _left_out(self, life: plan.Life) -> str:
        """Why it is not begun; empty: it is."""
        if self._took_s + life.takes_s(self.planned.seconds) > self.limit_s:
            return "no time left"
        before = [
            each
            for each in self.found["lives"]
            if (each["workload"], each["peer"]) == (life.workload, life.peer.name) and each["round"] < life.round
        ]
        hung = any("cold_s" not in each and each["lasted_s"] > HUNG_S for each in before)
        return "it has not started in a round before" if hung else ""


def _probe_line(probed: Mapping[str, Any]) -> str:
    tried = "; ".join(
        f"{layout_text(one['layout'])}: "
        + (" and ".join(f"{rate:.0f}/s" for rate in one["rates_per_s"]) or f"FAILED {one.get('failed')}")
        for one in probed["tried"]
    )
    return f"{probed['workload']} {probed['peer']}: {tried}; kept: {layout_text(probed['best'])}"


def _limit_line(limit: Mapping[str, Any]) -> str:
    return f"round {limit['round'] + 1} {limit['workload']} in process: {limit['rate_per_s']:.0f}/s, {limit['layout']}"


def _life_line(life: Mapping[str, Any]) -> str:
    closed = "; ".join(
        f"{cell['connections']}: {cell['rate_per_s']:.0f}/s p99 {cell['p99_s'] * 1e3:.2f} ms"
        + (f" FAILED {cell['failures']}" if cell["failures"] else "")
        for cell in life.get("closed", ())
    )
    opened = "; ".join(
        f"{cell['rate_per_s']:.0f}/s p99 {cell['p99_s'] * 1e3:.2f} ms" + ("" if cell["valid"] else " (client late)")
        for cell in life.get("open", ())
    )
    parts = (closed, opened and f"open {opened}", life["failed"] and f"FAILED: {life['failed']}")
    return f"round {life['round'] + 1} {life['workload']} {life['peer']}: {' | '.join(part for part in parts if part)}"


def _described(peer: Peer, missing: dict[str, str]) -> dict[str, Any]:
    return {"note": peer.note, "native": peer.native, "missing": missing.get(peer.environment, "")}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory_kib = next(
        int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line
    )
    return {
        "processor": name,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_kib / 2**20),
        "system": platform.release(),
        "python": platform.python_version(),
        "onnxruntime": version("onnxruntime"),
        "day": time.strftime("%Y-%m-%d"),
        "load_before": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
