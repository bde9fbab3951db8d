"""Builds everything once, by hand, and starts and stops it in a visible order."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Code, Failure, Misconfigured, Problem, Refused
from forwardpass.core.pipeline import Version
from forwardpass.execution.kinds import kinds
from forwardpass.ingress.admin import AdminPlane, listening
from forwardpass.ingress.data_plane import DataPlane
from forwardpass.ingress.http import HttpServer
from forwardpass.ingress.message import HttpLimits
from forwardpass.observe.metrics import Metrics, Samples
from forwardpass.observe.receipts import Receipts
from forwardpass.pipeline.golden import verify
from forwardpass.pipeline.handle import Handle
from forwardpass.pipeline.repository import Found, scan, take_in
from forwardpass.pipeline.trust import Trust
from forwardpass.rollout.fleet import Fleet
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant
from forwardpass.settings import Settings

PRODUCT_VERSION = "0.1.0"
UNLOAD_LIMIT_S = 30.0
GC_THRESHOLDS = (5_000, 20, 50)
_log = logging.getLogger("forwardpass.app")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the server listens, once it does."""

    data: str
    admin: str


class App:
    """One server. ``run`` returns the exit status; ``started`` is set once it listens, ``ready`` once it answers."""

    def __init__(self, settings: Settings, sources: Sequence[Path], clock: Clock = monotonic_s) -> None:
        self.settings = settings
        self.started = asyncio.Event()
        self.ready = asyncio.Event()
        self.addresses = Addresses("", "")
        self._sources = sources
        self._clock = clock
        self._closing = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failures: dict[tuple[str, int], Failure] = {}
        self._loading = True
        self._found: dict[tuple[str, int], Found] = {}
        self.routes = Routes()
        self.receipts = Receipts(settings.run.receipts_kept)
        self.metrics = Metrics()
        self.handle = Handle(
            self.routes, settings.limits.deadline_s, clock, receipts=self.receipts, metrics=self.metrics
        )
        self.fleet = Fleet(self.routes, self._verify, threads=settings.threads, clock=clock)
        data_plane = DataPlane(self.handle, self.why_not_ready, PRODUCT_VERSION, clock)
        self.http = HttpServer(data_plane.respond, _http_limits(settings), clock, _tls(settings))
        self.admin = AdminPlane(self, self.receipts, self.metrics)

    async def run(self) -> int:
        """Listen, load, answer, and on SIGTERM or SIGINT: not ready, then no new connections, drain, end."""
        self._find()
        self._install_signals()
        async with AsyncExitStack() as stack:
            await self._listen(stack)
            await stack.enter_async_context(self.fleet)
            closing = asyncio.create_task(self._closing.wait())
            loading = asyncio.create_task(self._load_all())
            try:
                await asyncio.wait((closing, loading), return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    loading.result()
                    await self._closing.wait()
            finally:
                for task in (closing, loading):
                    task.cancel()
                await asyncio.wait((closing, loading))
            await self._drain()
        return 0

    def close(self, *, hurry: bool = False) -> None:
        """Begin to stop; ``hurry`` (or a second call) skips every wait."""
        if hurry or self._closing.is_set():
            self._hurry.set()
        self._closing.set()

    def why_not_ready(self) -> str:
        if self._closing.is_set():
            return "the server is shutting down"
        if self._loading:
            return "pipelines are being loaded"
        for (pipeline, number), failure in self._failures.items():
            return f"{pipeline} version {number} could not be loaded: {failure.code}"
        for variant in self.routes.variants():
            if variant.stage is Stage.READY and not variant.ready:
                return f"no worker of {variant.version.pipeline} version {variant.version.number} answers"
        return ""

    async def load(self, pipeline: str, number: int) -> None:
        """Take a version of the repository in and load it. Raises Refused when it is not there."""
        self._find()
        found = self._found.get((pipeline, number))
        if found is None:
            raise Refused(Code.VERSION_NOT_FOUND, f"the repository has no {pipeline} version {number}")
        await self._load(found)

    async def unload(self, pipeline: str, number: int) -> None:
        await self.fleet.unload(pipeline, number, UNLOAD_LIMIT_S)

    def config(self) -> dict[str, Any]:
        return asdict(self.settings)

    def status(self) -> dict[str, Any]:
        http = self.http.statistics()
        return {
            "version": PRODUCT_VERSION,
            "ready": not (why := self.why_not_ready()),
            "why_not_ready": why,
            "connections": http.connections,
            "refused": {code.value: count for code, count in http.refused.items()},
            "versions": [self._variant_status(variant) for variant in self.routes.variants()],
            "failures": {f"{name}/{number}": failure.text for (name, number), failure in self._failures.items()},
        }

    def samples(self) -> Samples:
        """The gauges of this moment, by metric name."""
        variants = self.routes.variants()
        names = [(("pipeline", v.version.pipeline), ("version", str(v.version.number))) for v in variants]
        pairs = list(zip(names, variants, strict=True))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "forwardpass_rows_total": [(name, v.batcher.rows) for name, v in pairs],
            "forwardpass_executions_total": [(name, v.batcher.executions) for name, v in pairs],
            "forwardpass_queue_rows": [(name, v.queue.rows) for name, v in pairs],
            "forwardpass_requests_running": [(name, v.running) for name, v in pairs],
            "forwardpass_worker_deaths_total": [(name, sum(w.deaths for w in v.workers)) for name, v in pairs],
            "forwardpass_ready": [(name, float(v.ready)) for name, v in pairs],
            "forwardpass_connections": [((), self.http.statistics().connections)],
            "forwardpass_resident_bytes": [((), pages * resource.getpagesize())],
        }

    async def _verify(self, variant: Variant) -> None:
        await verify(self.handle, variant, self._clock)

    def _find(self) -> None:
        latest: dict[str, Found] = {}
        for source in self._sources:
            scanned = scan(source)
            for problem in scanned.ignored:
                _log.warning("ignored in the repository", extra={"event": {"problem": problem}})
            for found in scanned.found:
                self._found[(found.pipeline, found.number)] = found
                if found.pipeline not in latest or latest[found.pipeline].number < found.number:
                    latest[found.pipeline] = found
        if not self._found:
            names = ", ".join(str(source) for source in self._sources)
            problem = Problem(
                names, "", "no pipeline was found here", "a model file, a pipeline folder or a repository"
            )
            raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
        self._wanted = list(self._found.values()) if self.settings.run.versions == "all" else list(latest.values())

    async def _load_all(self) -> None:
        """Every wanted version, as many at a time as there are cores; one that cannot be loaded does not stop the others."""
        room = asyncio.Semaphore(len(os.sched_getaffinity(0)))

        async def load(found: Found) -> None:
            async with room:
                try:
                    await self._load(found)
                except Failure as failure:
                    self._failures[(found.pipeline, found.number)] = failure
                    event = {"pipeline": found.pipeline, "version": found.number, "code": failure.code.value}
                    _log.error(failure.text, extra={"event": {**event, "detail": failure.detail}})

        async with asyncio.TaskGroup() as loading:
            for found in self._wanted:
                loading.create_task(load(found))
        self._loading = False
        if len(self._failures) == len(self._wanted):
            raise next(iter(self._failures.values()))
        self.ready.set()
        # What is alive now lives as long as the server: the collector need not look at it for every thousand requests.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    async def _load(self, found: Found) -> None:
        version = await asyncio.to_thread(self._take_in, found)
        await self.fleet.load(version)
        self._failures.pop((found.pipeline, found.number), None)
        event = {"pipeline": version.pipeline, "version": version.number, "digest": version.digest}
        _log.info("version is ready", extra={"event": event})

    def _take_in(self, found: Found) -> Version:
        folder = self.settings.data_folder
        return take_in(found, folder / "store", kinds=kinds(), trusted=Trust(folder / "trusted"))

    async def _listen(self, stack: AsyncExitStack) -> None:
        data = _bound("data", self.settings.data.host, self.settings.data.port)
        admin = _bound("admin", self.settings.admin.host, self.settings.admin.port)
        await self.http.start(sock=data)
        await stack.enter_async_context(listening(self.admin.application(), admin))
        scheme = "https" if self.settings.data.tls_certificate else "http"
        self.addresses = Addresses(
            f"{scheme}://{self.settings.data.host}:{self.http.port}",
            f"http://{self.settings.admin.host}:{admin.getsockname()[1]}",
        )
        self.started.set()

    async def _drain(self) -> None:
        """Readiness is false already; give those who watch it time to notice, then stop listening and finish."""
        run = self.settings.run
        await _either(self._hurry, run.ready_grace_s)
        self.http.stop_accepting()
        hurried = self._hurry.is_set()
        await self.http.drain(0.0 if hurried else run.drain_s)
        await self.fleet.close(0.0 if hurried else run.drain_s)

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.close)
        loop.add_signal_handler(signal.SIGINT, lambda: self.close(hurry=True))

    def _variant_status(self, variant: Variant) -> dict[str, Any]:
        loaded = variant.loaded
        return {
            "pipeline": variant.version.pipeline,
            "version": variant.version.number,
            "digest": variant.version.digest,
            "stage": variant.stage.value,
            "ready": variant.ready,
            "batching": variant.batching_reason,
            "warnings": loaded.warnings if loaded else [],
            "load_s": round(loaded.load_s, 3) if loaded else None,
            "queue": {"rows": variant.queue.rows, "items": variant.queue.items, "bytes": variant.queue.bytes},
            "running": variant.running,
            "quarantined": len(variant.quarantine),
            "outcomes": self.metrics.outcomes(variant.version.pipeline, variant.version.number),
            "workers": [{"state": w.state.value, "pid": w.pid, "deaths": w.deaths} for w in variant.workers],
        }


def _http_limits(settings: Settings) -> HttpLimits:
    limits = settings.limits
    return HttpLimits(
        header_time_s=limits.header_time_s,
        idle_time_s=limits.idle_time_s,
        body_bytes_max=limits.body_bytes_max,
        connections_max=limits.connections_max,
        connections_per_address_max=limits.connections_per_address_max,
        hosts=settings.data.hosts,
    )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.data.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.data.tls_certificate, settings.data.tls_key)
    except (OSError, ssl.SSLError) as error:
        problem = Problem(
            "settings", "data.tls_certificate", f"cannot be used: {error}", "a PEM certificate and its key"
        )
        raise Misconfigured(Code.SETTINGS_INVALID, (problem,)) from error
    return context


def _bound(plane: str, host: str, port: int) -> socket.socket:
    """A listening socket. Raises Misconfigured port_in_use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        problem = Problem(
            "settings", f"{plane}.port", f"cannot listen on {host}:{port}: {error.strerror}", "a free port; 0 takes any"
        )
        raise Misconfigured(Code.PORT_IN_USE, (problem,)) from error
    sock.setblocking(False)
    return sock


async def _either(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
