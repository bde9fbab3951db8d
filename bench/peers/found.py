"""What a run found, as figures by round: build/bench/peers.json read back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

OURS, AUTO = "forwardpass", "forwardpass-auto"

Rounds = Mapping[int, float]
"""A figure for each round that has one: a cell with failures, too few answers or a late client has none."""


def spread(values: Sequence[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}" if values else "none"


def middle(rounds: Rounds) -> float | None:
    return median(rounds.values()) if rounds else None


def ratios(ours: Rounds, theirs: Rounds) -> list[float]:
    """Of the same rounds: what the machine did to both in that quarter of an hour cancels out."""
    return [ours[round] / theirs[round] for round in sorted(ours.keys() & theirs.keys())]


def layout_text(layout: Mapping[str, int]) -> str:
    return f"{layout['workers']} x {layout['threads']} thread(s), batch {layout['batch']}"


@dataclass(frozen=True, slots=True)
class Found:
    """``raw`` is what run.py wrote."""

    raw: Mapping[str, Any]

    def lives(self, peer: str, workload: str) -> Iterator[Mapping[str, Any]]:
        return (life for life in self.raw["lives"] if (life["peer"], life["workload"]) == (peer, workload))

    def whole(self, peer: str, workload: str, key: str) -> Rounds:
        """A figure of each life: cold_s, memory_bytes, idle_cpu, capacity_per_s."""
        return {life["round"]: life[key] for life in self.lives(peer, workload) if key in life}

    def closed(self, peer: str, workload: str, connections: int, key: str) -> Rounds:
        return {
            life["round"]: cell[key]
            for life in self.lives(peer, workload)
            for cell in life.get("closed", ())
            if cell["connections"] == connections and cell["valid"] and not cell["failures"]
        }

    def opened(self, peer: str, workload: str, share: float, key: str) -> Rounds:
        return {
            life["round"]: cell[key]
            for life in self.lives(peer, workload)
            for cell in life.get("open", ())
            if cell["share"] == share and cell["valid"] and not cell["failures"]
        }

    def curve(self, peer: str, workload: str) -> list[tuple[float, float]]:
        """Requests a second and p99 in seconds of every open loop, shares and common rates, medians, by rate."""
        found: dict[tuple[Any, Any], list[tuple[float, float]]] = {}
        for life in self.lives(peer, workload):
            for cell in life.get("open", ()):
                if cell["valid"] and not cell["failures"]:
                    kind = (cell["share"], cell["rate_per_s"] if cell["share"] is None else None)
                    found.setdefault(kind, []).append((cell["rate_per_s"], cell["p99_s"]))
        return sorted((median(rate for rate, _ in each), median(p99 for _, p99 in each)) for each in found.values())

    def limit(self, workload: str) -> Rounds:
        return {each["round"]: each["rate_per_s"] for each in self.raw["limits"] if each["workload"] == workload}

    def layout(self, workload: str) -> str:
        return next((each["layout"] for each in self.raw["limits"] if each["workload"] == workload), "")

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(life["workload"] for life in self.raw["lives"]))

    def measured(self, workload: str) -> list[str]:
        """The servers that were asked this, in the registry's order."""
        asked = {life["peer"] for life in self.raw["lives"] if life["workload"] == workload}
        return [name for name in self.raw["peers"] if name in asked]

    def peers(self, workload: str) -> list[str]:
        """The others."""
        return [name for name in self.measured(workload) if name not in (OURS, AUTO)]

    def in_python(self, workload: str) -> list[str]:
        """Peers whose requests are read by Python."""
        return [name for name in self.peers(workload) if not self.raw["peers"][name]["native"]]

    def failures(self) -> list[str]:
        """One line for each server that could not be had, did not start, answered wrong or with errors, or was left out."""
        lines = [f"{name}: {peer['missing']}" for name, peer in self.raw["peers"].items() if peer["missing"]]
        for life in self.raw["lives"]:
            where = f"{life['peer']}, {life['workload']}, round {life['round'] + 1}"
            lines += [f"{where}: {life['failed']}"] if life["failed"] else []
            for cell in life.get("closed", ()):
                if cell["failures"]:
                    lines.append(f"{where}, {cell['connections']} connections: {cell['failures']} requests failed")
                elif not cell["valid"] and not life["failed"]:
                    lines.append(f"{where}, {cell['connections']} connections: fewer answers than connections")
            for cell in life.get("open", ()):
                if cell["failures"]:
                    lines.append(f"{where}, {cell['rate_per_s']:.0f}/s: {cell['failures']} requests failed")
        return lines + list(self.raw.get("left_out", ()))

    def layouts(self) -> list[str]:
        """One line for each peer and workload that was tried in several layouts."""
        return [
            f"{each['peer']}, {each['workload']}: "
            + ", ".join(layout_text(one["layout"]) for one in each["tried"])
            + f" were tried; {layout_text(each['best'])} is what was measured"
            for each in self.raw.get("layouts", ())
        ]
