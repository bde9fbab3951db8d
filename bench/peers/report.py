"""docs/benchmarks.md and its pictures from build/bench/peers.json: ``python bench/peers/report.py [FILE]``.

Only the part between the comments "peers" is written; what was written by hand around it stays.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]
from bench.figures import Figure  # noqa: E402
from bench.load.served import LOG  # noqa: E402
from bench.page import PAGE, put  # noqa: E402
from bench.peers import plan  # noqa: E402
from bench.peers.bars import figures  # noqa: E402
from bench.peers.found import Found, Rounds, middle  # noqa: E402
from bench.peers.models import WORK, WORKLOADS  # noqa: E402
from bench.peers.plots import IMAGES, draw  # noqa: E402

MEGABYTE = 1e6
_PATH = re.compile(r"(?<![\w/])/[\w.+-]+/\S*")


def write(found: Found, page: Path = PAGE, images: Path = IMAGES) -> None:
    draw(found, images)
    put("peers", "\n\n".join(part for part in sections(found) if part), page)


def sections(found: Found) -> Iterator[str]:
    yield _introduction(found)
    yield _bars(list(figures(found)))
    yield "![Requests a second of each server](images/peers-throughput.svg)"
    yield "![p99 of each server against the load that is offered](images/peers-p99.svg)"
    for workload in found.workloads:
        yield f"### {workload}: {WORKLOADS[workload].says}"
        yield _limit(found, workload)
        yield _closed(found, workload)
        yield _opened(found, workload)
    yield "### The servers"
    yield "\n".join(f"- **{name}**: {peer['missing'] or peer['note']}" for name, peer in found.raw["peers"].items())
    yield "\n".join(f"- {line}" for line in found.layouts())
    failures = [_PATH.sub("…", line.partition(LOG)[0]) for line in found.failures()]
    yield "### What failed\n\n" + ("\n".join(f"- {line}" for line in failures) if failures else "Nothing.")


def _introduction(found: Found) -> str:
    machine = found.raw["machine"]
    return (
        f"{machine['day']}: {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, kernel "
        f"{machine['system']}, Python {machine['python']}, onnxruntime {machine['onnxruntime']}, load of the machine "
        f"before {machine['load_before']:.2f}. {found.raw['rounds']} rounds, {found.raw['seconds']:g} s each closed loop, "
        f"{found.raw.get('took_s', 0) / 60:.0f} minutes in all. Medians; ± is half of what lies between the least and the most of "
        "the rounds, in percent of the median. Clients and servers share the cores."
    )


def _bars(all_figures: Sequence[Figure]) -> str:
    met = sum(figure.met for figure in all_figures)
    rows = [
        (
            figure.name,
            "–" if figure.value != figure.value else f"{figure.value:.3g} {figure.unit} ({figure.spread})",
            f"{'≤' if figure.lower_is_better else '≥'} {figure.bar:g}",
            _verdict(figure),
        )
        for figure in all_figures
    ]
    return f"{met} of {len(rows)} bars are met.\n\n" + table(("figure", "value", "bar", ""), rows)


def _verdict(figure: Figure) -> str:
    if figure.met:
        return "met"
    if figure.value != figure.value:
        return f"**missed**: {figure.spread}"
    return f"**missed** by {abs(figure.value / figure.bar - 1):.1%}"


def _limit(found: Found, workload: str) -> str:
    rates = found.limit(workload)
    return f"In process: {_with_spread(rates)}/s, {found.layout(workload)}." if rates else ""


def _closed(found: Found, workload: str) -> str:
    limit = middle(found.limit(workload)) if workload != "tabular" else None
    rows = []
    for peer in found.measured(workload):
        most = max((middle(_rates(found, peer, workload, each)) or 0.0 for each in plan.CONNECTIONS), default=0.0)
        row = [peer]
        for connections in plan.CONNECTIONS:
            quantile = "p50_s" if connections == 1 else "p99_s"
            row.append(_with_spread(_rates(found, peer, workload, connections)))
            row.append(_ms(middle(found.closed(peer, workload, connections, quantile))))
        row.append(_plain(middle(found.closed(peer, workload, plan.CONNECTIONS[-1], "cpu_us")), "{:,.0f}"))
        row.append(_plain(middle(found.whole(peer, workload, "memory_bytes")), "{:,.0f}", MEGABYTE))
        row.append(_plain(middle(found.whole(peer, workload, "cold_s")), "{:.2f}"))
        row += [f"{most / limit:.2f}"] if limit else []
        rows.append(row)
    head = ["server"]
    for connections in plan.CONNECTIONS:
        head += [f"{connections}: requests/s", "p50 ms" if connections == 1 else "p99 ms"]
    head += ["CPU µs a request", "memory MB", "cold start s", *(["of the limit"] if limit else [])]
    return table(head, rows)


def _rates(found: Found, peer: str, workload: str, connections: int) -> Rounds:
    return found.closed(peer, workload, connections, "rate_per_s")


def _opened(found: Found, workload: str) -> str:
    rows = []
    for peer in found.measured(workload):
        capacity = found.whole(peer, workload, "capacity_per_s")
        if capacity:
            p99s = [_ms(middle(found.opened(peer, workload, share, "p99_s"))) for share in plan.SHARES]
            rows.append([peer, _with_spread(capacity), *p99s])
    if not rows:
        return ""
    head = ["server", "can do, requests/s", *(f"p99 ms at {share:.0%}" for share in plan.SHARES)]
    return "Open loop, p99 from when a request was due; –: the client itself was late, or requests failed.\n\n" + table(
        head, rows
    )


def _with_spread(rounds: Rounds) -> str:
    value = middle(rounds)
    if value is None:
        return "–"
    if len(rounds) == 1:
        return f"{value:,.0f}"
    return f"{value:,.0f} ± {(max(rounds.values()) - min(rounds.values())) / 2 / value:.0%}"


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:,.3g}"


def _plain(value: float | None, form: str, unit: float = 1.0) -> str:
    return "–" if value is None else form.format(value / unit)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else WORK / "peers.json"
    write(Found(json.loads(file.read_text())))


if __name__ == "__main__":
    main()
