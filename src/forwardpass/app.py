"""Builds everything once, by hand, and starts and stops it in a visible order."""

import asyncio
import gc
import logging
import os
import resource
import signal
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forwardpass.catalogue import Catalogue, Key, contained, find, latest, log_failure, problems_of
from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Code, Failed, Failure, Misconfigured, Problem, Refused
from forwardpass.core.pipeline import Version
from forwardpass.execution.kinds import kinds
from forwardpass.front import (
    admin_edge,
    control_endpoints,
    data_plane,
    edge_of,
    endpoints_of,
    fleet_of,
    fronting_of,
    grpc_server,
    http_limits,
    http_server,
    identity_of,
)
from forwardpass.ingress.admin import admin_limits, admin_plane
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.sockets import at_path, at_port, in_url
from forwardpass.ingress.tls import Certificates
from forwardpass.observe.metrics import Metrics, Samples
from forwardpass.observe.receipts import Receipts
from forwardpass.observe.redaction import Redaction
from forwardpass.observe.vitals import Vitals
from forwardpass.overview import Overview
from forwardpass.pipeline.golden import verify
from forwardpass.pipeline.guard_policy import read_policy
from forwardpass.pipeline.guarding import refuse_circle, warn_of_missing_judges
from forwardpass.pipeline.handle import Handle
from forwardpass.pipeline.repository import Found, sweep, take_in
from forwardpass.pipeline.signatures import read_signers
from forwardpass.pipeline.trust import Trust
from forwardpass.rollout.acts import Acts
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import MakeWorker, Variant
from forwardpass.settings import LOOPBACK, Settings

PRODUCT_VERSION = "0.1.0"
UNLOAD_LIMIT_S = 30.0
READY_LOOK_S = 0.1
ADMIN_GRACE_S = 1.0  # for what the operator still asks when all else has ended
FILES_BESIDE = 704  # descriptors beside the data plane's connections: models, workers, the admin plane's
GC_THRESHOLDS = (5_000, 20, 50)
_log = logging.getLogger("forwardpass.app")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the server listens, once it does."""

    data: str
    admin: str
    grpc: str = ""  # empty: not served


class App:
    """One server. ``run`` returns the exit status; ``started`` is set once it listens, ``ready`` once it answers."""

    def __init__(
        self, settings: Settings, sources: Sequence[Path], make_worker: MakeWorker, clock: Clock = monotonic_s
    ) -> None:
        self.settings = settings
        self.started = asyncio.Event()
        self.ready = asyncio.Event()
        self.addresses = Addresses("", "")
        self._sources = sources
        self._signers = read_signers(settings.run.signers)
        self._policy = read_policy(settings.run.guards)
        self._clock = clock
        self._closing = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failures: dict[Key, Failure] = {}
        self._loading = True
        self._wanted: set[Key] = set()  # what must answer for the server to be ready
        self._named: set[str] = set()  # the pipelines of these
        self._acts = Acts()
        self.routes = Routes()
        self.receipts = Receipts(settings.run.receipts_kept)
        self.metrics = Metrics()
        self.handle = Handle(
            self.routes, settings.limits.deadline_s, clock, receipts=self.receipts, metrics=self.metrics
        )
        self.fleet = fleet_of(settings, self.routes, self._verify, clock, make_worker)
        self.vitals = Vitals(settings.limits.memory_share_max, clock)
        refuse_work = self.vitals.pressure.refuse_work
        self.inference = Inference(self.handle, clock, settings.data.pipeline, lambda: self._loading, refuse_work)
        every = settings.run.versions == "all"
        catalogue = Catalogue(
            sources, self.routes, self._load, self.unload, self._failures, self._wanted, self._acts, every=every
        )
        control = control_endpoints(catalogue, self.routes, self.fleet.shelves)
        endpoints = endpoints_of(settings, self.inference, self.why_not_ready, PRODUCT_VERSION, control)
        limits = http_limits(settings)
        self._identity = identity_of(settings, clock)
        in_flight = BytesInFlight(limits.bytes_in_flight_max, refuse_work)
        edge = edge_of(settings, limits, clock, self._identity, in_flight, self.routes.serves)
        self._quotas = edge.quotas
        self.vitals.shrinking += [self.fleet.shelves.shrink, self.receipts.shrink]
        self.vitals.shrinking += [edge.kept.shrink] if edge.kept is not None else []
        self.data_plane = data_plane(settings, self.inference, endpoints, edge)
        self.certificates: list[Certificates] = []
        fronting = fronting_of(settings)
        self.http = http_server(self.data_plane, edge, limits, clock, self._tls("http/1.1"), in_flight, fronting)
        self.grpc = grpc_server(settings, self.inference, endpoints, edge, clock, self._tls, in_flight)
        local = settings.admin.host in LOOPBACK
        limits, books = admin_limits(limits, local=local), Inference(self.handle, clock)
        edge = admin_edge(limits, self._identity)
        admin = admin_plane(self, self.receipts, self.metrics, control, books, edge)
        self.admin = http_server(admin, edge, limits, clock, None if local else self._tls("http/1.1"))
        self._overview = Overview(
            self.routes, self.metrics, self.http, self.grpc, self.inference, self.vitals, self.admin, books
        )

    async def run(self) -> int:
        """Listen, load, answer, and on SIGTERM or SIGINT: not ready, then no new connections, drain, end."""
        _allow_files(self.settings.limits.connections_max)
        wanted = self._find_wanted()
        self._install_signals()
        sweep(self.settings.data_folder / "store")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.vitals.watched())
            await stack.enter_async_context(self.fleet)  # before anybody can ask for a load, and left after that
            if self._quotas is not None:
                await stack.enter_async_context(self._quotas.store.open())
            if self._identity is not None:
                await stack.enter_async_context(self._identity.watched())
            await self._listen(stack)
            closing = asyncio.create_task(self._closing.wait())
            loading = asyncio.create_task(self._load_all(wanted))
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
            await self._acts.ended()
        return 0

    def close(self, *, hurry: bool = False) -> None:
        """Begin to stop; ``hurry`` (or a second call) skips every wait."""
        if hurry or self._closing.is_set():
            self._hurry.set()
        self._closing.set()

    def why_not_ready(self) -> str:
        """For whoever asks: where callers have names, no pipeline is named to those who have none."""
        why = self._what_is_missing()
        return "not every pipeline answers" if why and self._identity is not None else why

    def _what_is_missing(self) -> str:
        if self._closing.is_set():
            return "the server is shutting down"
        if self.vitals.watchdog.recovering:
            return "the server stood still a moment ago"
        if self.vitals.pressure.standing:
            return "the memory is nearly full, and new requests are refused"
        if self._loading:
            return "pipelines are being loaded"
        for (pipeline, number), failure in self._failures.items():
            return f"{pipeline} version {number} could not be loaded: {failure.code}"
        variants = {(v.version.pipeline, v.version.number): v for v in self.routes.variants()}
        for pipeline, number in sorted(self._wanted):
            variant = variants.get((pipeline, number))
            if variant is None or variant.stage is not Stage.READY:
                return f"{pipeline} version {number} is {variant.stage if variant else 'not loaded'}"
            if not variant.ready:
                return f"no worker of {pipeline} version {number} answers"
        return self._policy.missing(lambda name: name in self._named or self.routes.serves(name))

    async def load(self, pipeline: str, number: int) -> None:
        """Take a version of the repository in and load it. Raises Refused when it is not there."""
        await self._acts.finish(self._load_found(pipeline, number))

    async def unload(self, pipeline: str, number: int) -> None:
        """Drain it and end it; one that is not there though it should be is no longer missed. Raises Refused."""
        await self._acts.finish(self._unload((pipeline, number)))

    async def _load_found(self, pipeline: str, number: int) -> None:
        findings = await asyncio.to_thread(find, self._sources)
        if (pipeline, number) in findings.twice:
            raise Misconfigured(Code.DEFINITION_INVALID, (findings.twice[pipeline, number],))
        if (pipeline, number) not in findings.found:
            raise Refused(Code.VERSION_NOT_FOUND, f"the repository has no {pipeline} version {number}")
        await self._load(findings.found[pipeline, number])

    async def _unload(self, key: Key) -> None:
        def away_on_purpose() -> None:
            self._wanted.discard(key)
            self._failures.pop(key, None)

        try:
            await self.fleet.unload(*key, UNLOAD_LIMIT_S, away_on_purpose)
        except Refused:
            if self._loading and key in self._wanted and key not in self._failures:
                raise Failed(Code.NOT_READY, "this version is still to be loaded", retry_after_s=1.0) from None
            if key not in self._failures and (self._loading or key not in self._wanted):
                raise
            away_on_purpose()

    def config(self) -> dict[str, Any]:
        told: dict[str, Any] = Redaction().value(asdict(self.settings))
        return told

    def status(self) -> dict[str, Any]:
        return {
            "version": PRODUCT_VERSION,
            "ready": not (why := self._what_is_missing()),
            "why_not_ready": why,
            **self._overview.status(),
            "quotas": self._quotas.store.status() if self._quotas is not None else None,
            "failures": {f"{name}/{number}": failure.text for (name, number), failure in self._failures.items()},
        }

    def samples(self) -> Samples:
        """The gauges of this moment, by metric name."""
        return self._overview.samples()

    async def _verify(self, variant: Variant) -> None:
        await verify(self.handle, variant, self._clock)

    def _find_wanted(self) -> list[Found]:
        """What the settings say to load of all that is in the sources. Raises Misconfigured with every problem."""
        findings = find(self._sources)
        for problem in findings.ignored:
            _log.warning("ignored in the repository", extra={"event": {"problem": problem}})
        if findings.twice or findings.empty:
            raise Misconfigured(Code.DEFINITION_INVALID, (*findings.twice.values(), *findings.empty))
        return list(findings.found.values()) if self.settings.run.versions == "all" else latest(findings.found)

    async def _load_all(self, wanted: Sequence[Found]) -> None:
        """As many at a time as there are cores; a version that cannot be loaded does not stop the others."""
        self._wanted.update((found.pipeline, found.number) for found in wanted)
        self._named.update(found.pipeline for found in wanted)
        room = asyncio.Semaphore(len(os.sched_getaffinity(0)))

        async def load(found: Found) -> None:
            async with room:
                try:
                    await contained(self._load(found))
                except Failure as failure:
                    if self._closing.is_set():
                        return
                    self._failures[(found.pipeline, found.number)] = failure
                    log_failure(found, failure)

        async with asyncio.TaskGroup() as loading:
            for found in wanted:
                loading.create_task(load(found))
        self._loading = False
        if len(self._failures) == len(wanted):
            self._raise_failures(wanted)
        # What is alive now lives as long as the server: the collector need not look at it for every thousand requests.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        warn_of_missing_judges(self.routes)
        if why := self._what_is_missing():
            _log.error("not ready: %s", why)
        while self.why_not_ready():
            await asyncio.sleep(READY_LOOK_S)
        self.ready.set()

    def _raise_failures(self, wanted: Sequence[Found]) -> None:
        failures = [(found, self._failures[(found.pipeline, found.number)]) for found in wanted]
        problems = tuple(problem for found, failure in failures for problem in problems_of(found, failure))
        detail = "\n".join(failure.detail for _, failure in failures if failure.detail)
        raise Misconfigured(failures[0][1].code, problems, detail=detail)

    async def _load(self, found: Found) -> None:
        self._refuse_when_closing()
        self.vitals.pressure.refuse_load()
        version = await asyncio.to_thread(self._take_in, found)
        self._refuse_when_closing()
        refuse_circle(version, self.routes)
        await self.fleet.load(version)
        # Nothing was awaited since the version was ready, so no unload that waits for it has begun.
        self._wanted.add((found.pipeline, found.number))
        self._failures.pop((found.pipeline, found.number), None)
        event = {"pipeline": version.pipeline, "version": version.number, "digest": version.digest}
        _log.info("version is ready", extra={"event": event})

    def _refuse_when_closing(self) -> None:
        if self._closing.is_set():
            raise Failed(Code.SHUTTING_DOWN, "the server is shutting down", retry_after_s=1.0)

    def _take_in(self, found: Found) -> Version:
        folder = self.settings.data_folder
        trust = Trust(folder / "trusted")
        version = take_in(found, folder / "store", kinds=kinds(), trusted=trust, signers=self._signers)
        return self._policy.around(version)

    async def _listen(self, stack: AsyncExitStack) -> None:
        data = at_port("data", self.settings.data.host, self.settings.data.port)
        admin = at_port("admin", self.settings.admin.host, self.settings.admin.port)
        await self.http.start(sock=data)
        if path := self.settings.data.unix_socket:
            await self.http.start(sock=stack.enter_context(at_path(path, int(self.settings.data.unix_socket_mode, 8))))
        if self.grpc is not None:
            await self.grpc.start(sock=at_port("grpc", self.settings.data.host, self.settings.grpc.port))
        await self.admin.start(sock=admin)
        stack.push_async_callback(self.admin.drain, ADMIN_GRACE_S)
        scheme = "https" if self.settings.data.tls_certificate else "http"
        admin_scheme = "http" if self.settings.admin.host in LOOPBACK else scheme
        self.addresses = Addresses(
            f"{scheme}://{in_url(self.settings.data.host)}:{self.http.listeners.port}",
            f"{admin_scheme}://{in_url(self.settings.admin.host)}:{self.admin.listeners.port}",
            f"{in_url(self.settings.data.host)}:{self.grpc.listeners.port}" if self.grpc is not None else "",
        )
        self.started.set()

    async def _drain(self) -> None:
        """Readiness is false already; give those who watch it time to notice, then stop listening and finish.

        Whoever hurries cuts each of these waits short.
        """
        run = self.settings.run
        await _either(self._hurry, run.ready_grace_s)
        servers = [server for server in (self.http, self.grpc) if server is not None]
        for server in servers:
            server.listeners.close()

        async def drain(grace_s: float) -> None:
            await asyncio.gather(*[server.drain(grace_s) for server in servers])

        for end in (drain, self.fleet.close):
            ending, hurry = asyncio.create_task(end(run.drain_s)), asyncio.create_task(self._hurry.wait())
            await asyncio.wait((ending, hurry), return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            if ending.done():
                ending.result()
            else:
                ending.cancel()
                await asyncio.wait((ending,))
                await end(0.0)

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.close)
        loop.add_signal_handler(signal.SIGINT, lambda: self.close(hurry=True))
        if self.certificates:
            loop.add_signal_handler(signal.SIGHUP, self._renew_certificates)

    def _renew_certificates(self) -> None:
        for certificates in self.certificates:
            certificates.renew()
        self.http.renew()

    def _tls(self, protocol: str) -> ssl.SSLContext | None:
        """For a listener of that protocol, if there is a certificate."""
        data, auth = self.settings.data, self.settings.auth
        if not data.tls_certificate:
            return None
        self.certificates.append(
            Certificates(data.tls_certificate, data.tls_key, self._clock, protocol, auth.client_ca)
        )
        return self.certificates[-1].context


def _allow_files(connections_max: int) -> None:
    """As many open files as the system lets us have. Raises Misconfigured when the connections do not fit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and connections_max + FILES_BESIDE > hard:
        text = f"found {connections_max}; this process may open {hard} files (ulimit -n)"
        allowed = f"at most {max(0, hard - FILES_BESIDE)}"
        raise Misconfigured(Code.SETTINGS_INVALID, (Problem("settings", "limits.connections_max", text, allowed),))


async def _either(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
