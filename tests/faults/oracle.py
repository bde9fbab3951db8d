"""What must hold after every fault (the catalogue's after-test oracle), and a client that asks all the time."""

import json
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.faulty import CONTROL, SECRET
from tests.serving import Reply, Server, wait_until

from forwardpass.core.errors import Code
from forwardpass.observe.metrics import TABLE

GOLDEN = [1.5, -2.25, 3.0e-8, 65504.0]
LOG_LINE_BYTES_MAX = 8192
POOL_THREADS = 6  # of asyncio's own pool on two cores; it grows to this and stays
CONTROL_PAUSE_S = 0.2
SLOWEST_S = 3.0
_SERIES = re.compile(r"(\w+)(?:\{(.*)\})? [-+.\w]+")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_TRACES = ("Traceback", ".py", ".cc", "onnxruntime", "numpy", "msgspec", "<class", "Error(", "/tmp", "/usr", "/home")


class Control:
    """Asks the control pipeline five times a second and remembers what was wrong; ``sent`` is exact while ``held``."""

    def __init__(self, server: Server) -> None:
        self.wrong: list[str] = []
        self.sent = 0
        self.held = threading.Lock()
        self._server = server
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Control":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def ask(self) -> None:
        """One golden request; anything but the golden answer in time is noted."""
        started = time.monotonic()
        self.sent += 1
        try:
            answer = self._server.infer(CONTROL, "x", "FP32", [1, 4], GOLDEN)
        except OSError as error:
            self.wrong.append(repr(error))
            return
        took_s = time.monotonic() - started
        if answer.status != 200 or answer.json["outputs"][0]["data"] != GOLDEN:
            self.wrong.append(f"{answer.status} {answer.body[:200]!r}")
        elif took_s > SLOWEST_S:
            self.wrong.append(f"{took_s:.3f} s")

    def _run(self) -> None:
        while not self._stopping.wait(CONTROL_PAUSE_S):
            with self.held:
                self.ask()


@dataclass(slots=True)
class Oracle:
    """``check`` compares with what was when it was made. The control client is held while it looks."""

    server: Server
    control: Control
    store: Path
    descriptors: dict[str, str] = field(init=False)
    threads: int = field(init=False)
    log_bytes: int = field(init=False)
    stored: set[Path] = field(init=False)

    def __post_init__(self) -> None:
        with self.control.held:
            wait_until(self._quiet)
            self.descriptors = self._descriptors()
            self.threads = _threads(self.server)
            self.log_bytes = self.server.log.stat().st_size
            self.stored = set(self.store.rglob("*"))

    def check(self) -> None:
        with self.control.held:
            assert self.server.process.poll() is None, "the server ended"
            assert self.server.get("/live", admin=True).status == 200
            self.control.ask()
            assert self.control.wrong == []
            wait_until(self._quiet, 10.0)
            self._check_descriptors()
            assert _threads(self.server) <= self.threads + POOL_THREADS
            assert set(self.store.rglob("*")) == self.stored
            self._check_log()
            self._check_books()

    def _quiet(self) -> bool:
        """Nothing runs, nothing waits, nobody is connected, every worker is back."""
        status = self.server.status()
        grpc = status["grpc"] or {"connections": 0, "running": 0}
        return (
            status["connections"] == 0
            and grpc["connections"] == 0
            and grpc["running"] == 0
            and all(
                version["running"] == 0
                and version["queue"] == {"rows": 0, "items": 0, "bytes": 0}
                and all(worker["state"] == "ready" for worker in version["workers"])
                for version in status["versions"]
            )
        )

    def _descriptors(self) -> dict[str, str]:
        """Number -> what it is open on."""
        found: dict[str, str] = {}
        for path in Path(f"/proc/{self.server.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found[path.name] = os.readlink(path)
        return found

    def _check_descriptors(self) -> None:
        """No more than before; what is new says what was left open."""
        try:
            wait_until(lambda: len(self._descriptors()) <= len(self.descriptors), 5.0)
        except AssertionError:
            now = self._descriptors()
            new = {number: target for number, target in now.items() if self.descriptors.get(number) != target}
            raise AssertionError(f"{len(self.descriptors)} descriptors became {len(now)}, new are {new}") from None

    def _check_log(self) -> None:
        with self.server.log.open("rb") as log:
            log.seek(self.log_bytes)
            text = log.read()
        assert SECRET.encode() not in text
        for line in text.splitlines():
            assert len(line) <= LOG_LINE_BYTES_MAX
            assert not re.search(rb"[\x00-\x1f\x7f]", line)
            event = json.loads(line)
            assert "trace" not in event, event

    def _check_books(self) -> None:
        """Series are of the closed set, and each of the control client's requests has exactly one end."""
        pipelines = {version["pipeline"] for version in self.server.status()["versions"]}
        ends = 0.0
        for line in self.server.get("/metrics", admin=True).body.decode().splitlines():
            if line.startswith("#"):
                continue
            series = _SERIES.fullmatch(line)
            assert series is not None, line
            assert re.sub("_(bucket|sum|count)$", "", series[1]) in {*TABLE, "forwardpass_request_seconds"}, line
            labels = dict(_LABEL.findall(series[2] or ""))
            assert labels.keys() <= {"pipeline", "version", "outcome", "code", "le", "guard", "verdict"}, line
            assert labels.get("verdict", "block") in {"block", "mask", "flag", "shadow", "failed"}, line
            assert labels.get("guard", "words") in {"private", "words", "patterns", "out"}, line
            assert labels.get("pipeline", CONTROL) in pipelines, line
            assert labels.get("outcome", "ok") in {"ok", *Code}, line
            assert labels.get("code", Code.INTERNAL) in {*Code}, line
            if series[1] == "forwardpass_requests_total" and labels["pipeline"] == CONTROL:
                ends += float(line.rsplit(" ", 1)[1])
        assert ends == self.control.sent


def _threads(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))


def assert_well_told(reply: Reply, *said: str) -> None:
    """An error's text is bounded, names what it must, and tells nothing of the server's inside."""
    text = reply.json["error"]
    if isinstance(text, dict):
        text = text["message"]
    assert len(text.encode()) <= 512
    for part in said:
        assert part in text, text
    for trace in (*_TRACES, SECRET):
        assert trace.encode() not in reply.body, reply.body
    assert reply.headers["x-request-id"]
