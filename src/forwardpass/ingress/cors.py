"""Which web pages may ask: those of the server's own origin, and of the origins in ``data.cors_origins`` (CORS).

A browser sends a page's origin with its requests. One that is neither is refused before anything is run, whatever the
method: a page that somebody happens to have open must not use the server on their machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forwardpass.core.errors import Code, Refused, show
from forwardpass.ingress.message import HttpAnswer, HttpRequest

MAX_AGE_S = 600  # how long a browser may remember what a preflight was told
TAKEN = frozenset(
    (
        "accept", "authorization", "content-encoding", "content-type", "idempotency-key",
        "inference-header-content-length", "openai-organization", "openai-project", "traceparent", "tracestate",
        "x-client-name", "x-request-deadline-ms", "x-request-id", "x-request-priority", "x-sequence-end",
        "x-sequence-id", "x-sequence-start",
    )
)  # fmt: skip
"""The headers that a page may send, all that have a meaning here or that our clients' libraries add."""
TAKEN_PREFIX = "x-stainless-"  # what the libraries of OpenAI and others say of themselves
EXPOSED = ", ".join(
    (
        "Content-Encoding", "Idempotency-Replayed", "Inference-Header-Content-Length", "RateLimit", "RateLimit-Policy",
        "Retry-After", "retry-after-ms", "traceparent", "X-Client-Request-Id", "X-Error-Code", "X-Pipeline",
        "X-Pipeline-Digest", "X-Pipeline-Version", "X-Request-Id", "X-Sequence-Id", "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests", "x-should-retry",
    )
).encode()  # fmt: skip
"""The headers that a page may read."""

_VARY = (b"Vary", b"Origin")


@dataclass(frozen=True, slots=True)
class Origins:
    """``configured`` are whole origins as browsers write them: scheme, host, and the port if it is not the usual one."""

    configured: frozenset[bytes] = frozenset()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raises Refused forbidden for a request from a page of another origin."""
        origin = headers.get(b"origin")
        if origin is None or origin in self.configured or same_origin(origin, headers.get(b"host", b"")):
            return
        shown = show(origin.decode("latin-1"))
        text = f"Origin {shown} is another one than this server's; the setting data.cors_origins allows origins"
        raise Refused(Code.FORBIDDEN, text, field="Origin")

    def preflight(self, http: HttpRequest, allowed: Sequence[bytes]) -> HttpAnswer | None:
        """The answer to a browser that asks, for a page of a configured origin, what it may send to a path.

        None for what is no such question. ``allowed`` are the path's methods.
        """
        asked = b"access-control-request-method" in http.headers
        if http.method != b"OPTIONS" or not asked or not allowed or http.headers.get(b"origin") not in self.configured:
            return None
        headers = [
            (b"Access-Control-Allow-Methods", b", ".join(dict.fromkeys(allowed))),
            (b"Access-Control-Max-Age", b"%d" % MAX_AGE_S),
            (b"Vary", b"Access-Control-Request-Headers"),
        ]
        names = http.headers.get(b"access-control-request-headers", b"").decode("latin-1").lower().split(",")
        taken = [name for name in map(str.strip, names) if name in TAKEN or _of_a_library(name)]
        if taken:
            headers.append((b"Access-Control-Allow-Headers", ", ".join(taken).encode()))
        return HttpAnswer(204, headers=headers)

    def headers(self, asked: Mapping[bytes, bytes]) -> Sequence[tuple[bytes, bytes]]:
        """What every answer says, of an error too, so that a page of a configured origin may read it."""
        if not self.configured:
            return ()
        origin = asked.get(b"origin")
        if origin not in self.configured:
            return (_VARY,)
        return ((b"Access-Control-Allow-Origin", origin), (b"Access-Control-Expose-Headers", EXPOSED), _VARY)


def same_origin(origin: bytes, host: bytes) -> bool:
    """Whether a page's origin is the server that it asks. The scheme does not count: a proxy in front may change it."""
    return origin.partition(b"://")[2].lower() == host.lower() != b""


def _of_a_library(name: str) -> bool:
    rest = name.removeprefix(TAKEN_PREFIX)
    return rest != name and rest.isascii() and rest.replace("-", "").isalnum()
