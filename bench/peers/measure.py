"""One life of a server: started, asked for right answers, loaded in closed and open loops, stopped."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from subprocess import SubprocessError
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from bench.load.answers import post
from bench.load.closed_loop import close_loop
from bench.load.limit import Feeds, InProcess, Layout
from bench.load.open_loop import Offered, offer, saturate
from bench.load.served import NotServed, Question, Served, free_port, served
from bench.peers import plan
from bench.peers.forms import Request, numbers
from bench.peers.models import MODELS, WORK, WORKLOADS, answer, inputs
from bench.peers.peer import Peer, served_name

LIMIT_BATCHES: Mapping[str, tuple[int, ...]] = {"tabular": (1, 64, 1024)}
OTHER_BATCHES = (1, 4, 8, 16, 32)
IDLE_S = 0.3


def question_for(peer: Peer, workload: str) -> Question:
    """Its answer is right when it is onnxruntime's own, within the workload's tolerance or the one it has said."""
    wanted, tolerance = answer(workload), max(WORKLOADS[workload].tolerance, peer.tolerance)
    request = peer.request(workload)

    def wrong(status: int, headers: Mapping[str, str], body: bytes) -> str:
        if status != 200:
            return f"status {status}: {body[:100]!r}"
        try:
            given = numbers(body, headers)
        except (ValueError, KeyError, TypeError) as error:
            return f"an answer that cannot be read: {error}"
        if given.shape != wanted.shape or not np.allclose(given, wanted, rtol=0, atol=tolerance):
            return f"a wrong answer: {given.ravel()[:3]} instead of {wanted.ravel()[:3]}"
        return ""

    return Question(urlsplit(peer.url(workload, 0)).path, request.body, request.headers, wrong)


def measure(life: plan.Life, seconds: float) -> dict[str, Any]:
    """What is kept of it; ``failed`` says why there are no figures, or why some are missing."""
    peer, workload, port = life.peer, life.workload, free_port()
    found: dict[str, Any] = {"round": life.round, "workload": workload, "peer": peer.name, "failed": ""}
    log = WORK / "logs" / f"{peer.name}-{workload}-{life.round}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    question = question_for(peer, workload)
    try:
        launch = peer.command(workload, port)
        with served(launch.argv, launch.environment, launch.folder, port, question, log) as server:
            found["cold_s"] = server.cold_s
            found["idle_cpu"] = _idle(server)
            found["closed"] = _closed(server, peer.url(workload, port), peer.request(workload), seconds)
            found["memory_bytes"] = server.memory_bytes()
            if life.shares or life.rates:
                found |= _open(server, question, life, max(cell["rate_per_s"] for cell in found["closed"]))
            found["failed"] = question.ask(port)
    except (NotServed, OSError, SubprocessError, StopIteration) as error:  # the next server still gets its turn
        found["failed"] = str(error)
    return found


def _idle(server: Served) -> float:
    """Cores it keeps busy while nobody asks."""
    before = server.cpu_s()
    time.sleep(IDLE_S)
    return (server.cpu_s() - before) / IDLE_S


def _closed(server: Served, url: str, request: Request, seconds: float) -> list[dict[str, Any]]:
    close_loop(url, request.body, request.headers, max(plan.CONNECTIONS), plan.WARM_S)
    cells = []
    for connections in plan.CONNECTIONS:
        before = server.cpu_s()
        cell = close_loop(url, request.body, request.headers, connections, seconds)
        used_s = server.cpu_s() - before
        cpu_us = used_s / max(1, cell.requests) * 1e6
        kept = {"connections": connections, "rate_per_s": cell.rate_per_s, "cpu_us": cpu_us, **asdict(cell)}
        cells.append(kept | {"valid": cell.requests >= connections, "failures": cell.failed})
    return cells


def _open(server: Served, question: Question, life: plan.Life, closed_rate: float) -> dict[str, Any]:
    """At shares of what this client gets from the server when it never waits: both share the machine's cores."""
    request = post(question.path, dict(question.headers), question.body)
    endless = saturate(server.port, request, max(plan.CAPACITY_REQUESTS_MIN, round(closed_rate * plan.CAPACITY_S)))
    capacity = endless.answered / endless.took_s
    if not capacity:
        raise NotServed("no answer at all from as many requests as it is given")
    cells = [{"share": share, **_offered(server, request, share * capacity)} for share in life.shares]
    fitting = [rate for rate in life.rates if rate <= max(life.shares, default=1.0) * capacity]
    cells += [{"share": None, **_offered(server, request, rate)} for rate in fitting]
    return {"capacity_per_s": capacity, "open": cells}


def _offered(server: Served, request: bytes, rate_per_s: float) -> dict[str, Any]:
    before = server.cpu_s()
    cell: Offered = offer(server.port, request, rate_per_s, plan.OPEN_S, plan.OPEN_WARM_S)
    quantiles = {f"{name}_s": cell.histogram.quantile_s(share) for name, share in QUANTILES.items()}
    used_us = (server.cpu_s() - before) / (rate_per_s * (plan.OPEN_S + plan.OPEN_WARM_S)) * 1e6
    return {**asdict(cell), **quantiles, "cpu_us": used_us, "valid": cell.valid, "failures": cell.failed}


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def in_process(workload: str) -> InProcess:
    """The limit: its first network alone."""
    given = {name: value for name, value in inputs(workload).items() if isinstance(value, np.ndarray)}

    def feeds(batch: int) -> Feeds:
        return {name: np.repeat(array, batch, axis=0) for name, array in given.items()}

    path: Path = MODELS / f"{served_name(workload)}.onnx"
    return InProcess(path, feeds, LIMIT_BATCHES.get(workload, OTHER_BATCHES))


def limit(workload: str, layout: Layout, round: int) -> dict[str, Any]:
    rate = in_process(workload).rows_per_s(layout, plan.LIMIT_S)
    return {"round": round, "workload": workload, "layout": str(layout), "rate_per_s": rate}
