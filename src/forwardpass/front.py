"""The data plane put together: which dialects and endpoints answer its routes, with the settings in force."""

import logging
import ssl
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from forwardpass.admit.memory import MemoryStore
from forwardpass.admit.quotas import Quotas
from forwardpass.admit.rules import EACH, NOBODY
from forwardpass.cache.shelf import Shelves
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.ingress.cors import Origins
from forwardpass.ingress.data_plane import DataPlane
from forwardpass.ingress.dialect import Endpoint
from forwardpass.ingress.dialects.table import DIALECTS
from forwardpass.ingress.dialects.v2_metadata import CONTROL_EXTENSIONS, EXTENSIONS
from forwardpass.ingress.direct import Direct
from forwardpass.ingress.edge import Edge, Identity
from forwardpass.ingress.endpoints import log_settings
from forwardpass.ingress.endpoints.cache import CacheControl
from forwardpass.ingress.endpoints.description import Description
from forwardpass.ingress.endpoints.openai import Models
from forwardpass.ingress.endpoints.openapi import Documentation
from forwardpass.ingress.endpoints.platform import Containers, Platform
from forwardpass.ingress.endpoints.repository import ModelControl, Repository
from forwardpass.ingress.endpoints.statistics import Statistics
from forwardpass.ingress.endpoints.tei import TeiDescription
from forwardpass.ingress.http_server import HttpServer
from forwardpass.ingress.idempotency import KeptAnswers
from forwardpass.ingress.identity.callers import KnownCallers
from forwardpass.ingress.identity.tokens import TokenRules
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpLimits
from forwardpass.ingress.platform_routes import data_routes
from forwardpass.ingress.rates import Rates
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Route
from forwardpass.rollout.fleet import Fleet, Verify
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import MakeWorker
from forwardpass.settings import LOOPBACK, Settings
from forwardpass.store.keys import KeyStore

if TYPE_CHECKING:
    from forwardpass.ingress.fronts.server import Fronting
    from forwardpass.ingress.grpc.server import GrpcServer

_log = logging.getLogger("forwardpass.identity")


def endpoints_of(
    settings: Settings,
    inference: Inference,
    why_not_ready: Callable[[], str],
    product_version: str,
    control: Mapping[str, Endpoint],
) -> dict[str, Endpoint]:
    """Every route of the data plane has somebody here who answers it; ``control`` are those that both planes have."""
    extensions = (*EXTENSIONS, *(CONTROL_EXTENSIONS if settings.data.model_control else ()))
    return {
        **Description(inference, why_not_ready, product_version, extensions).endpoints(),
        **Statistics(inference).endpoints(),
        **Platform(inference, why_not_ready, product_version).endpoints(),
        **Models(inference).endpoints(),
        **TeiDescription(inference, product_version).endpoints(),
        **Documentation(
            inference, _routes(settings), _switched_on(settings), product_version, secured=settings.auth.required
        ).endpoints(),
        **control,
    }


def data_plane(settings: Settings, inference: Inference, endpoints: Mapping[str, Endpoint], edge: Edge) -> DataPlane:
    """What is answered over HTTP."""
    return DataPlane(inference, _routes(settings), DIALECTS, endpoints, _switched_on(settings), edge)


def grpc_server(
    settings: Settings,
    inference: Inference,
    endpoints: Mapping[str, Endpoint],
    edge: Edge,
    clock: Clock,
    tls: Callable[[str], ssl.SSLContext | None],
    in_flight: BytesInFlight,
) -> "GrpcServer | None":
    """What is answered over gRPC; None when it is off. Raises Misconfigured runtime_missing."""
    serve = settings.grpc.serve
    if serve == "off" or (serve == "auto" and find_spec("google.protobuf") is None):
        return None
    from forwardpass.ingress.grpc.plane import GrpcPlane  # and with it a good part of what a start imports
    from forwardpass.ingress.grpc.server import GrpcServer

    try:
        plane = GrpcPlane(inference, routes_of("data", "grpc"), endpoints, edge, clock, _switched_on(settings))
    except ImportError as error:
        problem = Problem("settings", "grpc.serve", "protobuf is not installed", "pip install 'forwardpass[grpc]'")
        raise Misconfigured(Code.RUNTIME_MISSING, (problem,)) from error
    return GrpcServer(plane, http_limits(settings), clock, tls("h2"), in_flight)


def control_endpoints(repository: Repository, routes: Routes, shelves: Shelves) -> dict[str, Endpoint]:
    """What changes the server while it runs: for the operator, for clients of V2 and for SageMaker."""
    return {
        **ModelControl(repository).endpoints(),
        **Containers(repository).endpoints(),
        **log_settings.ENDPOINTS,
        **CacheControl(routes, shelves).endpoints(),
    }


def identity_of(settings: Settings, clock: Clock) -> KnownCallers | None:
    """Who tells who asks; None where nobody need say. Raises Misconfigured."""
    auth = settings.auth
    if not auth.required:
        if named := sorted({rule.key for rule in settings.quotas} - {"", EACH, NOBODY}):
            _log.warning(
                "without auth.required nobody has a key, so these have no quota", extra={"event": {"keys": named}}
            )
        return None
    if not settings.data.tls_certificate and {settings.data.host, settings.admin.host} - {*LOOPBACK}:
        _log.warning("without data.tls_certificate keys cross the network as they are; have TLS in front")
    rules = TokenRules(auth.issuer, auth.audience, auth.tenant_claim, auth.scope_claim)
    expected = {rule.key for rule in settings.quotas} - {"", EACH}
    return KnownCallers(KeyStore(settings.data_folder), clock, auth.jwks, rules, expected)


def quotas_of(settings: Settings, clock: Clock, serves: Callable[[str], bool]) -> Quotas | None:
    """What callers may take, and where it is counted; None where nothing is limited. Raises Misconfigured."""
    if not settings.quotas:
        return None
    if not settings.run.redis:
        return Quotas(settings.quotas, MemoryStore(clock), serves)
    from forwardpass.admit.redis_line import redis_at
    from forwardpass.admit.redis_store import RedisStore

    return Quotas(settings.quotas, RedisStore(redis_at(settings.run.redis), clock), serves)


def fleet_of(settings: Settings, routes: Routes, verify: Verify, clock: Clock, make_worker: MakeWorker) -> Fleet:
    """Of no version yet, with the shelves where theirs will keep answers. Raises Misconfigured."""
    cache = settings.cache
    tier = None
    if cache.redis:
        from forwardpass.cache.redis_tier import RedisTier, redis_client

        tier = RedisTier(redis_client(cache.redis))
    shelves = Shelves(cache.bytes_max, tier)
    return Fleet(routes, verify, threads=settings.threads, clock=clock, make_worker=make_worker, shelves=shelves)


def edge_of(
    settings: Settings,
    limits: HttpLimits,
    clock: Clock,
    identity: Identity | None = None,
    in_flight: BytesInFlight | None = None,
    serves: Callable[[str], bool] = lambda pipeline: False,
) -> Edge:
    """What holds for every request, whichever way it comes."""
    data, given = settings.data, settings.limits
    return Edge(
        Origins(
            frozenset(map(str.encode, data.cors_origins)),
            frozenset(map(str.encode, limits.hosts)),
            own_only=data.host in LOOPBACK and identity is None and not limits.hosts,
        ),
        Rates(given.requests_per_minute, clock) if given.requests_per_minute else None,
        KeptAnswers(given.idempotency_ttl_s, given.idempotency_bytes_max, clock),
        data.compress_bytes_min,
        limits,
        identity,
        in_flight,
        quotas_of(settings, clock, serves),
    )


def http_limits(settings: Settings) -> HttpLimits:
    """Of the data plane."""
    limits = settings.limits
    return HttpLimits(
        header_time_s=limits.header_time_s,
        idle_time_s=limits.idle_time_s,
        body_bytes_max=limits.body_bytes_max,
        body_grace_s=limits.body_grace_s,
        bytes_in_flight_max=limits.bytes_in_flight_max,
        header_bytes_max=limits.header_bytes_max,
        write_time_s=limits.write_time_s,
        connections_max=limits.connections_max,
        connections_per_address_max=limits.connections_per_address_max,
        hosts=tuple(map(str.lower, settings.data.hosts)),
    )


def http_server(
    plane: DataPlane,
    edge: Edge,
    limits: HttpLimits,
    clock: Clock,
    tls: ssl.SSLContext | None,
    in_flight: BytesInFlight | None = None,
    fronting: "Fronting | None" = None,
) -> HttpServer:
    """The protocol in front of a plane, which asks it all; with ``fronting`` in several processes."""
    respond, family_of, screen, origins = plane.respond, plane.family_of, plane.screen, edge.origins
    if fronting is None:
        server = HttpServer(respond, family_of, limits, clock, tls, in_flight, screen, origins)
    else:
        from forwardpass.ingress.fronts.server import FrontedServer

        server = FrontedServer(respond, family_of, limits, clock, tls, in_flight, screen, origins, fronting)
    server.begin = Direct(plane, edge, clock).begin
    return server


def fronting_of(settings: Settings) -> "Fronting | None":
    """Of the data plane; None where one process listens."""
    if settings.run.fronts == 1:
        return None
    from forwardpass.ingress.fronts.server import Fronting

    data = settings.data
    tls = (data.tls_certificate, data.tls_key, settings.auth.client_ca) if data.tls_certificate else None
    return Fronting(settings.run.fronts, data.health_route, data.predict_route, tls, settings.run.log)


def admin_edge(limits: HttpLimits, identity: Identity | None = None) -> Edge:
    """What holds for every request of the operator: no page of another origin asks, whatever ``data.cors_origins`` has."""
    return Edge(Origins(guarded=True), limits=limits, identity=identity)


def _routes(settings: Settings) -> tuple[Route, ...]:
    """Of the data plane over HTTP."""
    return data_routes(settings.data.health_route, settings.data.predict_route)


def _switched_on(settings: Settings) -> frozenset[str]:
    """The settings of those that a route may need."""
    return frozenset(["data.model_control"] if settings.data.model_control else [])
