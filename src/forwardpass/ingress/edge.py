"""What holds for every request of the data plane, whatever its route: who may ask, how often, once or again, and how
bodies and answers travel. Each part is off, or lets everything pass, until settings say otherwise."""

import asyncio
from dataclasses import dataclass, replace
from typing import Protocol

from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.errors import Code, Refused, show
from forwardpass.ingress.compression import worth
from forwardpass.ingress.cors import Origins
from forwardpass.ingress.framing import decode_content
from forwardpass.ingress.idempotency import HEADER, KeptAnswers
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest
from forwardpass.ingress.rates import Rates
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX, Family, Route

INLINE_BYTES_MAX = 16 * 1024  # more is unpacked in a thread: up to 100 times as much comes out


class Identity(Protocol):
    """Tells who asks."""

    async def caller(self, http: HttpRequest) -> Caller:
        """Raises Refused unauthenticated for one who does not say, or whom nobody knows; bad_request for two who ask."""


@dataclass(frozen=True, slots=True)
class Edge:
    """``identity`` without, nobody need say who they are; ``kept`` without, an Idempotency-Key has no meaning;
    ``compress_bytes_min`` 0 is never."""

    origins: Origins = Origins()
    rates: Rates | None = None
    kept: KeptAnswers | None = None
    compress_bytes_min: int = 0
    limits: HttpLimits = HttpLimits()
    identity: Identity | None = None

    async def admit(self, http: HttpRequest, route: Route | None, pipeline: str = "") -> Caller:
        """Who asks, and may: for what no route is for, everybody who is known may; ``pipeline`` is the path's.

        Raises Refused forbidden for a page of a foreign origin and for a caller without the route's scope,
        unauthenticated for one nobody knows, rate_limited for an address that asks too often.

        Callers of a Unix socket cannot be told apart; they have no quota.
        """
        self.origins.check(http.headers)
        if self.rates is not None and http.peer and _counts(http, route):
            self.rates.take(http.peer)
        if self.identity is None or (route is not None and route.scope == "open"):
            return ANONYMOUS
        caller = await self.identity.caller(http)
        # Which pipeline a body means is known once it is read: then ``Inference.route`` looks.
        if route is not None and (pipeline or route.scope != "infer"):
            allow(caller, route.scope, pipeline)
        return caller

    async def unpack(self, http: HttpRequest, route: Route) -> None:
        """Undo the body's coding, up to what the route takes. Raises Refused bad_encoding, body_too_large."""
        limits = self.limits if route.body == "large" else replace(self.limits, body_bytes_max=SMALL_BODY_BYTES_MAX)
        if len(http.body) <= INLINE_BYTES_MAX:
            http.body = decode_content(http.body, http.encoding, limits)
        else:
            http.body = await asyncio.to_thread(decode_content, http.body, http.encoding, limits)
        http.encoding = b""

    def mark(self, answer: HttpAnswer, http: HttpRequest, route: Route | None, family: Family) -> None:
        """Add what every answer says, an error too."""
        if self.rates is not None and http.peer and _counts(http, route):
            answer.headers += self.rates.headers(http.peer, family)
        answer.headers += self.origins.headers(http.headers)

    def compresses(self, answer: HttpAnswer, http: HttpRequest) -> bool:
        least = self.compress_bytes_min
        return least > 0 and worth(answer, http.headers.get(b"accept-encoding"), least)

    def keeps(self, http: HttpRequest, route: Route) -> KeptAnswers | None:
        """Where the answer of this request is kept, if it is one that asks for that: inference, by POST, with a key.

        Raises Refused for one whose answer is a stream.
        """
        asked = b"idempotency-key" in http.headers and route.scope == "infer" and route.method == b"POST"
        if asked and route.streams:
            text = f"a streamed answer cannot be given again; leave {HEADER} out"
            raise Refused(Code.BAD_REQUEST, text, field=HEADER)
        return self.kept if asked else None


def allow(caller: Caller, scope: str, pipeline: str = "") -> None:
    """Raises Refused forbidden; the same whether or not there is such a pipeline."""
    if not caller.may(scope, pipeline):
        needed = f"infer:{pipeline}" if pipeline and scope in ("infer", "read") else scope
        raise Refused(Code.FORBIDDEN, f"this needs the scope {show(needed)}")


def _counts(http: HttpRequest, route: Route | None) -> bool:
    """Whether a request counts against its caller's quota: health does not, nor what a browser asks before it asks."""
    return http.method != b"OPTIONS" if route is None else route.scope != "open"
