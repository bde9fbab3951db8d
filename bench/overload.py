"""What is left of the server under more work than it can do: ``python bench/overload.py [--quick] [--rounds N]``.

The model sleeps 10 ms and takes one row at a time, so what is overloaded is the queue and not the machine; requests go
out when they are due (``tests/open_loop.py``), and what they took counts from then. Every figure is printed with its
bar and with what each round had; the last line is the summary. The client's own delays are in all times.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import Figure, say, summarise  # noqa: E402
from tests.faults.overloaded import Load, Watch, overloadable, peak_of  # noqa: E402  (the tests' servers and watch)
from tests.open_loop import Outcome  # noqa: E402

SLEEP_MS = 10.0
DEADLINE_MS = 500
MIB = 1024**2
TIMES = {1.2: 0.95, 3.0: 0.90, 10.0: 0.90}
BURST_END_S = 3.0
WINDOW_S = 0.5


@dataclass(slots=True)
class Rounds:
    """What each round had of each figure; ``say`` prints the worst of those that must hold always, else the median."""

    values: dict[str, list[float]] = field(default_factory=dict)
    bars: dict[str, tuple[str, float, bool, Callable[[Sequence[float]], float]]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        bar: float,
        *,
        lower: bool,
        of: Callable[[Sequence[float]], float] = median,
    ) -> None:
        self.values.setdefault(name, []).append(value)
        self.bars[name] = (unit, bar, lower, of)

    def say(self) -> list[Figure]:
        said: list[Figure] = []
        for name, (unit, bar, lower, of) in self.bars.items():
            values = self.values[name]
            rounds = "rounds: " + " ".join(f"{value:.3g}" for value in values)
            said.append(say(Figure(name, of(values), unit, bar, lower, rounds)))
        return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one round of short loads: a minute; fails when a bar is missed"
    )
    parser.add_argument("--rounds", type=int, default=2, help="of everything")
    arguments = parser.parse_args()
    seconds = 3.0 if arguments.quick else 8.0
    rounds = Rounds()
    for _ in range(1 if arguments.quick else arguments.rounds):
        with tempfile.TemporaryDirectory() as scratch, overloadable(Path(scratch)) as (server, _):
            load = Load(server, SLEEP_MS, DEADLINE_MS, peak_of(server, SLEEP_MS, seconds=seconds / 2))
            goodput(load, seconds, rounds)
            recovery(load, 6.0 if arguments.quick else 12.0, rounds)
            version = server.version("slow")
            rounds.add("expired work that was begun", version["overdue"], "items", 0, lower=True, of=max)
        with tempfile.TemporaryDirectory() as scratch, overloadable(Path(scratch), keys=True) as (server, keys):
            peak = peak_of(server, SLEEP_MS, {"X-API-Key": keys["quiet"]}, seconds / 2)
            load = Load(server, SLEEP_MS, DEADLINE_MS, peak)
            tenants(load, keys, seconds, rounds)
            priorities(load, keys, seconds, rounds)
    said = rounds.say()
    summarise(said)
    if arguments.quick and not all(figure.met for figure in said):
        sys.exit(1)


def goodput(load: Load, seconds: float, rounds: Rounds) -> None:
    """Open loop at several times the capacity, and what the operator sees meanwhile."""
    for times, bar in TIMES.items():
        with Watch(load.server, "slow") as watch:
            before = watch.look()
            came = load.offer(load.stream("all", times, 0.0, seconds))
        named = f"at {times:g} times the capacity"
        share = came.rate(1.0, seconds) / load.peak
        rounds.add(f"{named}, goodput to peak", share, "of it", bar, lower=False)
        rounds.add(f"{named}, accepted p99", came.good.took_s() * 1000, "ms", DEADLINE_MS, lower=True)
        rounds.add(f"{named}, refused p99", came.refused.took_s() * 1000, "ms", 20, lower=True)
        rounds.add(f"{named}, slowest of the operator's requests", watch.probes_s() * 1000, "ms", 100, lower=True)
        if times == max(TIMES):
            seen = watch.seen
            deepest = max(each.queue_rows for each in seen)
            grown = (max(each.resident_bytes for each in seen) - before.resident_bytes) / MIB
            files = max(each.descriptors - each.connections for each in seen) - before.descriptors + before.connections
            threads = max(each.threads for each in seen) - before.threads
            rounds.add(f"{named}, rows in the queue", deepest, "rows", load.peak * DEADLINE_MS / 1000 + 2, lower=True)
            rounds.add(f"{named}, memory grown", grown, "MiB", 32, lower=True, of=max)
            rounds.add(f"{named}, files beside connections", files, "more", 8, lower=True, of=max)
            rounds.add(f"{named}, threads", threads, "more", 6, lower=True, of=max)


def recovery(load: Load, seconds: float, rounds: Rounds) -> None:
    """Clients at half the capacity, and for two seconds ten times as many who try three times each."""
    usual = load.stream("usual", 0.5, 0.0, BURST_END_S + seconds)
    burst = replace(load.stream("burst", 10.0, 1.0, BURST_END_S), attempts=3)
    came = load.offer(usual, burst).of("usual")
    took_s = recovered_s(came, came.between(0.0, 1.0).took_s(), seconds)
    rounds.add("recovery after a burst of clients that try three times", took_s, "s", 10, lower=True)


def recovered_s(came: Outcome, usual_s: float, seconds: float) -> float:
    """From the end of the burst until all is good and no slower than three times the usual; infinite if it is not."""
    starts = [BURST_END_S + WINDOW_S * number for number in range(int(seconds / WINDOW_S))]
    windows = {start: came.between(start, start + WINDOW_S) for start in starts}
    bad = [start for start, part in windows.items() if part.share < 1.0 or part.took_s() > 3 * usual_s + 0.02]
    if not bad:
        return 0.0
    return max(bad) + WINDOW_S - BURST_END_S if max(bad) < starts[-1] else float("inf")


def tenants(load: Load, keys: dict[str, str], seconds: float, rounds: Rounds) -> None:
    """One at ten times the capacity, another at a tenth of it."""
    idle = load.offer(load.stream("quiet", 0.1, 0.0, seconds, X_API_Key=keys["quiet"]))
    noisy = load.stream("noisy", 10.0, 0.0, seconds + 1.0, X_API_Key=keys["noisy"])
    quiet = load.stream("quiet", 0.1, 1.0, seconds + 1.0, X_API_Key=keys["quiet"])
    came = load.offer(noisy, quiet).of("quiet")
    rounds.add("beside a noisy tenant, another's good answers", came.share, "of all", 0.99, lower=False)
    slower = came.took_s() / idle.took_s()
    rounds.add("beside a noisy tenant, another's p99", slower, "times its idle p99", 3, lower=True)


def priorities(load: Load, keys: dict[str, str], seconds: float, rounds: Rounds) -> None:
    """All classes together at four times the capacity."""
    shares = (("critical", 0.3), ("quiet", 0.5), ("sheddable", 3.2))
    came = load.offer(*[load.stream(name, times, 0.0, seconds, X_API_Key=keys[name]) for name, times in shares])
    rounds.add("critical requests, good answers", came.of("critical").share, "of all", 0.99, lower=False)
    rounds.add("standard requests, good answers", came.of("quiet").share, "of all", 0.95, lower=False)
    rounds.add("sheddable requests, good answers", came.of("sheddable").share, "of all", 0.2, lower=True)


if __name__ == "__main__":
    main()
