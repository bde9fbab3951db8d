"""Every route of both planes, in one closed table (FAULTS R1): nothing is served that is not a line here.

``/versions/{version}`` forms are lines of their own, so that the table can be walked by tests and printed by
``forwardpass routes``. Of lines that match the same path the first one answers.
"""

from forwardpass.ingress.routes import Body, Family, Plane, Protocol, Route


def _get(pattern: str, endpoint: str, summary: str, family: Family = "v2", scope: str = "read") -> Route:
    return Route(b"GET", pattern, endpoint, scope, summary, family=family)


def _infer(pattern: str, endpoint: str, summary: str, family: Family = "v2") -> Route:
    return Route(b"POST", pattern, endpoint, "infer", summary, family=family, body="large")


def _admin(
    method: bytes, pattern: str, endpoint: str, summary: str, scope: str = "admin", body: Body = "none"
) -> Route:
    return Route(method, pattern, endpoint, scope, summary, "admin", "problem", body)


def _control(pattern: str, endpoint: str, summary: str, plane: Plane) -> Route:
    needs = "data.model_control" if plane == "data" else ""
    return Route(b"POST", pattern, endpoint, "admin", summary, plane, body="small", needs=needs)


def _grpc(method: str, endpoint: str, summary: str, scope: str = "read", *, body: Body = "small", needs: str = "") -> Route:
    return Route(b"POST", f"/{SERVICE}/{method}", endpoint, scope, summary, body=body, needs=needs, protocol="grpc")


SERVICE = "inference.GRPCInferenceService"
MODEL = "/v2/models/{pipeline}"
VERSION = "/v2/models/{pipeline}/versions/{version}"

ROUTES: tuple[Route, ...] = (
    _infer(f"{MODEL}/infer", "v2_infer", "V2 inference"),
    _infer(f"{VERSION}/infer", "v2_infer", "V2 inference, of one version"),
    _infer("/predict/{pipeline}", "predict", "one record or many, as plain JSON or raw bytes", "predict"),
    _infer("/predict/{pipeline}/{version}", "predict", "the same, of one version", "predict"),
    Route(
        b"DELETE", "/predict/{pipeline}", "end_sequence", "infer", "end the sequence X-Sequence-Id names",
        family="predict",
    ),
    Route(
        b"DELETE", "/predict/{pipeline}/{version}", "end_sequence", "infer", "the same, of one version",
        family="predict",
    ),
    _get("/v2/health/live", "live", "the process runs", scope="open"),
    _get("/v2/health/ready", "ready", "every pipeline answers", scope="open"),
    _get("/v2", "server_metadata", "name, version, extensions"),
    _get("/v2/", "server_metadata", "name, version, extensions"),
    _get("/v2/models", "models", "names of the pipelines"),
    _get(MODEL, "model_metadata", "inputs and outputs"),
    _get(VERSION, "model_metadata", "inputs and outputs, of one version"),
    _get(f"{MODEL}/ready", "model_ready", "this pipeline answers"),
    _get(f"{VERSION}/ready", "model_ready", "this version answers"),
    _get(f"{MODEL}/batches", "batches", "why the last batches had their size"),
    _get(f"{VERSION}/batches", "batches", "the same, of one version"),
    _grpc("ServerLive", "live", "the process runs", "open"),
    _grpc("ServerReady", "ready", "every pipeline answers", "open"),
    _grpc("ModelReady", "model_ready", "this pipeline answers"),
    _grpc("ServerMetadata", "server_metadata", "name, version, extensions"),
    _grpc("ModelMetadata", "model_metadata", "inputs and outputs"),
    _grpc("ModelInfer", "v2_infer", "V2 inference", "infer", body="large"),
    _grpc("ModelStreamInfer", "v2_infer", "V2 inference, many requests in one stream", "infer", body="large"),
    Route(
        b"POST", "/grpc.health.v1.Health/Check", "ready", "open", "every pipeline answers", body="small",
        protocol="grpc",
    ),
    _admin(b"GET", "/live", "live", "the process runs", "open"),
    _admin(b"GET", "/ready", "ready", "every pipeline answers; else why not", "open"),
    _admin(b"GET", "/status", "status", "versions, workers, queues, refusals"),
    _admin(b"GET", "/metrics", "metrics", "Prometheus text format"),
    _admin(b"GET", "/config", "config", "the settings in force"),
    _admin(b"GET", "/receipts/{id}", "receipt", "what is known of one request", "receipts"),
    _admin(b"POST", "/pipelines/{pipeline}/versions/{version}/load", "load", "load from the repository"),
    _admin(b"POST", "/pipelines/{pipeline}/versions/{version}/unload", "unload", "drain, then unload"),
)  # fmt: skip


def routes_of(plane: Plane, protocol: Protocol = "http") -> tuple[Route, ...]:
    """The routes of one plane over one protocol."""
    return tuple(route for route in ROUTES if route.plane == plane and route.protocol == protocol)
