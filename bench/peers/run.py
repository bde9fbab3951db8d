"""``make bench-peers``: the server and its peers on this machine, in one interleaved run.

Only one server lives at a time: started, checked for right answers, measured and stopped, then the next one; then all of
it again. So no idle server takes cores from the one that is measured, and each round has its own cold start. Everything
found goes to build/bench/peers.json as it is found; each bar is printed with its figure, the summary is the last line.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]
from bench.figures import say, summarise  # noqa: E402
from bench.peers import environments, measure, models, plan  # noqa: E402
from bench.peers.bars import figures  # noqa: E402
from bench.peers.found import OURS, Found  # noqa: E402
from bench.peers.peer import Peer  # noqa: E402
from bench.peers.registry import ALL  # noqa: E402

OUTPUT = models.WORK / "peers.json"


def main() -> None:
    arguments = _arguments()
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
    started = time.perf_counter()
    found |= {"seconds": arguments.seconds, "rounds": arguments.rounds, "lives": [], "limits": []}
    run(planned, found, arguments.output)
    found["took_s"] = time.perf_counter() - started
    _keep(found, arguments.output)
    print(f"took {found['took_s'] / 60:.1f} minutes", flush=True)
    summarise([say(figure) for figure in figures(Found(found))])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=[peer.name for peer in ALL], help="only these")
    parser.add_argument("--models", nargs="+", choices=[*plan.MAIN, *plan.BESIDE], help="only these workloads")
    parser.add_argument("--rounds", type=int, default=3, help="of everything; medians are reported")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each closed loop")
    parser.add_argument("--quick", action="store_true", help="one round of one-second loops, workloads with bars only")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the raw results go")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 1.0
    arguments.models = arguments.models or (plan.MAIN if arguments.quick else (*plan.MAIN, *plan.BESIDE))
    return arguments


def run(planned: plan.Plan, found: dict[str, Any], output: Path) -> None:
    layouts = {workload: measure.in_process(workload).best(plan.LIMIT_SCAN_S) for workload in planned.limited}
    for round in range(planned.rounds):
        for life in planned.lives(round):
            if life.workload in layouts and life.peer.name == OURS:  # next to each other, for their ratio
                found["limits"].append(measure.limit(life.workload, layouts[life.workload], round))
                print(_limit_line(found["limits"][-1]), flush=True)
            found["lives"].append(measure.measure(life, planned.seconds))
            print(_life_line(found["lives"][-1]), flush=True)
            _keep(found, output)


def _limit_line(limit: dict[str, Any]) -> str:
    return f"round {limit['round'] + 1} {limit['workload']} in process: {limit['rate_per_s']:.0f}/s, {limit['layout']}"


def _life_line(life: dict[str, Any]) -> str:
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


def _keep(found: dict[str, Any], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(output)


if __name__ == "__main__":
    main()
