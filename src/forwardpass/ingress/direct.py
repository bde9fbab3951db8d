"""Requests for which nothing need be awaited but their batch: begun when they have come, answered when that has ended.

The stages are those of ``DataPlane.respond``, ``Inference.run`` and ``Handle.told``, and so are the functions; what is
left out is the task that would wait, and what a head says is found out once for all requests that repeat it. Whatever
is not plain (a stream, a compressed body, a turn in a sequence, a judge, quotas kept elsewhere) is for ``respond``.
"""

import asyncio
from typing import Any

from forwardpass.batching.ticket import Ticket
from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.clock import Clock, RandomIds
from forwardpass.core.errors import Refused
from forwardpass.core.off_loop import OFF_LOOP_BYTES_MIN, at_once
from forwardpass.core.request import Answer
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.compression import compress
from forwardpass.ingress.data_plane import DataPlane, told
from forwardpass.ingress.dialect import Call, Dialect
from forwardpass.ingress.dialects.envelope import LIMITING, apply_headers, guard_header, trace_of
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.framing import Head
from forwardpass.ingress.inference import work_of
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import Match
from forwardpass.ingress.serving import Answering, Asker, Waiting
from forwardpass.pipeline.handle import Begun
from forwardpass.rollout.variant import Variant


class Asked:
    """What a head asks. ``limits``: it has a deadline or a priority; ``quiet``: its answers say nothing of it.

    ``caller`` was known at ``changes`` of who is known. ``known`` is the dialect's, of the last body.
    """

    __slots__ = ("caller", "changes", "dialect", "known", "limits", "match", "number", "pipeline", "quiet")

    def __init__(self, match: Match, dialect: Dialect, http: HttpRequest, quiet: bool) -> None:
        self.match = match
        self.dialect = dialect
        self.pipeline = match.pipeline
        self.number = match.number
        self.limits = not LIMITING.isdisjoint(http.headers)
        self.quiet = quiet
        self.caller: Caller | None = None
        self.changes = -1
        self.known: Any = None


class Direct:
    """``begin`` is what the HTTP protocol calls. One of the borders that end exceptions, with ``DataPlane``."""

    def __init__(self, plane: DataPlane, edge: Edge, clock: Clock) -> None:
        self.plane = plane
        self.inference = plane.inference
        self.handle = plane.inference.handle
        self.edge = edge
        self.clock = clock
        self._ids = RandomIds()

    def begin(self, head: Head, http: HttpRequest, asker: Asker) -> Answering | Waiting | None:
        """None where ``DataPlane.respond`` must be asked; then nothing has been taken or counted."""
        asked = head.asked
        if asked is None:
            asked = head.asked = self._asked(http) or False
        if asked is False or asked.dialect.work(http) >= OFF_LOOP_BYTES_MIN:
            return None
        variant = self.handle.routes.ready(asked.pipeline, asked.number)
        if variant is None or not variant.direct:
            return None
        caller = self._caller(asked, http)
        if caller is None:
            return None
        trace = None if asked.quiet else trace_of(http.headers)
        call = Call(http, asked.match, self._ids.next(), Timeline(http.received_s), trace, caller, asked=asked)
        return Exchange(self, variant, call, asker).begun()

    def _asked(self, http: HttpRequest) -> Asked | None:
        """Of a head that is plain, whatever the body."""
        found = self.plane.plain(http)
        if found is None or self.edge.waits:
            return None
        match, dialect = found
        try:
            self.edge.origins.check(http.headers, http.peer)
            quiet = b"traceparent" not in http.headers and b"x-request-id" not in http.headers
            return Asked(
                match, dialect, http, quiet and self.edge.quiet and not self.edge.origins.headers(http.headers)
            )
        except Refused:
            return None

    def _caller(self, asked: Asked, http: HttpRequest) -> Caller | None:
        """Who asks, and may; None where that is not known at once."""
        identity = self.edge.identity
        if identity is None:
            return ANONYMOUS
        caller: Caller | None = asked.caller
        if asked.changes != identity.changes or caller is None or not identity.holds(caller):
            asked.changes = identity.changes
            caller = asked.caller = identity.known(http)
        if caller is None or not caller.may(asked.match.route.scope, asked.pipeline):
            return None
        return caller


class Exchange(Waiting):
    """One request and its answer; to its connection it is what waits."""

    __slots__ = ("_asker", "_begun", "_call", "_direct", "_entered", "_left", "_variant")

    def __init__(self, direct: Direct, variant: Variant, call: Call, asker: Asker) -> None:
        self._direct = direct
        self._variant = variant
        self._call = call
        self._asker = asker
        self._begun: Begun | None = None
        self._entered = self._left = False

    def begun(self) -> "Answering | Exchange":
        """Itself, or the answer where there is one already."""
        direct, call, variant, in_books = self._direct, self._call, self._variant, False
        http, asked = call.http, call.asked
        try:
            direct.edge.at_once(http, call.caller, asked.pipeline)
            direct.inference.refuse_work()
            variant.enter()
            self._entered = True
            request = asked.dialect.decode(call, variant.signature)
            if asked.limits:
                apply_headers(request, http)
            request.trace, request.caller = call.trace, call.caller
            request.timeline.decoded = direct.clock()
            if http.admission is not None and http.admission.charges:
                at_once(direct.inference.charge(http.admission, variant, request))
            in_books = True
            self._begun = begun = direct.handle.begin(variant, request, http.admission)
        except Exception as error:  # a border: a defect of ours costs this request only
            if not in_books:
                direct.inference.count(error)
            self._over()
            return self._failed(error)
        if begun.ticket.done:
            return self._answering(begun)
        begun.ticket.then = self._ended
        return self

    def leave(self) -> None:
        self._left = True
        begun = self._begun
        assert begun is not None, "it was begun"
        self._direct.handle.leave(begun)
        begun.variant.forget(begun.items)
        begun.entry.close(asyncio.CancelledError())
        self._over()

    def _ended(self, ticket: Ticket) -> None:
        if not self._left and self._begun is not None:
            self._asker.tell(self._answering(self._begun))

    def _answering(self, begun: Begun) -> Answering:
        """The answer, once the ticket is done; what takes long of it is left to be awaited."""
        try:
            answer = self._direct.handle.end(begun)
            if work_of(answer) >= OFF_LOOP_BYTES_MIN:
                return self._late(begun, answer)
            encoded = self._encoded(begun, answer)
        except Exception as error:  # a border, as above
            begun.entry.close(error)
            self._over()
            return self._failed(error)
        begun.entry.close(None)
        self._over()
        return self._marked(encoded)

    async def _late(self, begun: Begun, answer: Answer) -> HttpAnswer:
        error: BaseException | None = None
        try:
            encoded = await asyncio.to_thread(self._encoded, begun, answer)
        except BaseException as failed:
            error = failed
            if not isinstance(failed, Exception):
                raise
            encoded = self._failed(failed)
        finally:
            begun.entry.close(error)
            self._over()
        marked = self._marked(encoded) if error is None else encoded
        return marked if isinstance(marked, HttpAnswer) else await marked

    def _encoded(self, begun: Begun, answer: Answer) -> HttpAnswer:
        encoded: HttpAnswer = self._call.asked.dialect.encode(answer, begun.request, self._call)
        if answer.notes:
            encoded.headers += guard_header(answer)
        return encoded

    def _marked(self, answer: HttpAnswer) -> Answering:
        call, direct = self._call, self._direct
        http, route = call.http, call.match.route
        if not call.asked.quiet:
            direct.plane.mark(answer, http, route, route.family, call.id, call.trace)
        if direct.edge.compresses(answer, http):
            return _compressed(answer, http)
        return answer

    def _failed(self, error: Exception) -> HttpAnswer:
        call = self._call
        route = call.match.route
        answer = told(error, call.http, route, route.family, call.id)
        self._direct.plane.mark(answer, call.http, route, route.family, call.id, call.trace)
        return answer

    def _over(self) -> None:
        if self._entered:
            self._variant.exit()
        self._call.http.leave()


async def _compressed(answer: HttpAnswer, http: HttpRequest) -> HttpAnswer:
    await compress(answer, http.headers.get(b"accept-encoding"))
    return answer
