"""What the load knows of a peer: how to start it for a workload, where to ask, with which bytes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.load.served import START_LIMIT_S
from bench.peers.forms import Request
from bench.peers.models import MODELS, ROOT, VARIANTS, WORK, WORKLOADS, body_path, headers_path

PEERS = Path(__file__).resolve().parent
STARTED = WORK / "peers"  # configurations that are written at a start, logs, private stores


@dataclass(frozen=True, slots=True)
class Layout:
    """How a server uses the machine: ``workers`` sessions of ``threads`` threads each, batches of at most ``batch``."""

    workers: int
    threads: int
    batch: int


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that serves one workload on a port, in the foreground, until SIGTERM."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]  # beside this process's own
    folder: Path = STARTED  # what is current in it


Start = Callable[[str, int, Layout], Launch]


@dataclass(frozen=True, slots=True)
class Peer:
    """A server. ``forms``: its workloads, and how each is asked. ``native``: requests are not read by Python."""

    name: str
    environment: str  # the folder of its requirements.txt; "" for our own
    forms: Mapping[str, str]
    path: Callable[[str], str]  # of a workload's endpoint
    start: Start
    native: bool
    note: str
    layouts: Mapping[str, Layout]
    tolerance: float = 0.0  # that its answers may use beyond the workload's, absolute, because it says so
    start_limit_s: float = START_LIMIT_S
    tried: Mapping[str, Sequence[Layout]] = field(
        default_factory=dict
    )  # beside ``layouts``, before anything is measured

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.forms)

    def command(self, model: str, port: int, layout: Layout | None = None) -> Launch:
        """For the workload ``model``; writes what configuration the server reads. The layout is the peer's best."""
        STARTED.mkdir(parents=True, exist_ok=True)
        return self.start(model, port, layout or self.layouts[model])

    def url(self, model: str, port: int) -> str:
        return f"http://127.0.0.1:{port}{self.path(model)}"

    def request(self, model: str, variant: int = 0) -> Request:
        """As ``bench.peers.models.make`` has written it."""
        asked = model, self.forms[model], variant
        return Request(body_path(*asked).read_bytes(), json.loads(headers_path(*asked).read_text()))

    def requests(self, model: str) -> list[Request]:
        """All that the load sends, one after the other and again."""
        return [self.request(model, variant) for variant in range(VARIANTS)]


def served_name(workload: str) -> str:
    """What servers call the model: the ONNX file's name, of the cascade its own."""
    networks = WORKLOADS[workload].networks
    return networks[0] if len(networks) == 1 else workload


def environment_for(workload: str, port: int, layout: Layout) -> dict[str, str]:
    """What the servers in Python read (shared/network.py)."""
    return {
        "PYTHONPATH": str(ROOT),
        "MODELS": str(MODELS),
        "WORKLOAD": workload,
        "PORT": str(port),
        "WORKERS": str(layout.workers),
        "THREADS": str(layout.threads),
        "BATCH": str(layout.batch),
        "OMP_NUM_THREADS": str(layout.threads),
    }
