"""What is left of the server under more work than it can do: ``python bench/overload.py [--quick] [--rounds N]``.

The model sleeps 10 ms and takes one row at a time, so what is overloaded is the queue and not the machine; requests go
out when they are due (``tests/open_loop.py``), and what they took counts from then. Good is an answer that came in time;
refused is everything else, be it no answer at all, but for what was shed: taken in, and turned away later. Every figure is
printed with its bar and with what each round had, and the worst of these counts; the last line is the summary, and the
status is 1 when a bar is missed. The client's own delays are in all times.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import Figure, say, summarise  # noqa: E402
from tests.faults.overloaded import Load, Watch, overloadable, peak_of  # noqa: E402  (the tests' servers and watch)
from tests.open_loop import Outcome  # noqa: E402

SLEEP_MS = 10.0
DEADLINE_MS = 500
MIB = 1024**2
TIMES = {1.2: 0.95, 3.0: 0.90, 10.0: 0.90}
REFUSES_FROM = 3.0  # times the capacity: somebody must be refused at the door
ALLOWED = {"200", "queue_wait_too_long", "shed", "deadline_exceeded"}
BURST_END_S = 3.0
WINDOW_S = 0.5
ATTEMPTS = 4  # a request, and three times again
IDLE_TIMES = 0.3  # nothing waits at this share of the capacity, and a hundred requests are soon asked


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long each load lasts, in seconds."""

    peak_s: float
    load_s: float
    after_burst_s: float
    idle_s: float
    noisy_s: float
    classes_s: float


FULL = Lengths(4.0, 8.0, 12.0, 4.0, 13.0, 5.0)
QUICK = Lengths(1.5, 3.0, 5.0, 4.0, 5.0, 2.5)


@dataclass(slots=True)
class Rounds:
    """What each round had of each figure; ``say`` prints the worst."""

    values: dict[str, list[float]] = field(default_factory=dict)
    bars: dict[str, tuple[str, float, bool]] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str, *, most: float | None = None, least: float | None = None) -> None:
        """With one of the two bars."""
        bar = least if most is None else most
        assert bar is not None, "every figure has a bar"
        self.values.setdefault(name, []).append(value)
        self.bars[name] = (unit, bar, most is not None)

    def say(self) -> list[Figure]:
        said: list[Figure] = []
        for name, (unit, bar, lower) in self.bars.items():
            values = self.values[name]
            rounds = "rounds: " + " ".join(f"{value:.3g}" for value in values)
            said.append(say(Figure(name, max(values) if lower else min(values), unit, bar, lower, rounds)))
        return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of short loads: a minute")
    parser.add_argument("--rounds", type=int, default=2, help="of everything")
    arguments = parser.parse_args()
    lengths = QUICK if arguments.quick else FULL
    rounds = Rounds()
    for _ in range(1 if arguments.quick else arguments.rounds):
        with tempfile.TemporaryDirectory() as scratch, overloadable(Path(scratch)) as (server, _):
            load = Load(server, SLEEP_MS, DEADLINE_MS, peak_of(server, SLEEP_MS, seconds=lengths.peak_s))
            goodput(load, lengths, rounds)
            recovery(load, lengths, rounds)
            expired(load, rounds)
        with tempfile.TemporaryDirectory() as scratch, overloadable(Path(scratch), keys=True) as (server, keys):
            peak = peak_of(server, SLEEP_MS, {"X-API-Key": keys["quiet"]}, lengths.peak_s)
            load = Load(server, SLEEP_MS, DEADLINE_MS, peak)
            tenants(load, keys, lengths, rounds)
            priorities(load, keys, lengths, rounds)
    said = rounds.say()
    summarise(said)
    if not all(figure.met for figure in said):
        sys.exit(1)


def goodput(load: Load, lengths: Lengths, rounds: Rounds) -> None:
    """Open loop at several times the capacity, and what the operator sees meanwhile. The peak is the most that was seen."""
    rates: dict[float, float] = {}
    for times in TIMES:
        with Watch(load.server, "slow") as watch:
            before = watch.look()
            came = load.offer(load.stream("all", times, 0.0, lengths.load_s))
        rates[times] = came.rate(1.0, lengths.load_s)
        named = f"at {times:g} times the capacity"
        answers(came, named, rounds, must_refuse=times >= REFUSES_FROM)
        rounds.add(f"{named}, slowest of the operator's requests", watch.probes_s() * 1000, "ms", most=100)
        if times == max(TIMES):
            seen = watch.seen
            deepest = max(each.queue_rows for each in seen)
            grown = (max(each.resident_bytes for each in seen) - before.resident_bytes) / MIB
            files = max(each.descriptors - each.connections for each in seen) - before.descriptors + before.connections
            threads = max(each.threads for each in seen) - before.threads
            rounds.add(f"{named}, rows in the queue", deepest, "rows", most=load.peak * DEADLINE_MS / 1000 + 2)
            rounds.add(f"{named}, memory grown", grown, "MiB", most=32)
            rounds.add(f"{named}, files beside connections", files, "more", most=8)
            rounds.add(f"{named}, threads", threads, "more", most=6)
    peak = max(load.peak, *rates.values())
    for times, rate in rates.items():
        rounds.add(f"at {times:g} times the capacity, goodput to peak", rate / peak, "of it", least=TIMES[times])
    # More than that was measured as the peak by clients that wait: then the peak was none, and neither were the loads.
    rounds.add("the most that was seen, to the peak by which the loads were made", peak / load.peak, "of it", most=1.05)


def answers(came: Outcome, named: str, rounds: Rounds, *, must_refuse: bool) -> None:
    """How long the good, the refused and the shed took, and whether there were others."""
    rounds.add(f"{named}, accepted p99", came.accepted.took_s() * 1000, "ms", most=DEADLINE_MS)
    refused, shed = came.refused, came.shed
    if refused.sent or must_refuse:
        rounds.add(f"{named}, refused p99", refused.took_s() * 1000, "ms", most=20)
    if shed.sent:
        rounds.add(f"{named}, shed p99", shed.took_s() * 1000, "ms", most=DEADLINE_MS)
    rounds.add(f"{named}, shed", len(shed.sent) / len(came.sent), "of all", most=0.1)
    other = sum(count for code, count in came.codes.items() if code not in ALLOWED)
    rounds.add(f"{named}, answers of another kind, or none", other, "of all sent", most=0)
    print(f"{named}: {dict(came.codes)}", flush=True)


def recovery(load: Load, lengths: Lengths, rounds: Rounds) -> None:
    """Clients at half the capacity, and for two seconds ten times as many who try again three times."""
    usual = load.stream("usual", 0.5, 0.0, BURST_END_S + lengths.after_burst_s)
    burst = replace(load.stream("burst", 10.0, 1.0, BURST_END_S), attempts=ATTEMPTS)
    came = load.offer(usual, burst).of("usual")
    took_s = recovered_s(came, came.between(0.0, 1.0).took_s(), lengths.after_burst_s)
    rounds.add("recovery after a burst of clients that try again three times", took_s, "s", most=10)


def recovered_s(came: Outcome, usual_s: float, seconds: float) -> float:
    """From the end of the burst until all is good and no slower than three times the usual; infinite if it is not."""
    starts = [BURST_END_S + WINDOW_S * number for number in range(int(seconds / WINDOW_S))]
    windows = {start: came.between(start, start + WINDOW_S) for start in starts}
    bad = [start for start, part in windows.items() if part.share < 1.0 or part.took_s() > 3 * usual_s + 0.02]
    if not bad:
        return 0.0
    return max(bad) + WINDOW_S - BURST_END_S if max(bad) < starts[-1] else float("inf")


def expired(load: Load, rounds: Rounds) -> None:
    """By the server's own count, and by that of the model, which looks at what the client wrote into the row."""
    rounds.add("expired work that was begun", load.server.version("slow")["overdue"], "items", most=0)
    rounds.add("expired work that was begun, as the model counts", load.begun_late(), "items", most=0)


def tenants(load: Load, keys: dict[str, str], lengths: Lengths, rounds: Rounds) -> None:
    """One at ten times the capacity, another at a tenth of it."""
    idle = load.offer(load.stream("quiet", IDLE_TIMES, 0.0, lengths.idle_s, X_API_Key=keys["quiet"]))
    noisy = load.stream("noisy", 10.0, 0.0, lengths.noisy_s, X_API_Key=keys["noisy"])
    quiet = load.stream("quiet", 0.1, 1.0, lengths.noisy_s, X_API_Key=keys["quiet"])
    came = load.offer(noisy, quiet).of("quiet")
    rounds.add("beside a noisy tenant, another's good answers", came.share, "of all", least=0.99)
    slower = came.took_s() / idle.took_s()
    rounds.add("beside a noisy tenant, another's p99", slower, "times its idle p99", most=3)


def priorities(load: Load, keys: dict[str, str], lengths: Lengths, rounds: Rounds) -> None:
    """All classes together at each of the loads; what the higher ones leave over is for the sheddable one."""
    for times in TIMES:
        shares = (("critical", 0.3), ("quiet", 0.5), ("sheddable", times - 0.8))
        came = load.offer(
            *[load.stream(name, each, 0.0, lengths.classes_s, X_API_Key=keys[name]) for name, each in shares]
        )
        named = f"of all classes at {times:g} times the capacity"
        rounds.add(f"{named}, critical ones good", came.of("critical").share, "of all", least=0.99)
        rounds.add(f"{named}, standard ones good", came.of("quiet").share, "of all", least=0.95)
        better = came.of("sheddable").share - came.of("quiet").share
        rounds.add(f"{named}, sheddable ones good beyond the standard ones", better, "of all", most=0)


if __name__ == "__main__":
    main()
