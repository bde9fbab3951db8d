"""The two pictures of docs/benchmarks.md: throughput of each server, and p99 against the load that is offered."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figures import ROOT
from bench.peers.found import OURS, Found, middle
from bench.peers.models import WORKLOADS
from bench.peers.plan import MAIN

IMAGES = ROOT / "docs" / "images"
COLOURS = ("#d1495b", "#00798c", "#edae49", "#30638e", "#6a994e", "#8d6a9f", "#b08968", "#6c757d", "#2b2d42", "#f28482")
CONNECTIONS = 64


def draw(found: Found, folder: Path = IMAGES) -> list[Path]:
    """Writes them as SVG, the same bytes for the same figures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "forwardpass", "font.size": 9, "axes.spines.top": False})
    matplotlib.rcParams.update({"axes.spines.right": False, "svg.fonttype": "none"})
    folder.mkdir(parents=True, exist_ok=True)
    shown = [workload for workload in MAIN if workload in found.workloads]
    return [
        _save(_throughput(found, shown), folder / "peers-throughput.svg"),
        _save(_latency(found, shown), folder / "peers-p99.svg"),
    ]


def colour_of(found: Found, peer: str) -> str:
    return COLOURS[list(found.raw["peers"]).index(peer) % len(COLOURS)]


def _panels(shown: Sequence[str]) -> tuple[Any, Sequence[Any]]:
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(shown), figsize=(4.2 * len(shown), 3.6), squeeze=False, layout="constrained"
    )
    for panel, workload in zip(panels[0], shown, strict=True):
        panel.set_title(f"{workload}: {WORKLOADS[workload].says}", fontsize=8)
    return figure, panels[0]


def _throughput(found: Found, shown: Sequence[str]) -> Any:
    figure, panels = _panels(shown)
    for panel, workload in zip(panels, shown, strict=True):
        rates = {peer: found.closed(peer, workload, CONNECTIONS, "rate_per_s") for peer in found.measured(workload)}
        middles = {peer: value for peer, each in rates.items() if (value := middle(each)) is not None}
        names = sorted(middles, key=lambda peer: middles[peer])
        bars = panel.barh(names, [middles[name] for name in names], color=[colour_of(found, name) for name in names])
        panel.bar_label(bars, labels=[f"{middles[name]:,.0f}" for name in names], padding=3)
        panel.margins(x=0.18)
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panel.set_xlabel(f"requests/s, {CONNECTIONS} connections")
        if (limit := middle(found.limit(workload))) is not None and workload != "tabular":
            panel.axvline(limit, color="black", linestyle=":", linewidth=1)
            panel.text(limit, -0.3, "limit in process ", fontsize=7, rotation=90, va="bottom", ha="right")
    return figure


def _latency(found: Found, shown: Sequence[str]) -> Any:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, panels = _panels(shown)
    for panel, workload in zip(panels, shown, strict=True):
        for peer in found.measured(workload):
            curve = found.curve(peer, workload)
            if not curve:
                continue
            rates, times = [rate for rate, _ in curve], [p99 * 1e3 for _, p99 in curve]
            width = 2.4 if peer == OURS else 1.2
            panel.plot(
                rates, times, marker="o", markersize=3, linewidth=width, color=colour_of(found, peer), label=peer
            )
        panel.set(xlabel="requests/s offered", ylabel="p99, ms")
        panel.grid(which="major", alpha=0.3)
        if panel.lines:
            panel.set(xscale="log", yscale="log")
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
                axis.set_minor_formatter(NullFormatter())
            panel.legend(fontsize=7, frameon=False)
    return figure


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
