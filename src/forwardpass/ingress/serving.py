"""What the connections of one server share: who answers, the limits, what is counted."""

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.ingress.connections import OpenConnections
from forwardpass.ingress.cors import Origins
from forwardpass.ingress.framing import Head, Opening, refusal_of
from forwardpass.ingress.in_flight import BytesInFlight
from forwardpass.ingress.message import HttpAnswer, HttpLimits, HttpRequest, Respond, Screen
from forwardpass.ingress.routes import Family

log = logging.getLogger("forwardpass.ingress")

FamilyOf = Callable[[bytes, str], Family]
Answering = HttpAnswer | Coroutine[Any, Any, HttpAnswer]
"""An answer, or what still has to be awaited for it."""


class Waiting:
    """A request that was begun, and whose answer its connection will be told. Told from an answer by its class, for every
    request: that is why it is neither a Protocol nor an ABC, which are slow to ask."""

    __slots__ = ()

    def leave(self) -> None:
        """Its caller went away."""
        raise NotImplementedError


class Asker(Protocol):
    """A connection that had a request begun."""

    def request(self, head: Head, body: bytes, received_s: float) -> HttpRequest:
        """As others are to see it."""

    def tell_row(self, opening: Opening, id: str, text: bytes) -> None:
        """A small answer, of a request with that id, whose head begins so."""

    def tell(self, answering: Answering) -> None:
        """The answer, or what still has to be awaited for it. Called once, unless the caller has left before."""


Begin = Callable[[Head, bytes, float, Asker], Answering | Waiting | None]
"""Begins a request for which nothing need be awaited; None for one that ``respond`` must be asked."""


class Serving:
    """What the connections of one server share.

    ``family_of`` a method and a path, empty where they cannot be read, decides what its own refusals look like.
    ``in_flight`` counts the bytes of requests, of this server or of several. ``screen`` is asked before a body comes in
    that is not small, or that waits for 100 Continue; ``origins`` what pages may read of refusals. ``begin`` is asked
    before ``respond``.
    """

    def __init__(
        self,
        respond: Respond,
        family_of: FamilyOf,
        limits: HttpLimits,
        clock: Clock,
        in_flight: BytesInFlight | None = None,
        screen: Screen | None = None,
        origins: Origins | None = None,
    ) -> None:
        self.respond = respond
        self.begin: Begin | None = None
        self.family_of = family_of
        self.screen = screen
        self.origins = Origins() if origins is None else origins
        self.limits = limits
        self.clock = clock
        self.draining = False
        self.running = self.requests = self.cancelled = 0
        self.refused: Counter[Code] = Counter()
        self.in_flight = BytesInFlight(limits.bytes_in_flight_max) if in_flight is None else in_flight
        self.connections = OpenConnections(limits, clock)

    def failed(self, error: BaseException, head: Head) -> HttpAnswer:
        """The answer of one whose answering ended so."""
        if not isinstance(error, Failure):
            log.error("no answer was made", exc_info=error)
            error = Failed(Code.INTERNAL, "the request failed inside the server")
        return self.refusal(error, head.method, head.path, head.headers)

    def refusal(self, failure: Failure, method: bytes, path: str, headers: Mapping[bytes, bytes]) -> HttpAnswer:
        """What a client is told by HTTP itself, as far as is known what it asked."""
        self.refused[failure.code] += 1
        answer = refusal_of(failure, self.family_of(method, path))
        answer.headers += self.origins.headers(headers)
        return answer
