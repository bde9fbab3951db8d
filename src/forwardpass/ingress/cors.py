"""Which web pages may ask: those of the server's own origin, and of the origins in ``data.cors_origins`` (CORS).

A browser sends a page's origin with its requests. One that is neither is refused before anything is run, whatever the
method: a page that somebody happens to have open must not use the server on their machine. That its host is the one it
asks makes a page the server's own only where that name cannot be another's, rebound to this machine: OWN_HOSTS and
those in ``data.hosts``.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forwardpass.core.errors import Code, Refused, show
from forwardpass.ingress.message import HttpAnswer, HttpRequest

OWN_HOSTS = frozenset((b"127.0.0.1", b"localhost", b"[::1]"))
MAX_AGE_S = 600  # how long a browser may remember what a preflight was told
TAKEN = frozenset(
    (
        "accept", "api-key", "authorization", "cache-control", "content-encoding", "content-type", "idempotency-key",
        "inference-header-content-length", "openai-organization", "openai-project", "traceparent", "tracestate",
        "x-amzn-sagemaker-custom-attributes", "x-amzn-sagemaker-session-id", "x-amzn-sagemaker-target-model",
        "x-api-key", "x-client-name", "x-envoy-expected-rq-timeout-ms", "x-priority", "x-request-deadline-ms",
        "x-request-id", "x-request-priority", "x-sequence-end", "x-sequence-id", "x-sequence-start",
    )
)  # fmt: skip
"""The headers that a page may send, all that have a meaning here or that our clients' libraries add."""
TAKEN_PREFIX = "x-stainless-"  # what the libraries of OpenAI and others say of themselves
EXPOSED = ", ".join(
    (
        "Age", "Cache-Status", "Content-Encoding", "Idempotency-Replayed", "Inference-Header-Content-Length", "RateLimit", "RateLimit-Policy",
        "Retry-After", "retry-after-ms", "traceparent", "X-Client-Request-Id", "X-Error-Code", "X-Guardrails",
        "X-Pipeline", "X-Pipeline-Digest", "X-Pipeline-Version", "X-Request-Id", "X-Sequence-Id",
        "x-ratelimit-limit-requests",
        "x-ratelimit-limit-tokens", "x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-should-retry",
    )
).encode()  # fmt: skip
"""The headers that a page may read."""

_VARY = (b"Vary", b"Origin")
_NO_GUESS = (b"X-Content-Type-Options", b"nosniff")
_PORT = re.compile(rb":[0-9]{1,5}\Z")


@dataclass(frozen=True, slots=True)
class Origins:
    """``configured`` are whole origins as browsers write them: scheme, host, and the port if it is not the usual one.

    ``hosts`` are names of the server's own besides OWN_HOSTS, in lower case. ``own_only``: whoever reaches this
    machine may ask, so a page must not by another name that was rebound to it; its GETs carry no origin. ``guarded``: no
    page of another site may even have something fetched that it cannot read, nor a browser guess what an answer is.
    """

    configured: frozenset[bytes] = frozenset()
    hosts: frozenset[bytes] = frozenset()
    own_only: bool = False
    guarded: bool = False

    def check(self, headers: Mapping[bytes, bytes], peer: str = "") -> None:
        """Raises Refused forbidden for a request from a page of another origin; with ``own_only`` misdirected for one to
        a name that could be rebound, but for what is no browser's: over gRPC or a Unix socket, or without a Host."""
        browsers = self.own_only and peer and b":path" not in headers  # no peer: a Unix socket; :path: gRPC
        host = headers.get(b"host", b"")
        if browsers and host and _can_be_rebound(host_name(host)):
            shown = show(host.decode("latin-1"))
            text = (
                f"the host {shown} is not this machine's own name; list every name in use in data.hosts, localhost too"
            )
            raise Refused(Code.MISDIRECTED, text, field="Host")
        if self.guarded and headers.get(b"sec-fetch-site") == b"cross-site":
            raise Refused(
                Code.FORBIDDEN, "a page of another site must not ask the operator's plane", field="Sec-Fetch-Site"
            )
        origin = headers.get(b"origin")
        if origin is None or origin in self.configured or self._own(origin, headers.get(b"host", b"")):
            return
        shown = show(origin.decode("latin-1"))
        text = f"Origin {shown} is not this server's own: data.cors_origins names origins that may ask, data.hosts its hosts"
        raise Refused(Code.FORBIDDEN, text, field="Origin")

    def _own(self, origin: bytes, host: bytes) -> bool:
        """Whether a page is of the server that it asks. The scheme does not count: a proxy in front may change it."""
        name = host_name(host)
        return origin.partition(b"://")[2].lower() == host.lower() and (name in OWN_HOSTS or name in self.hosts)

    def asks(self, http: HttpRequest) -> bool:
        """Whether a browser asks for a page of a configured origin what it may send; it never says for whom."""
        asked = b"access-control-request-method" in http.headers
        return http.method == b"OPTIONS" and asked and http.headers.get(b"origin") in self.configured

    def preflight(self, http: HttpRequest, allowed: Sequence[bytes]) -> HttpAnswer | None:
        """The answer to a browser that asks, for a page of a configured origin, what it may send to a path.

        None for what is no such question. ``allowed`` are the path's methods.
        """
        if not allowed or not self.asks(http):
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
            return (_NO_GUESS,) if self.guarded else ()
        origin = asked.get(b"origin")
        if origin not in self.configured:
            return (_VARY,)
        return ((b"Access-Control-Allow-Origin", origin), (b"Access-Control-Expose-Headers", EXPOSED), _VARY)


def host_name(host: bytes) -> bytes:
    """Of a Host header: in lower case, without the port."""
    return _PORT.sub(b"", host.lower())


def _can_be_rebound(name: bytes) -> bool:
    """Whether a host is neither an address nor a name of loopback (RFC 6761)."""
    if f".{name.decode('latin-1').removesuffix('.')}".endswith(".localhost"):
        return False
    bare = name[1:-1] if name.startswith(b"[") else name
    try:
        ipaddress.ip_address(bare.decode("latin-1"))
    except ValueError:
        return True
    return False


def _of_a_library(name: str) -> bool:
    rest = name.removeprefix(TAKEN_PREFIX)
    return rest != name and rest.isascii() and rest.replace("-", "").isalnum()
