"""The kinds of routes and how a path finds its own. What is served is listed in ``route_table``, and nowhere else.

A pattern's ``{name}`` matches one path segment, or what stands before a fixed ending of one (``{pipeline}:predict``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from forwardpass.core.errors import Code, Refused, show

Plane = Literal["data", "admin"]
Protocol = Literal["http", "grpc"]
Family = Literal["predict", "v2", "openai", "cohere", "tei", "mlflow", "problem"]
"""Whose clients ask, and so the shape of an error."""
Body = Literal["none", "small", "large"]
"""What a route takes: no body, one of SMALL_BODY_BYTES_MAX, one of limits.body_bytes_max."""

SMALL_BODY_BYTES_MAX = 64 * 1024
KNOWN_MAX = 1024
KNOWN_CHARACTERS_MAX = 256
"""Paths that matched are remembered, up to these bounds: a server is asked for the same few all day."""


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the table. ``scope`` is what a caller's key must allow once there are keys.

    ``endpoint`` names who answers; ``needs`` the setting without which it is refused; what ``streams`` cannot be
    answered again. The pattern of a gRPC route is its full method name.
    """

    method: bytes
    pattern: str
    endpoint: str
    scope: str
    summary: str
    plane: Plane = "data"
    family: Family = "v2"
    body: Body = "none"
    needs: str = ""
    protocol: Protocol = "http"
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """The route and what its placeholders matched."""

    route: Route
    values: Mapping[str, str]

    @property
    def pipeline(self) -> str:
        """Empty where the path names none."""
        return self.values.get("pipeline", "")

    @property
    def number(self) -> int | None:
        """The version asked for. Raises Refused version_not_found for what cannot be one."""
        text = self.values.get("version")
        return None if text is None else version_number(text)


def version_number(text: str) -> int:
    """Raises Refused version_not_found for what cannot be one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise Refused(Code.VERSION_NOT_FOUND, f'"{show(text)}" is not a version; versions are numbers')
    return int(text)


def no_query() -> Refused:
    """What a route says that has no use for one."""
    return Refused(Code.UNKNOWN_FIELD, "this path takes no query", field="?")


class Table:
    """Routes over HTTP, by number of segments."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_length: dict[int, list[tuple[list[str], Route]]] = {}
        self._known: dict[tuple[bytes, str], Match] = {}
        for route in routes:
            segments = route.pattern.split("/")
            self._by_length.setdefault(len(segments), []).append((segments, route))

    def match(self, method: bytes, path: str) -> Match | Sequence[bytes]:
        """The route, or the methods that are allowed there; none: no such path. HEAD is served as GET."""
        known = self._known.get((method, path))
        if known is not None:
            return known
        wanted = b"GET" if method == b"HEAD" else method
        allowed: list[bytes] = []
        for match in self._at(path):
            route = match.route
            if route.method == wanted:
                if len(path) <= KNOWN_CHARACTERS_MAX:
                    if len(self._known) >= KNOWN_MAX:  # filled by paths nobody asks for again: begin anew
                        self._known.clear()
                    self._known[(method, path)] = match
                return match
            allowed += [b"GET", b"HEAD"] if route.method == b"GET" else [route.method]
        return allowed

    def family(self, method: bytes, path: str) -> Family:
        """Whose clients ask there: of the route, else of any at this path, else as the path begins."""
        found = self.match(method, path)
        if isinstance(found, Match):
            return found.route.family
        for match in self._at(path):
            return match.route.family
        return "predict" if path.startswith("/predict") else "openai" if path.startswith("/v1/") else "v2"

    def _at(self, path: str) -> Iterator[Match]:
        given = path.split("/")
        for segments, route in self._by_length.get(len(given), ()):
            values = _values(segments, given)
            if values is not None:
                yield Match(route, values)


def _values(segments: Sequence[str], given: Sequence[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for segment, part in zip(segments, given, strict=True):
        if segment == part:
            continue
        if not segment.startswith("{"):
            return None
        name, _, ending = segment[1:].partition("}")
        value = part.removesuffix(ending) if ending and part.endswith(ending) else "" if ending else part
        if not value:
            return None
        values[name] = value
    return values
