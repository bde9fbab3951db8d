"""Servers to be overloaded: a pipeline whose model sleeps and uses no CPU, keys of several tenants, and who watches."""

import json
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path

from tests.e2e.pipelines import OWN_CODE, OWN_MODEL
from tests.faults.faulty import settle, write_own
from tests.open_loop import Outcome, Stream, offer
from tests.serving import Server, forwardpass, serving

PROBES = ("/live", "/ready", "/metrics", "/status")
LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at the server while it was loaded found."""

    probes_s: float  # the slowest
    statuses: frozenset[int]
    queue_rows: int
    resident_bytes: int
    descriptors: int
    threads: int
    connections: int


@dataclass(slots=True)
class Watch:
    """Looks again and again while the block runs, by the admin plane and from outside."""

    server: Server
    pipeline: str
    seen: list[Seen] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._thread is not None
        self._stopping.set()
        self._thread.join()

    def probes_s(self) -> float:
        return max(each.probes_s for each in self.seen)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            self.seen.append(self.look())

    def look(self) -> Seen:
        times: list[float] = []
        bodies: dict[str, bytes] = {}
        statuses: set[int] = set()
        for path in PROBES:
            started = time.perf_counter()
            reply = self.server.get(path, admin=True)
            times.append(time.perf_counter() - started)
            statuses.add(reply.status)
            bodies[path] = reply.body
        status = json.loads(bodies["/status"])
        version = next(each for each in status["versions"] if each["pipeline"] == self.pipeline)
        process = Path(f"/proc/{self.server.process.pid}")
        return Seen(
            max(times),
            frozenset(statuses),
            version["queue"]["rows"],
            int((process / "statm").read_text().split()[1]) * 4096,
            len(list((process / "fd").iterdir())),
            len(list((process / "task").iterdir())),
            status["connections"],
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Requests for the pipeline whose model sleeps; ``peak`` is the most it answers in time, a second."""

    server: Server
    sleep_ms: float
    deadline_ms: int
    peak: float = 0.0

    def stream(
        self, name: str, times: float, begin_s: float, end_s: float, *, attempts: int = 1, **head: str
    ) -> Stream:
        headers = {"X-Request-Deadline-Ms": str(self.deadline_ms), **{k.replace("_", "-"): v for k, v in head.items()}}
        body = json.dumps({"x": [1000.0 + self.sleep_ms, 0.0]})
        return Stream(name, body, "/predict/slow", times * self.peak, begin_s, end_s, headers, attempts)

    def offer(self, *streams: Stream) -> Outcome:
        return offer(self.server.port, streams)


def peak_of(server: Server, sleep_ms: float, headers: dict[str, str] | None = None, seconds: float = 2.0) -> float:
    """Answers a second of clients that wait for one another's: two, so that the worker never waits."""
    body = json.dumps({"x": [1000.0 + sleep_ms, 0.0]}).encode()
    given = {"Content-Type": "application/json", **(headers or {})}
    ends: list[float] = []
    until = time.perf_counter() + seconds

    def ask() -> None:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        while time.perf_counter() < until:
            connection.request("POST", "/predict/slow", body, given)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            ends.append(time.perf_counter())
        connection.close()

    server.together(3, lambda _: ask())
    ends.sort()
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    return 1.0 / statistics.fmean(gaps[len(gaps) // 4 :])


@contextmanager
def overloadable(
    folder: Path,
    *,
    keys: bool = False,
    environment: dict[str, str] | None = None,
    settings: dict[str, object] | None = None,
) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server over "slow", one row a batch, and the keys by tenant, where callers have some."""
    root, data = folder / "models", folder / "data"
    write_own(root / "slow" / "1", OWN_MODEL + "\n[batch]\nrows_max = 1\n", OWN_CODE)
    settle(root)
    forwardpass("trust", root, data=data)
    made = {name: key(data, name, *options) for name, options in TENANTS.items()} if keys else {}
    given = {**(settings or {}), **({"auth.required": "true"} if keys else {})}
    with serving(root, data=data, settings=given, environment=environment) as server:
        yield server, made


TENANTS: dict[str, Sequence[str]] = {
    "noisy": ("--scope", "infer"),
    "quiet": ("--scope", "infer"),
    "critical": ("--scope", "infer", "--priority", "critical"),
    "sheddable": ("--scope", "infer", "--priority", "sheddable"),
}


def key(data: Path, tenant: str, *options: str) -> str:
    """Made as an operator makes it."""
    said = forwardpass("keys", "create", "--tenant", tenant, *options, data=data).stdout
    return next(word for word in said.split() if word.startswith("fp_"))
