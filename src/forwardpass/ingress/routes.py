"""Every route of both planes, in one closed table (FAULTS R1): nothing is served that is not a line here.

A pattern's ``{name}`` matches one path segment. ``/versions/{version}`` forms are lines of their own, so that the table
can be walked by tests and printed by ``forwardpass routes``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from forwardpass.core.errors import Code, Refused, show

Plane = Literal["data", "admin"]
KNOWN_MAX = 1024
KNOWN_CHARACTERS_MAX = 256
"""Paths that matched are remembered, up to these bounds: a server is asked for the same few all day."""


@dataclass(frozen=True, slots=True)
class Route:
    """``scope`` is what a caller's key must allow once there are keys; ``endpoint`` names the function."""

    method: bytes
    pattern: str
    endpoint: str
    scope: str
    plane: Plane
    summary: str


ROUTES: tuple[Route, ...] = (
    Route(b"POST", "/v2/models/{pipeline}/infer", "v2_infer", "infer", "data", "V2 inference"),
    Route(b"POST", "/v2/models/{pipeline}/versions/{version}/infer", "v2_infer", "infer", "data", "V2 inference"),
    Route(b"POST", "/predict/{pipeline}", "predict", "infer", "data", "one record or many, as plain JSON or raw bytes"),
    Route(b"POST", "/predict/{pipeline}/{version}", "predict", "infer", "data", "the same, of one version"),
    Route(b"DELETE", "/predict/{pipeline}", "end_sequence", "infer", "data", "end the sequence X-Sequence-Id names"),
    Route(b"DELETE", "/predict/{pipeline}/{version}", "end_sequence", "infer", "data", "the same, of one version"),
    Route(b"GET", "/v2/health/live", "live", "open", "data", "the process runs"),
    Route(b"GET", "/v2/health/ready", "ready", "open", "data", "every pipeline answers"),
    Route(b"GET", "/v2", "server_metadata", "read", "data", "name, version, extensions"),
    Route(b"GET", "/v2/", "server_metadata", "read", "data", "name, version, extensions"),
    Route(b"GET", "/v2/models", "models", "read", "data", "names of the pipelines"),
    Route(b"GET", "/v2/models/{pipeline}", "model_metadata", "read", "data", "inputs and outputs"),
    Route(b"GET", "/v2/models/{pipeline}/versions/{version}", "model_metadata", "read", "data", "inputs and outputs"),
    Route(b"GET", "/v2/models/{pipeline}/ready", "model_ready", "read", "data", "this pipeline answers"),
    Route(
        b"GET", "/v2/models/{pipeline}/versions/{version}/ready", "model_ready", "read", "data", "this version answers"
    ),
    Route(b"GET", "/v2/models/{pipeline}/batches", "batches", "read", "data", "why the last batches had their size"),
    Route(
        b"GET",
        "/v2/models/{pipeline}/versions/{version}/batches",
        "batches",
        "read",
        "data",
        "the same, of one version",
    ),
    Route(b"GET", "/live", "live", "open", "admin", "the process runs"),
    Route(b"GET", "/ready", "ready", "open", "admin", "every pipeline answers; else why not"),
    Route(b"GET", "/status", "status", "admin", "admin", "versions, workers, queues, refusals"),
    Route(b"GET", "/metrics", "metrics", "admin", "admin", "Prometheus text format"),
    Route(b"GET", "/config", "config", "admin", "admin", "the settings in force"),
    Route(b"GET", "/receipts/{id}", "receipt", "receipts", "admin", "what is known of one request"),
    Route(
        b"POST", "/pipelines/{pipeline}/versions/{version}/load", "load", "admin", "admin", "load from the repository"
    ),
    Route(b"POST", "/pipelines/{pipeline}/versions/{version}/unload", "unload", "admin", "admin", "drain, then unload"),
)


@dataclass(frozen=True, slots=True)
class Match:
    """The route and what its placeholders matched."""

    route: Route
    values: Mapping[str, str]

    @property
    def pipeline(self) -> str:
        return self.values["pipeline"]

    @property
    def number(self) -> int | None:
        """The version asked for. Raises Refused version_not_found for what cannot be one."""
        text = self.values.get("version")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise Refused(Code.VERSION_NOT_FOUND, f'"{show(text)}" is not a version; versions are numbers')
        return int(text)


class Table:
    """The routes of one plane, by number of segments."""

    def __init__(self, plane: Plane) -> None:
        self._by_length: dict[int, list[tuple[list[str], Route]]] = {}
        self._known: dict[tuple[bytes, str], Match] = {}
        for route in ROUTES:
            if route.plane == plane:
                segments = route.pattern.split("/")
                self._by_length.setdefault(len(segments), []).append((segments, route))

    def match(self, method: bytes, path: str) -> Match | Sequence[bytes]:
        """The route, or the methods that are allowed there; none: no such path. HEAD is served as GET."""
        known = self._known.get((method, path))
        if known is not None:
            return known
        wanted = b"GET" if method == b"HEAD" else method
        given = path.split("/")
        allowed: list[bytes] = []
        for segments, route in self._by_length.get(len(given), ()):
            values = _values(segments, given)
            if values is None:
                continue
            if route.method == wanted:
                match = Match(route, values)
                if len(self._known) < KNOWN_MAX and len(path) <= KNOWN_CHARACTERS_MAX:
                    self._known[(method, path)] = match
                return match
            allowed += [b"GET", b"HEAD"] if route.method == b"GET" else [route.method]
        return allowed


def _values(segments: Sequence[str], given: Sequence[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for segment, part in zip(segments, given, strict=True):
        if segment == part:
            continue
        if not segment.startswith("{") or not part:
            return None
        values[segment[1:-1]] = part
    return values
