"""Every route of both planes, in one closed table (FAULTS R1): nothing is served that is not a line here.

``/versions/{version}`` forms are lines of their own, so that the table can be walked by tests and printed by
``forwardpass routes``. Of lines that match the same path the first one answers.
"""

from forwardpass.ingress.routes import Body, Family, Plane, Protocol, Route

CONTROL = "data.model_control"
"""The setting without which the data plane refuses to change what is served."""


def _get(pattern: str, endpoint: str, summary: str, family: Family = "v2", scope: str = "read") -> Route:
    return Route(b"GET", pattern, endpoint, scope, summary, family=family)


def _infer(pattern: str, endpoint: str, summary: str, family: Family = "v2", *, streams: bool = False) -> Route:
    return Route(b"POST", pattern, endpoint, "infer", summary, family=family, body="large", streams=streams)


def _admin(
    method: bytes, pattern: str, endpoint: str, summary: str, scope: str = "admin", body: Body = "none"
) -> Route:
    return Route(method, pattern, endpoint, scope, summary, "admin", "problem", body)


def _control(pattern: str, endpoint: str, summary: str, plane: Plane) -> Route:
    needs = CONTROL if plane == "data" else ""
    return Route(b"POST", pattern, endpoint, "admin", summary, plane, body="small", needs=needs)


def _grpc(
    method: str, endpoint: str, summary: str, scope: str = "read", *, body: Body = "small", needs: str = ""
) -> Route:
    return Route(b"POST", f"/{SERVICE}/{method}", endpoint, scope, summary, body=body, needs=needs, protocol="grpc")


def _repository(plane: Plane) -> tuple[Route, ...]:
    """V2's requests that change what is served: on the admin plane, and on the data plane where a setting allows it."""
    model, other = "/v2/repository/models/{pipeline}", "/v2/repository/{repository}"
    there = "there is one repository, without a name"
    needs = CONTROL if plane == "data" else ""
    return (
        _control("/v2/repository/index", "repository_index", "what could be loaded, and what is", plane),
        _control(f"{model}/load", "repository_load", "load the newest version of a pipeline", plane),
        _control(f"{model}/unload", "repository_unload", "drain a pipeline, then unload it", plane),
        _control(f"{other}/index", "other_repository", there, plane),
        _control(f"{other}/models/{{pipeline}}/load", "other_repository", there, plane),
        _control(f"{other}/models/{{pipeline}}/unload", "other_repository", there, plane),
        Route(b"GET", "/v2/logging", "log_settings", "admin", "what is logged", plane, needs=needs),
        _control("/v2/logging", "log_settings", "change what is logged", plane),
    )


def _platforms() -> tuple[Route, ...]:
    """MLflow's, SageMaker's and KServe V1's contracts; Vertex AI names its two paths itself (``platform_routes``)."""
    model, load = "/models/{pipeline}", "load a pipeline of the repository (SageMaker, many models)"
    return (
        _get("/ping", "ping", "200 when every pipeline answers", "mlflow", "open"),
        _get("/health", "ping", "200 when every pipeline answers", "mlflow", "open"),
        _get("/version", "version", "the server's version, as text", "mlflow", "open"),
        _get("/", "alive", "KServe V1: the process runs", scope="open"),
        _infer("/invocations", "invocations", "rows as JSON, JSON lines, CSV or bare bytes", "mlflow"),
        _infer(f"{model}/invoke", "invocations", "the same, of one pipeline", "mlflow"),
        _infer("/v1/models/{pipeline}:predict", "kserve_v1_predict", "KServe V1: instances or inputs"),
        _infer("/v1/models/{pipeline}/versions/{version}:predict", "kserve_v1_predict", "the same, of one version"),
        _get("/models", "container_models", "pipelines that are loaded (SageMaker, many models)", "mlflow"),
        _get(model, "container_model", "whether a pipeline is loaded", "mlflow"),
        Route(b"POST", "/models", "container_load", "admin", load, family="mlflow", body="small", needs=CONTROL),
        Route(
            b"DELETE", model, "container_unload", "admin", "drain a pipeline, then unload it", family="mlflow",
            needs=CONTROL,
        ),
    )  # fmt: skip


def _by_task() -> tuple[Route, ...]:
    """Paths of clients that know a pipeline by what it does; those of TEI name no pipeline."""
    return (
        _infer("/v1/embeddings", "openai_embeddings", "vectors of texts (OpenAI)", "openai"),
        _infer("/v1/moderations", "openai_moderations", "a text's or picture's categories (OpenAI)", "openai"),
        _get("/v1/models", "openai_models", "the pipelines (OpenAI and KServe V1)", "openai"),
        _get(
            "/v1/models/{model}", "openai_model", "one pipeline, or PIPELINE:VERSION (OpenAI and KServe V1)", "openai"
        ),
        _infer("/v1/rerank", "rerank", "documents ranked for a query (Jina, vLLM, Cohere v1)", "cohere"),
        _infer("/v2/rerank", "cohere_rerank", "documents ranked for a query (Cohere)", "cohere"),
        _infer("/rerank", "tei_rerank", "texts ranked for a query (TEI)", "tei"),
        _infer("/embed", "tei_embed", "vectors of texts (TEI)", "tei"),
        _infer("/predict", "tei_predict", "labels of a text (TEI)", "tei"),
        _infer("/", "tei_any", "whichever of these three the body is one of (TEI)", "tei"),
        _get("/info", "tei_info", "the pipeline that answers TEI's paths", "tei"),
    )


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
    _get("/v2/models/stats", "statistics", "counts and times of all versions"),  # before a pipeline of that name
    _get(MODEL, "model_metadata", "inputs and outputs"),
    _get(VERSION, "model_metadata", "inputs and outputs, of one version"),
    _get(f"{MODEL}/ready", "model_ready", "this pipeline answers"),
    _get(f"{VERSION}/ready", "model_ready", "this version answers"),
    _get(f"{MODEL}/batches", "batches", "why the last batches had their size"),
    _get(f"{VERSION}/batches", "batches", "the same, of one version"),
    _get(f"{MODEL}/stats", "statistics", "counts and times of this pipeline's versions"),
    _get(f"{VERSION}/stats", "statistics", "counts and times of one version"),
    _get(f"{MODEL}/config", "model_config", "V2's model configuration"),
    _get(f"{VERSION}/config", "model_config", "V2's model configuration, of one version"),
    _infer(f"{MODEL}/generate", "generate", "inputs by name, outputs by name"),
    _infer(f"{VERSION}/generate", "generate", "the same, of one version"),
    _infer(f"{MODEL}/generate_stream", "generate_stream", "the same as server-sent events", streams=True),
    _infer(
        f"{VERSION}/generate_stream", "generate_stream", "the same as server-sent events, of one version", streams=True
    ),
    *_repository("data"),
    *_by_task(),
    *_platforms(),
    _get("/openapi.json", "openapi", "the OpenAPI document of what is served here"),
    # The page is the same for everybody; what it reads and asks needs the key that is typed into it.
    _get("/docs", "try_page", "a page to try it with", scope="open"),
    _get("/docs/{asset}", "try_page_asset", "what that page loads", scope="open"),
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
    _grpc("ModelConfig", "model_config", "V2's model configuration"),
    _grpc("ModelStatistics", "statistics", "counts and times of a pipeline's versions, or of all"),
    _grpc("RepositoryIndex", "repository_index", "what could be loaded, and what is", "admin", needs=CONTROL),
    _grpc("RepositoryModelLoad", "repository_load", "load the newest version of a pipeline", "admin", needs=CONTROL),
    _grpc("RepositoryModelUnload", "repository_unload", "drain a pipeline, then unload it", "admin", needs=CONTROL),
    _grpc("LogSettings", "log_settings", "what is logged; change it", "admin", needs=CONTROL),
    _admin(b"GET", "/live", "live", "the process runs", "open"),
    _admin(b"GET", "/ready", "ready", "every pipeline answers; else why not", "open"),
    _admin(b"GET", "/status", "status", "versions, workers, queues, refusals"),
    _admin(b"GET", "/metrics", "metrics", "Prometheus text format"),
    _admin(b"GET", "/config", "config", "the settings in force"),
    _admin(b"GET", "/receipts/{id}", "receipt", "what is known of one request", "receipts"),
    _admin(b"GET", "/cache", "cache_show", "kept answers: how many, how old, what they were good for"),
    _admin(b"POST", "/cache/purge", "cache_purge", "forget all kept answers"),
    _admin(b"POST", "/pipelines/{pipeline}/cache/purge", "cache_purge", "forget the kept answers of a pipeline"),
    _admin(b"POST", "/pipelines/{pipeline}/versions/{version}/load", "load", "load from the repository"),
    _admin(b"POST", "/pipelines/{pipeline}/versions/{version}/unload", "unload", "drain, then unload"),
    *_repository("admin"),
)  # fmt: skip


def routes_of(plane: Plane, protocol: Protocol = "http") -> tuple[Route, ...]:
    """The routes of one plane over one protocol."""
    return tuple(route for route in ROUTES if route.plane == plane and route.protocol == protocol)
