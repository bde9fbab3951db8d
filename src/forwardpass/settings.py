"""The server's own settings: one frozen object, one section per part.

Read from the command line, from ``server.toml``, and from the variables by which platforms tell containers where to
listen; of these the first that has a value gives it.

Printed by ``forwardpass config`` and served on the admin plane. Unknown keys and values out of bounds are refused with
the key, what was found and what is allowed.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from forwardpass.admit.rules import QuotaRule, quotas_of
from forwardpass.core.errors import Code, Misconfigured, Problem

LOOPBACK = ("127.0.0.1", "::1", "localhost")
UNIX_PATH_BYTES_MAX = 107
"""What the system has room for."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


def _option(default: Any, doc: str, *, low: float | None = None, high: float | None = None) -> Any:
    return field(default=default, metadata={"doc": doc, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Data:
    """The data plane: where clients come in."""

    host: str = _option(
        "127.0.0.1", "address to listen on; another than loopback needs auth.required or open_to_network"
    )
    open_to_network: bool = _option(
        False, "any host may be listened on, and whoever reaches it may ask: for platforms that authenticate in front"
    )
    port: int = _option(8000, "port; 0 takes a free one", low=0, high=65535)
    hosts: tuple[str, ...] = _option(
        (), "Host names that are answered, and whose pages may ask; empty: any, on loopback without keys its own"
    )
    unix_socket: str = _option("", "path of a Unix socket that is served too, without TLS; empty: none")
    unix_socket_mode: str = _option("0600", "its permissions, in octal")
    tls_certificate: str = _option("", "PEM file; with tls_key turns TLS on; read again when it changes, and on SIGHUP")
    tls_key: str = _option("", "PEM file of the certificate's key")
    cors_origins: tuple[str, ...] = _option((), "origins of web pages that may ask, besides the server's own")
    compress_bytes_min: int = _option(
        16 * 1024, "answers from this size on are compressed for clients that accept it; 0: none", low=0, high=2**31
    )
    pipeline: str = _option("", "who answers requests that name no pipeline; empty: the only one that is served")
    health_route: str = _option("", "a further path that answers as /ping does; empty: none")
    predict_route: str = _option("", "a further path that answers as /invocations does; empty: none")
    model_control: bool = _option(False, "V2's model repository and logging requests, for clients of the data plane")


@dataclass(frozen=True, slots=True)
class Grpc:
    """V2 over gRPC, on a port of its own beside the data plane; host, certificate and limits are the data plane's."""

    serve: str = _option("auto", "on | off | auto: when protobuf is installed")
    port: int = _option(8001, "port; 0 takes a free one", low=0, high=65535)


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin plane: status, metrics, receipts, load and unload; a listener of its own."""

    host: str = _option("127.0.0.1", "address to listen on; another than loopback needs auth.required")
    port: int = _option(8002, "port; 0 takes a free one", low=0, high=65535)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client can make the front hold (each with its error code)."""

    header_time_s: float = _option(5.0, "a head must be complete after", low=0.05, high=60)
    idle_time_s: float = _option(60.0, "an idle connection is closed after", low=0.05, high=3600)
    header_bytes_max: int = _option(16 * 1024, "largest head: request line and headers", low=1024, high=2**17)
    write_time_s: float = _option(30.0, "a client that takes nothing of its answer is cut after", low=0.05, high=3600)
    body_grace_s: float = _option(10.0, "a body slower than 1 KiB a second is refused after", low=0.05, high=600)
    body_bytes_max: int = _option(64 * 1024 * 1024, "largest body", low=1024, high=2**31)
    bytes_in_flight_max: int = _option(
        256 * 1024 * 1024,
        "requests that come in or are answered, in all; an eighth is for bodies of up to 64 KiB, and of the rest one"
        " address has half at most",
        low=2048,
        high=2**36,
    )
    connections_max: int = _option(1000, "open connections", low=1, high=100_000)
    connections_per_address_max: int = _option(1000, "open connections from one address", low=1, high=100_000)
    deadline_s: float = _option(30.0, "deadline of a request that names none", low=0.001, high=300)
    requests_per_minute: int = _option(0, "of one address, health aside; 0: any number", low=0, high=10_000_000)
    idempotency_ttl_s: float = _option(3600.0, "how long the answer to an Idempotency-Key is kept", low=1, high=86_400)
    idempotency_bytes_max: int = _option(64 * 1024 * 1024, "kept answers in all", low=64 * 1024, high=2**36)
    memory_share_max: float = _option(
        0.92,
        "from this share of the memory on kept answers go, then new requests are refused; 1: never",
        low=0.5,
        high=1,
    )


@dataclass(frozen=True, slots=True)
class Cache:
    """Where answers of pipelines with [cache] are kept."""

    bytes_max: int = _option(
        256 * 1024 * 1024, "kept answers of all pipelines in this server's memory; 0: none are kept", low=0, high=2**40
    )
    redis: str = _option(
        "", "redis://HOST:PORT/NUMBER in which servers keep answers for each other; empty: each for itself"
    )


@dataclass(frozen=True, slots=True)
class Run:
    """How the server runs pipelines and stops."""

    threads: int = _option(0, "threads per version, shared by its workers; 0: one per core", low=0, high=1024)
    fronts: int = _option(
        1,
        "processes that listen for HTTP on data.port; they share the workers, and the limits hold over all",
        low=1,
        high=64,
    )
    source: str = _option("/opt/ml/model", "what is served when the command line names nothing")
    versions: str = _option("latest", "which versions of a pipeline are loaded: latest | all")
    signers: tuple[str, ...] = _option(
        (), "public keys (PEM files, or base64), one of which must have signed a version; empty: nobody need have"
    )
    guards: str = _option("", "file of [[guards]] that go around every pipeline, or those that each names; empty: none")
    data: str = _option("", "folder for the private store and the trust list; empty: the user's state folder")
    ready_grace_s: float = _option(
        1.0, "after SIGTERM: time between 'not ready' and 'no new connections'", low=0, high=60
    )
    drain_s: float = _option(30.0, "after SIGTERM: time for running requests to finish", low=0, high=600)
    receipts_kept: int = _option(10_000, "receipts that can be looked up", low=0, high=1_000_000)
    log: str = _option("json", "format of the log on standard error: json | text")
    redis: str = _option(
        "", "redis://HOST:PORT/NUMBER that servers share the accounts of their quotas in; empty: each its own"
    )


@dataclass(frozen=True, slots=True)
class Auth:
    """Who may ask. Without ``required`` everybody is anonymous and may ask all there is; credentials are not looked at."""

    required: bool = _option(False, "every request says who asks, on both planes, but for the server's health")
    jwks: str = _option("", "tokens (JWT) are taken too: file or https URL of the issuer's keys, or of its discovery")
    issuer: str = _option("", "iss that a token must have")
    audience: str = _option("", "aud that a token must have")
    tenant_claim: str = _option("tenant", "claim of a token that names the tenant")
    scope_claim: str = _option("scope", "claim of a token that lists the scopes")
    client_ca: str = _option("", "PEM file: certificates of clients that it issued are taken too (mutual TLS)")


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it. ``data_folder`` and ``threads`` are resolved here so that nobody else guesses."""

    data: Data = field(default_factory=Data)
    grpc: Grpc = field(default_factory=Grpc)
    admin: Admin = field(default_factory=Admin)
    limits: Limits = field(default_factory=Limits)
    cache: Cache = field(default_factory=Cache)
    run: Run = field(default_factory=Run)
    auth: Auth = field(default_factory=Auth)
    quotas: tuple[QuotaRule, ...] = ()

    @property
    def data_folder(self) -> Path:
        if self.run.data:
            return Path(self.run.data)
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return Path(state) / "forwardpass"

    @property
    def threads(self) -> int:
        return self.run.threads or len(os.sched_getaffinity(0))


SECTIONS: dict[str, type[Any]] = {
    "data": Data, "grpc": Grpc, "admin": Admin, "limits": Limits, "cache": Cache, "run": Run, "auth": Auth
}  # fmt: skip


def read(path: Path | None, overrides: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """``overrides`` are "section.key" from the command line; ``environment`` has variables of platforms among others.

    Raises Misconfigured settings_invalid with every problem.
    """
    document: dict[str, Any] = {}
    name = str(path) if path else "command line"
    if path is not None:
        try:
            document = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise Misconfigured(
                Code.SETTINGS_INVALID, (Problem(name, "", str(error), "a readable TOML file"),)
            ) from error
    for key, value in overrides.items():
        section, _, option = key.partition(".")
        table = document.setdefault(section, {})
        if isinstance(table, dict):  # what else it is, _section reports
            table[option] = value
    for key, value in _from_platform(environment or {}).items():
        section, _, option = key.partition(".")
        table = document.setdefault(section, {})
        if isinstance(table, dict):
            table.setdefault(option, value)
    problems = [
        Problem(name, section, "unknown section", f"allowed: {', '.join((*SECTIONS, 'quotas'))}")
        for section in document
        if section not in SECTIONS and section != "quotas"
    ]
    if any(key.partition(".")[0] == "quotas" for key in overrides):
        problems.append(Problem(name, "quotas", "given as a setting", "rows of a server.toml: [[quotas]]"))
    quotas = quotas_of(name, document.get("quotas", []), problems)
    built = {
        section: _section(name, section, kind, document.get(section, {}), problems)
        for section, kind in SECTIONS.items()
    }
    if problems:
        raise Misconfigured(Code.SETTINGS_INVALID, tuple(problems))
    settings = Settings(**built, quotas=quotas)
    problems = _impossible(name, settings)
    if problems:
        raise Misconfigured(Code.SETTINGS_INVALID, tuple(problems))
    return settings


def _from_platform(environment: Mapping[str, str]) -> dict[str, Any]:
    """What SageMaker's and, with AIP_MODE=PREDICTION, Vertex AI's variables say. Raises Misconfigured settings_invalid."""
    variables = {"SAGEMAKER_BIND_TO_PORT": "data.port"}
    if environment.get("AIP_MODE") == "PREDICTION":
        variables |= {
            "AIP_HTTP_PORT": "data.port",
            "AIP_HEALTH_ROUTE": "data.health_route",
            "AIP_PREDICT_ROUTE": "data.predict_route",
        }
    given: dict[str, Any] = {}
    for variable, key in variables.items():
        value = environment.get(variable, "")
        if value and key == "data.port":
            if not (value.isascii() and value.isdigit() and 1 <= int(value[:10]) <= 65535):
                problem = Problem("environment", variable, f"found {value!r}", "a port, 1 to 65535")
                raise Misconfigured(Code.SETTINGS_INVALID, (problem,))
            given.setdefault(key, int(value))
        elif value:
            given[key] = value
    return given


def _section(file: str, section: str, kind: type[Any], values: Any, problems: list[Problem]) -> Any:
    if not isinstance(values, dict):
        problems.append(Problem(file, section, f"found {type(values).__name__}", "a table is expected"))
        return kind()
    options = {option.name: option for option in fields(kind)}
    hints = get_type_hints(kind)
    good: dict[str, Any] = {}
    for key, value in values.items():
        if key not in options:
            problems.append(Problem(file, f"{section}.{key}", "unknown key", f"allowed: {', '.join(options)}"))
            continue
        found = _value(hints[key], value)
        low, high = options[key].metadata["low"], options[key].metadata["high"]
        if found is MISSING:
            problems.append(Problem(file, f"{section}.{key}", f"found {value!r}", f"expected {_name(hints[key])}"))
        elif low is not None and not low <= found <= high:
            problems.append(Problem(file, f"{section}.{key}", f"found {value!r}", f"allowed: {low} to {high}"))
        else:
            good[key] = found
    return kind(**good)


def _value(hint: Any, value: Any) -> Any:
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint is int and type(value) is int:
        return value
    if hint in (str, bool) and type(value) is hint:
        return value
    if hint == tuple[str, ...] and isinstance(value, (list, tuple)) and all(type(part) is str for part in value):
        return tuple(value)
    return MISSING


def _name(hint: Any) -> str:
    return {float: "a number", int: "an integer", str: "a string", bool: "true or false"}.get(hint, "a list of strings")


def _impossible(file: str, settings: Settings) -> list[Problem]:
    problems: list[Problem] = []
    for section, host in (("data", settings.data.host), ("admin", settings.admin.host)):
        opened = section == "data" and settings.data.open_to_network
        if host not in LOOPBACK and not opened and not settings.auth.required:
            why = f"{host} can be reached from outside and nobody need say who asks"
            ways = "auth.required or data.open_to_network" if section == "data" else "auth.required"
            problems.append(Problem(file, f"{section}.host", why, f"{' or '.join(LOOPBACK)}; or {ways}"))
        if opened and (host in LOOPBACK or settings.auth.required):
            why = "auth.required is set" if settings.auth.required else f"{host} is reached from this machine only"
            allowed = "false" if settings.auth.required else "false, or a host such as 0.0.0.0"
            problems.append(Problem(file, "data.open_to_network", f"has no effect: {why}", allowed))
    if bool(settings.data.tls_certificate) != bool(settings.data.tls_key):
        problems.append(
            Problem(file, "data.tls_certificate", "only one of tls_certificate and tls_key is set", "set both")
        )
    limits = settings.limits
    least = -(-16 * limits.body_bytes_max // 7)  # of seven eighths one address has half: there the largest body fits
    if limits.bytes_in_flight_max < least:
        allowed = f"at least 16/7 of limits.body_bytes_max: {least}"
        why = f"found {limits.bytes_in_flight_max}: the largest body might never have room"
        problems.append(Problem(file, "limits.bytes_in_flight_max", why, allowed))
    problems += _impossible_data(file, settings.data)
    if settings.run.redis and not settings.quotas:
        problems.append(Problem(file, "run.redis", "has no effect", "[[quotas]] beside it"))
    if settings.cache.redis and not settings.cache.bytes_max:
        problems.append(Problem(file, "cache.redis", "has no effect while cache.bytes_max is 0", "more, or no Redis"))
    for key, address in (("run.redis", settings.run.redis), ("cache.redis", settings.cache.redis)):
        if address and not address.startswith(("redis://", "rediss://", "unix://")):
            problems.append(Problem(file, key, "not the address of a Redis", "redis://HOST:PORT/NUMBER"))
    problems += _impossible_auth(file, settings.auth, tls=bool(settings.data.tls_certificate))
    if settings.grpc.serve not in ("auto", "on", "off"):
        problems.append(Problem(file, "grpc.serve", f"found {settings.grpc.serve!r}", "auto, on or off"))
    if settings.run.versions not in ("latest", "all"):
        problems.append(Problem(file, "run.versions", f"found {settings.run.versions!r}", "latest or all"))
    if settings.run.log not in ("json", "text"):
        problems.append(Problem(file, "run.log", f"found {settings.run.log!r}", "json or text"))
    return problems


def _impossible_data(file: str, data: Data) -> list[Problem]:
    problems: list[Problem] = []
    for origin in data.cors_origins:
        if origin == "*":
            why = "'*' would let every page that somebody has open use this server"
            problems.append(Problem(file, "data.cors_origins", why, "the origins that may, one by one"))
        elif not _ORIGIN.fullmatch(origin):
            allowed = "scheme, host and perhaps port, in lower case and no more: https://app.example"
            problems.append(Problem(file, "data.cors_origins", f"found {origin!r}", allowed))
    path = data.unix_socket
    if path and (not os.path.isabs(path) or "\0" in path or len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX):
        allowed = f"an absolute path of at most {UNIX_PATH_BYTES_MAX} bytes"
        problems.append(Problem(file, "data.unix_socket", f"found {path!r}", allowed))
    if not re.fullmatch("0?[0-7]{3}", data.unix_socket_mode):
        problems.append(Problem(file, "data.unix_socket_mode", f"found {data.unix_socket_mode!r}", "0000 to 0777"))
    return problems


def _impossible_auth(file: str, auth: Auth, *, tls: bool) -> list[Problem]:
    given = {option.name for option in fields(auth) if getattr(auth, option.name) != option.default} - {"required"}
    if not auth.required:
        return [Problem(file, f"auth.{name}", "has no effect", "auth.required = true beside it") for name in given]
    of_tokens = {"issuer", "audience", "tenant_claim", "scope_claim"}
    problems = [
        Problem(file, f"auth.{name}", "has no effect", "auth.jwks beside it")
        for name in sorted(given & of_tokens if not auth.jwks else ())
    ]
    if auth.jwks:
        missing = [name for name in ("issuer", "audience", "tenant_claim", "scope_claim") if not getattr(auth, name)]
        why = "is empty, so that tokens that were issued for others would be taken"
        problems += [Problem(file, f"auth.{name}", why, "what a token for this server says") for name in missing]
    if auth.client_ca and not tls:
        problems.append(Problem(file, "auth.client_ca", "has no effect", "data.tls_certificate beside it"))
    return problems
