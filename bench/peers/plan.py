"""What one run measures, in which order, and how long that takes: sized for 25 minutes on two cores."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.peers.peer import Peer

CONNECTIONS = (1, 16, 64)
SHARES = (0.3, 0.5, 0.7, 0.9)
"""Of what each server can do, when the open loop asks."""
RATES: Mapping[str, Sequence[float]] = {
    "tabular": (250, 1000, 4000, 12000),
    "minilm": (50, 150),
    "image": (50, 150),
}
"""Requests a second that every server is offered in the last round, if they are no more than it can do."""

MAIN = ("tabular", "minilm", "image")
"""Workloads with bars: every round, and the open loop from the second round on."""
BESIDE = ("tabular_binary", "sentence", "jpeg", "cascade")
"""Closed loops alone, in the first round."""
BESIDE_ROUNDS = 1
MINUTES = 24.5  # with what is made before and written after, 25

WARM_S = 1.0
OPEN_S, OPEN_WARM_S, CAPACITY_S = 1.5, 0.3, 1.0
CAPACITY_REQUESTS_MIN = 64
CLIENT_START_S = 0.3
LIMIT_S, LIMIT_SCAN_S = 1.5, 0.4
START_S: Mapping[str, float] = {"ray": 12.0, "bentoml": 4.0, "mlserver": 2.5, "triton": 3.0}
"""To the first right answer and to the end, roughly; others: OTHER_START_S."""
OTHER_START_S = 2.0
PROBE_S = 2.0
PROBE_CONNECTIONS = (16, 64)
"""Of each layout of a peer that has several, before the first round."""


def probe_takes_s(peer: Peer) -> float:
    """Of one layout."""
    return START_S.get(peer.name, OTHER_START_S) + WARM_S + len(PROBE_CONNECTIONS) * PROBE_S


@dataclass(frozen=True, slots=True)
class Life:
    """One start of one server for one workload, and what is measured until it is stopped."""

    round: int
    workload: str
    peer: Peer
    shares: Sequence[float]
    rates: Sequence[float]

    def takes_s(self, seconds: float) -> float:
        cells = len(self.shares) + len(self.rates)
        opened = (CAPACITY_S + cells * (OPEN_WARM_S + OPEN_S + CLIENT_START_S)) if cells else 0.0
        return START_S.get(self.peer.name, OTHER_START_S) + WARM_S + len(CONNECTIONS) * seconds + opened


@dataclass(frozen=True, slots=True)
class Plan:
    """The same servers one after the other, round after round, each round beginning with another one."""

    peers: Sequence[Peer]
    workloads: Sequence[str]
    rounds: int
    seconds: float

    def lives(self, round: int) -> Iterator[Life]:
        for workload in self.workloads:
            if workload in BESIDE and round >= BESIDE_ROUNDS:
                continue
            asked = [peer for peer in self.peers if workload in peer.models]
            first = round % max(1, len(asked))
            opened = workload in MAIN and (round > 0 or self.rounds == 1)
            last = opened and round == self.rounds - 1
            rates = RATES[workload] if last else ()
            for peer in asked[first:] + asked[:first]:
                yield Life(round, workload, peer, SHARES if opened else (), rates)

    @property
    def probed(self) -> list[tuple[Peer, str]]:
        """The peers with several layouts, for each workload that has some."""
        return [(peer, workload) for peer in self.peers for workload in self.workloads if workload in peer.tried]

    @property
    def limited(self) -> list[str]:
        """The workloads whose limit in process is measured."""
        return [workload for workload in self.workloads if workload in MAIN]

    def takes_s(self) -> float:
        lives = sum(life.takes_s(self.seconds) for each in range(self.rounds) for life in self.lives(each))
        probes = sum((1 + len(peer.tried[workload])) * probe_takes_s(peer) for peer, workload in self.probed)
        return lives + probes + len(self.limited) * (self.rounds * LIMIT_S + 10 * LIMIT_SCAN_S)

    def __str__(self) -> str:
        lines = [f"plan: {self.rounds} rounds, {self.seconds:g} s a cell, about {self.takes_s() / 60:.0f} minutes"]
        for workload in self.workloads:
            names = [peer.name for peer in self.peers if workload in peer.models]
            lines.append(f"  {workload}: {', '.join(names)}")
        return "\n".join(lines)
