"""Servers to be overloaded: a pipeline whose model sleeps and uses no CPU, keys of several tenants, and who watches."""

import json
import math
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path

from tests.e2e.pipelines import OWN_MODEL
from tests.faults.faulty import settle, write_own
from tests.open_loop import UNTIL, Outcome, Stream, offer
from tests.serving import Server, forwardpass, serving

PROBES = ("/live", "/ready", "/metrics", "/status")
LOOK_EVERY_S = 0.2
CODE = """
import time


class Model:
    '''Row sums; 1000+ms in the first place sleeps, -3 hangs. A second place above 1000 is when the caller wants it no more,
    on the clock of the machine: -5 asks how many were begun more than ON_THE_WAY_S after that, since it was asked last.'''

    def __init__(self):
        self.late = 0

    def predict(self, batch):
        now = time.perf_counter()
        x = batch["x"]
        first, until = x[:, 0], x[:, 1]
        while (first == -3).any():
            time.sleep(0.1)
        self.late += int(((until > 1000) & (now - until > ON_THE_WAY_S)).sum())
        pause = first[(first >= 1000) & (first < 20000)]
        if len(pause):
            time.sleep(float(pause.max() - 1000) / 1000)
        y = x.sum(axis=1)
        if (first == -5).any():
            y[first == -5], self.late = self.late, 0
        return {"y": y}
"""
ON_THE_WAY_S = 0.05  # from the client's clock being read to the server's receipt, on a machine that both load


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at the server while it was loaded found."""

    probes_s: float  # the slowest; infinite when one was not answered, or not by 200
    statuses: frozenset[int]
    queue_rows: int
    resident_bytes: int
    descriptors: int
    threads: int
    connections: int


@dataclass(slots=True)
class Watch:
    """Looks again and again while the block runs, by the admin plane and from outside.

    A look that fails ends the block with what it raised: a server that answers nobody must not look like a fast one.
    """

    server: Server
    pipeline: str
    seen: list[Seen] = field(default_factory=list)
    _failed: Exception | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        assert self._thread is not None
        self._stopping.set()
        self._thread.join()
        if self._failed is not None and error is None:
            raise self._failed

    def probes_s(self) -> float:
        return max((each.probes_s for each in self.seen), default=math.inf)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(LOOK_EVERY_S):
                self.seen.append(self.look())
        except Exception as error:  # told by __exit__
            self._failed = error

    def look(self) -> Seen:
        times: list[float] = []
        bodies: dict[str, bytes] = {}
        statuses: set[int] = set()
        for path in PROBES:
            started = time.perf_counter()
            reply = self.server.get(path, admin=True)
            times.append(time.perf_counter() - started if reply.status == 200 else math.inf)
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
        body = f'{{"x": [{1000.0 + self.sleep_ms}, {UNTIL}]}}'
        rate, deadline_s = times * self.peak, self.deadline_ms / 1000
        return Stream(name, body, "/predict/slow", rate, begin_s, end_s, headers, attempts, deadline_s)

    def begun_late(self) -> float:
        """How many the model was given though their callers wanted them no more, as it says; counted from here on anew."""
        outputs = self.server.predict("slow", {"x": [-5.0, 0.0]}).json["outputs"]
        late: float = outputs["y"]
        return late

    def offer(self, *streams: Stream) -> Outcome:
        return offer(self.server.port, streams)


def peak_of(server: Server, sleep_ms: float, headers: dict[str, str] | None = None, seconds: float = 2.0) -> float:
    """Answers a second of three clients that each wait for theirs: one runs, and another is there when it ends."""
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
    definition: str = "[batch]\nrows_max = 1\n",
) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server over "slow", one row a batch unless ``definition`` says more, and the keys by tenant, where callers have some."""
    root, data = folder / "models", folder / "data"
    write_own(root / "slow" / "1", f"{OWN_MODEL}\n{definition}", CODE.replace("ON_THE_WAY_S", str(ON_THE_WAY_S)))
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
