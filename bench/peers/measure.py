"""One life of a server: started, asked for right answers, loaded in closed and open loops, stopped."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from bench.load.answers import post
from bench.load.closed_loop import close_loop
from bench.load.limit import Feeds, InProcess, Layout
from bench.load.open_loop import Offered, offer, saturate
from bench.load.served import NotServed, Question, Served, free_port, served, together
from bench.peers import peer as peers
from bench.peers import plan
from bench.peers.forms import Request, numbers
from bench.peers.models import MODELS, VARIANTS, WORK, WORKLOADS, answer, inputs
from bench.peers.peer import Peer, served_name

LIMIT_BATCHES: Mapping[str, tuple[int, ...]] = {"tabular": (1, 64, 1024)}
OTHER_BATCHES = (1, 4, 8, 16, 32)
IDLE_S = 0.3
WRONG = "a wrong answer"
PATIENCE = 3.0  # once it answers, a life may take so many times what is planned for it

Kept = Callable[[Mapping[str, Any]], None]
"""Told of a life after each of its cells, so that no later one can lose it."""


def question_for(peer: Peer, workload: str, variant: int = 0) -> Question:
    """Its answer is right when it is onnxruntime's own, within the workload's tolerance or the one it has said."""
    wanted, tolerance = answer(workload, variant), max(WORKLOADS[workload].tolerance, peer.tolerance)
    request = peer.request(workload, variant)

    def wrong(status: int, headers: Mapping[str, str], body: bytes) -> str:
        if status != 200:
            return f"status {status}: {body[:100]!r}"
        try:
            given = numbers(body, headers)
        except (ValueError, KeyError, TypeError) as error:
            return f"an answer that cannot be read: {error}"
        if given.shape != wanted.shape or not np.allclose(given, wanted, rtol=0, atol=tolerance):
            return f"{WRONG}: {given.ravel()[:3]} instead of {wanted.ravel()[:3]}"
        return ""

    return Question(urlsplit(peer.url(workload, 0)).path, request.body, request.headers, wrong)


def questions_for(peer: Peer, workload: str) -> list[Question]:
    """One for each request that the load sends."""
    return [question_for(peer, workload, variant) for variant in range(VARIANTS)]


@contextmanager
def living(peer: Peer, workload: str, port: int, log: Path, layout: peers.Layout | None = None) -> Iterator[Served]:
    """It has answered right. Raises NotServed."""
    launch = peer.command(workload, port, layout)
    question = question_for(peer, workload)
    with served(launch.argv, launch.environment, launch.folder, port, question, log, peer.start_limit_s) as running:
        yield running


def measure(life: plan.Life, seconds: float, kept: Kept = lambda _: None) -> dict[str, Any]:
    """What is kept of it; ``failed`` says why there are no figures, or why some are missing."""
    peer, workload, port = life.peer, life.workload, free_port()
    found: dict[str, Any] = {"round": life.round, "workload": workload, "peer": peer.name, "failed": "", "done": False}
    log = WORK / "logs" / f"{peer.name}-{workload}-{life.round}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    started_s = time.perf_counter()
    try:
        with living(peer, workload, port, log) as server, within(PATIENCE * life.takes_s(seconds)):
            found |= {"cold_s": server.cold_s, "idle_cpu": _idle(server)}
            kept(found)
            _load(server, life, seconds, found, kept)
    except Exception as error:  # whatever went wrong with one server: the next one still gets its turn
        found["failed"] = str(error) or type(error).__name__
    found |= {"done": True, "lasted_s": time.perf_counter() - started_s}
    kept(found)
    return found


def _load(server: Served, life: plan.Life, seconds: float, found: dict[str, Any], kept: Kept) -> None:
    peer, workload = life.peer, life.workload
    questions, requests = questions_for(peer, workload), peer.requests(workload)
    url = peer.url(workload, server.port)
    close_loop(url, requests, max(plan.CONNECTIONS), plan.WARM_S)
    if wrong := together(questions, server.port):
        raise NotServed(wrong)
    found["closed"] = []
    for connections in plan.CONNECTIONS:
        found["closed"].append(_closed(server, url, requests, connections, seconds))
        kept(found)
    found["memory_bytes"] = server.memory_bytes()
    if life.shares or life.rates:
        _open(server, questions[0].path, requests, life, found, kept)
    if wrong := together(questions, server.port):
        if WRONG in wrong:  # who is only slow to answer keeps its figures
            for cell in (*found["closed"], *found.get("open", ())):
                cell["valid"] = False
        raise NotServed(f"after the load: {wrong}")


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """Raises TimeoutError into what takes longer, in the main thread."""

    def end(_: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _idle(server: Served) -> float:
    """Cores it keeps busy while nobody asks."""
    before = server.cpu_s()
    time.sleep(IDLE_S)
    return (server.cpu_s() - before) / IDLE_S


def _closed(server: Served, url: str, requests: Sequence[Request], connections: int, seconds: float) -> dict[str, Any]:
    before = server.cpu_s()
    cell = close_loop(url, requests, connections, seconds)
    cpu_us = (server.cpu_s() - before) / max(1, cell.requests) * 1e6
    kept = {"connections": connections, "rate_per_s": cell.rate_per_s, "cpu_us": cpu_us, **asdict(cell)}
    return kept | {"valid": cell.requests >= connections, "failures": cell.failed}


def _open(
    server: Served, path: str, requests: Sequence[Request], life: plan.Life, found: dict[str, Any], kept: Kept
) -> None:
    """At shares of what this client gets from the server when it never waits: both share the machine's cores."""
    sent = [post(path, dict(each.headers), each.body) for each in requests]
    closed_rate = max(cell["rate_per_s"] for cell in found["closed"])
    endless = saturate(server.port, sent, max(plan.CAPACITY_REQUESTS_MIN, round(closed_rate * plan.CAPACITY_S)))
    capacity = endless.answered / endless.took_s
    if not capacity:
        raise NotServed("no answer at all from as many requests as it is given")
    found |= {"capacity_per_s": capacity, "open": []}
    fitting = [rate for rate in life.rates if rate <= max(life.shares, default=1.0) * capacity]
    cells = [(share, share * capacity) for share in life.shares] + [(None, rate) for rate in fitting]
    for share, rate in cells:
        found["open"].append({"share": share, **_offered(server, sent, rate)})
        kept(found)


def _offered(server: Served, sent: Sequence[bytes], rate_per_s: float) -> dict[str, Any]:
    before = server.cpu_s()
    cell: Offered = offer(server.port, sent, rate_per_s, plan.OPEN_S, plan.OPEN_WARM_S)
    quantiles = {f"{name}_s": cell.histogram.quantile_s(share) for name, share in QUANTILES.items()}
    used_us = (server.cpu_s() - before) / (rate_per_s * (plan.OPEN_S + plan.OPEN_WARM_S)) * 1e6
    return {**asdict(cell), **quantiles, "cpu_us": used_us, "valid": cell.valid, "failures": cell.failed}


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def probe(peer: Peer, workload: str) -> dict[str, Any]:
    """Its own layout and those beside it, each for a moment; the best stays, by requests/s at 16 and 64 connections."""
    found: dict[str, Any] = {"peer": peer.name, "workload": workload, "tried": [], "best": None}
    log = WORK / "logs" / f"{peer.name}-{workload}-layouts.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for layout in (peer.layouts[workload], *peer.tried[workload]):
        one: dict[str, Any] = {"layout": asdict(layout), "rates_per_s": []}
        found["tried"].append(one)
        port = free_port()
        try:
            with living(peer, workload, port, log, layout), within(PATIENCE * plan.probe_takes_s(peer)):
                url, requests = peer.url(workload, port), peer.requests(workload)
                close_loop(url, requests, max(plan.CONNECTIONS), plan.WARM_S)
                cells = [close_loop(url, requests, each, plan.PROBE_S) for each in plan.PROBE_CONNECTIONS]
                one["rates_per_s"] = [0.0 if cell.failed else cell.rate_per_s for cell in cells]
        except Exception as error:  # then it is not this one
            one["failed"] = str(error) or type(error).__name__
    found["best"] = max(found["tried"], key=lambda one: sum(one["rates_per_s"]))["layout"]
    return found


def with_layout(peer: Peer, probed: Mapping[str, Any]) -> Peer:
    """The peer as it does best."""
    return replace(peer, layouts={**peer.layouts, probed["workload"]: peers.Layout(**probed["best"])})


def in_process(workload: str) -> InProcess:
    """The limit: its first network alone, on rows that differ."""
    given = [inputs(workload, variant) for variant in range(VARIANTS)]
    rows = {name: np.concatenate([each[name] for each in given]) for name in given[0]}

    def feeds(batch: int) -> Feeds:
        return {name: np.resize(array, (batch, *array.shape[1:])) for name, array in rows.items()}

    path: Path = MODELS / f"{served_name(workload)}.onnx"
    return InProcess(path, feeds, LIMIT_BATCHES.get(workload, OTHER_BATCHES))


def limit(workload: str, layout: Layout, round: int) -> dict[str, Any]:
    rate = in_process(workload).rows_per_s(layout, plan.LIMIT_S)
    return {"round": round, "workload": workload, "layout": str(layout), "rate_per_s": rate}
