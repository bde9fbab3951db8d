"""What holds for every request of the data plane, whatever its route: who may ask, how often, once or again, and how
bodies and answers travel. Each part is off, or lets everything pass, until settings say otherwise."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import msgspec

from forwardpass.admit.quotas import Quotas
from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.errors import Code, Refused, show
from forwardpass.core.off_loop import at_once
from forwardpass.ingress.compression import worth
from forwardpass.ingress.cors import Origins
from forwardpass.ingress.idempotency import HEADER, KeptAnswers
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest
from forwardpass.ingress.rates import Rates
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX, Family, Route
from forwardpass.ingress.unpacking import Unpacking

INLINE_BYTES_MAX = 16 * 1024  # more is unpacked in a thread: up to 100 times as much comes out


class Identity(Protocol):
    """Tells who asks."""

    async def caller(self, http: HttpRequest) -> Caller:
        """Raises Refused unauthenticated for one who does not say, or whom nobody knows; bad_request for two who ask."""

    def known(self, http: HttpRequest) -> Caller | None:
        """The same where it can be said at once; None says nothing."""

    def holds(self, caller: Caller) -> bool:
        """Whether the time has not come at which one who is known expires."""

    @property
    def changes(self) -> int:
        """Changes whenever somebody who is known may be known no more, but for those who expire."""

    def knows(self, caller: Caller) -> bool:
        """Whether one who was known still is."""


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
    in_flight: BytesInFlight | None = None
    quotas: Quotas | None = None

    async def admit(self, http: HttpRequest, route: Route | None, pipeline: str = "") -> Caller:
        """Who asks, and may: for what no route is for, everybody who is known may; ``pipeline`` is the path's.

        Raises Refused forbidden for a page of a foreign origin and for a caller without the route's scope, misdirected,
        unauthenticated for one nobody knows, rate_limited for an address that asks too often; and as the caller's quotas
        refuse it (``Admission.enter``). Whoever answers the request ends it by ``http.leave``, also when this raised.

        Callers of a Unix socket cannot be told apart; they have no quota.
        """
        self.origins.check(http.headers, http.peer)
        if self.rates is not None and http.peer and _counts(http, route):
            self.rates.take(http.peer)
        if self.origins.asks(http) if route is None else route.scope == "open":
            return ANONYMOUS
        caller = await self.identify(http)
        if route is not None:
            # Which pipeline a body means is known once it is read: then ``Inference.route`` looks.
            allow(caller, route.scope, pipeline)
        if self.quotas is not None:
            http.admission = self.quotas.admission(caller, http.sent_bytes or len(http.body))
            await http.admission.enter(pipeline if route is not None and route.scope == "infer" else "")
        return caller

    async def screen(self, http: HttpRequest, route: Route | None, pipeline: str = "") -> None:
        """Before a large body comes in: raises Refused as ``admit`` would of one who is not known or may not ask.

        Nothing is taken of rates and quotas; ``admit`` is asked all the same once the body is here.
        """
        self.origins.check(http.headers, http.peer)
        if route is None or route.scope != "open":
            caller = await self.identify(http)
            if route is not None:
                allow(caller, route.scope, pipeline)

    async def identify(self, http: HttpRequest) -> Caller:
        """Who asks. Raises Refused as Identity does."""
        return ANONYMOUS if self.identity is None else await self.identity.caller(http)

    def at_once(self, http: HttpRequest, caller: Caller, pipeline: str) -> None:
        """What ``admit`` takes of a caller who is known and may ask, where nothing need be awaited for it (``waits``)."""
        if self.rates is not None and http.peer:
            self.rates.take(http.peer)
        if self.quotas is not None:
            http.admission = self.quotas.admission(caller, len(http.body))
            at_once(http.admission.enter(pipeline))

    @property
    def waits(self) -> bool:
        """Whether others must be asked what callers may still take."""
        return self.quotas is not None and self.quotas.store.waits

    def watch(self, answer: HttpAnswer, caller: Caller) -> None:
        """Have an answer that is a stream end, with a last event that says why, once its caller is known no more."""
        if self.identity is not None and isinstance(answer.body, AsyncIterator):
            answer.body = _while_known(answer.body, partial(self.identity.knows, caller))

    async def unpack(self, http: HttpRequest, route: Route) -> None:
        """Undo the body's coding, up to what the route takes. Raises Refused bad_encoding, body_too_large.

        Failed bytes_in_flight_full where what comes out has no room; it is counted in ``http``, piece by piece.
        """
        limits = self.limits if route.body == "large" else replace(self.limits, body_bytes_max=SMALL_BODY_BYTES_MAX)
        unpacking, inline = Unpacking(http.body, http.encoding, limits), len(http.body) <= INLINE_BYTES_MAX
        pieces: list[bytes] = []
        while piece := unpacking.next() if inline else await asyncio.to_thread(unpacking.next):
            if self.in_flight is not None:
                self.in_flight.check(len(piece), max(unpacking.size, len(http.body)), http.peer)
                self.in_flight.hold(len(piece), http.peer)
                http.unpacked_bytes += len(piece)
            pieces.append(piece)
        http.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        http.encoding = b""

    def mark(self, answer: HttpAnswer, http: HttpRequest, route: Route | None, family: Family) -> None:
        """Add what every answer says, an error too."""
        standing = http.admission.standings.headers(openai=family == "openai") if http.admission is not None else []
        answer.headers += standing
        if self.rates is not None and http.peer and _counts(http, route):
            told = {name for name, _ in standing if name.startswith(b"x-")}  # OpenAI's can be said of one limit only
            answer.headers += [header for header in self.rates.headers(http.peer, family) if header[0] not in told]
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


async def _while_known(body: AsyncIterator[bytes], known: Callable[[], bool]) -> AsyncIterator[bytes]:
    try:
        async for chunk in body:
            if not known():
                why = {"error": "the key was revoked, or has expired", "code": Code.UNAUTHENTICATED.value}
                yield b"data: %b\n\n" % msgspec.json.encode(why)
                return
            yield chunk
    finally:
        if isinstance(body, AsyncGenerator):
            await body.aclose()


def _counts(http: HttpRequest, route: Route | None) -> bool:
    """Whether a request counts against its caller's quota: health does not, nor what a browser asks before it asks."""
    return http.method != b"OPTIONS" if route is None else route.scope != "open"
