"""What has to be reached beside the peers: each bar a ratio within one run, but for memory and cold start."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from bench.figures import Figure
from bench.peers.found import AUTO, OURS, Found, Rounds, middle, ratios, spread
from bench.peers.plan import MAIN

MIB = 1e6
LOADED = (16, 64)
SHARE = 0.7

Of = Callable[[str], Rounds]


def figures(found: Found) -> Iterator[Figure]:
    """All of them, also those that this run has nothing for: these are missed."""
    for connections in LOADED:
        yield from _tabular(found, connections)
    for connections in LOADED:
        yield from _embedding(found, connections)
    for connections in LOADED:
        yield _of_limit(found, "image", connections)
    for workload in MAIN:
        yield _lone(found, workload)
    for workload in MAIN:
        yield _tail(found, workload)
    yield _plain(
        "memory of the served tabular pipeline", _scaled(found.whole(OURS, "tabular", "memory_bytes"), MIB), "MB", 200
    )
    yield _plain("cold start of the tabular pipeline", found.whole(OURS, "tabular", "cold_s"), "s", 1.0)


def _tabular(found: Found, connections: int) -> Iterator[Figure]:
    def rate(peer: str) -> Rounds:
        return found.closed(peer, "tabular", connections, "rate_per_s")

    def p99(peer: str) -> Rounds:
        return found.closed(peer, "tabular", connections, "p99_s")

    at = f"{connections} connections"
    best = _best(found.peers("tabular"), rate, max)
    python = _best(found.in_python("tabular"), rate, max)
    yield _ratio(f"tabular V2 JSON, {at}: requests/s to the best peer's", rate(OURS), best, rate, 1.3)
    yield _ratio(f"tabular V2 JSON, {at}: requests/s to the best Python peer's", rate(OURS), python, rate, 3.0)
    yield _ratio(f"tabular V2 JSON, {at}: p99 to that of the best peer", p99(OURS), best, p99, 1.0, lower=True)


def _embedding(found: Found, connections: int) -> Iterator[Figure]:
    def rate(peer: str) -> Rounds:
        return found.closed(peer, "minilm", connections, "rate_per_s")

    at = f"embedding, {connections} connections"
    best = _best(found.peers("minilm"), rate, max)
    yield _of_limit(found, "minilm", connections)
    yield _ratio(f"{at}: requests/s to the best peer's, same engine and precision", rate(OURS), best, rate, 1.0)
    yield _ratio(f'{at}: requests/s with engine = "auto" to the best peer\'s', rate(AUTO), best, rate, 1.6)


def _of_limit(found: Found, workload: str, connections: int) -> Figure:
    def limit(_: str) -> Rounds:
        return found.limit(workload)

    ours = found.closed(OURS, workload, connections, "rate_per_s")
    name = f"{workload}, {connections} connections: requests/s to the limit in process"
    return _ratio(name, ours, found.layout(workload), limit, 0.95)


def _lone(found: Found, workload: str) -> Figure:
    def p50(peer: str) -> Rounds:
        return found.closed(peer, workload, 1, "p50_s")

    best = _best(found.peers(workload), p50, min)
    return _ratio(f"{workload}, lone request: p50 to the lowest of the peers", p50(OURS), best, p50, 1.0, lower=True)


def _tail(found: Found, workload: str) -> Figure:
    def p99(peer: str) -> Rounds:
        return found.opened(peer, workload, SHARE, "p99_s")

    best = _best(found.peers(workload), p99, min)
    name = f"{workload}, open loop at {SHARE:.0%} of each one's capacity: p99 to the lowest of the peers"
    return _ratio(name, p99(OURS), best, p99, 1.0, lower=True)


def _best(peers: Sequence[str], of: Of, choose: Callable[..., str]) -> str:
    """By the median of its rounds; empty when no peer has any."""
    middles = {peer: value for peer in peers if (value := middle(of(peer))) is not None}
    return choose(middles, key=lambda peer: middles[peer]) if middles else ""


def _ratio(name: str, ours: Rounds, best: str, of: Of, bar: float, *, lower: bool = False) -> Figure:
    values = ratios(ours, of(best)) if best else []
    if not values:
        why = "of ours" if best else "of any peer"
        return Figure(name, math.nan, "x", bar, lower, f"not available: this run has no such figure {why}")
    theirs = middle(of(best)) or 0.0
    shown = f"{theirs * 1e3:.3g} ms" if lower else f"{theirs:,.0f}/s"  # only latencies are better when lower
    return Figure(name, median(values), "x", bar, lower, f"{spread(values)}; {best}: {shown}")


def _plain(name: str, rounds: Rounds, unit: str, bar: float) -> Figure:
    values = list(rounds.values())
    if not values:
        return Figure(name, math.nan, unit, bar, True, "not available: this run has no such figure")
    return Figure(name, median(values), unit, bar, True, spread(values))


def _scaled(rounds: Rounds, unit: float) -> Rounds:
    return {round: value / unit for round, value in rounds.items()}
