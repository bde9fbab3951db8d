"""Requests for which nothing need be awaited but their batch: begun when they have come, answered when that has ended.

The stages are those of ``DataPlane.respond``, ``Inference.run`` and ``Handle.told``, and so are the functions; what is
left out is the task that would wait, and what a head says is found out once for all requests that repeat it. Whatever
is not plain (a stream, a compressed body, a turn in a sequence, a judge, quotas kept elsewhere) is for ``respond``.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress

from forwardpass.batching.ticket import Ticket
from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.clock import Clock, RandomIds
from forwardpass.core.errors import Refused
from forwardpass.core.off_loop import OFF_LOOP_BYTES_MIN, at_once
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.bundles import Bundles, Member
from forwardpass.ingress.compression import compress
from forwardpass.ingress.data_plane import DataPlane, told
from forwardpass.ingress.dialect import Call, Dialect
from forwardpass.ingress.dialects.caching import cache_headers
from forwardpass.ingress.dialects.envelope import LIMITING, apply_headers, guard_header, trace_of
from forwardpass.ingress.dialects.v2_repeated import Repeated, in_rows
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.framing import Head
from forwardpass.ingress.inference import work_of
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import Match, Route
from forwardpass.ingress.serving import Answering, Asker, Waiting
from forwardpass.pipeline.begun import Begun, begin
from forwardpass.pipeline.books import Entry
from forwardpass.rollout.variant import Variant

_log = logging.getLogger("forwardpass.ingress")


class Asked:
    """What a head asks; without a dialect what only ``respond`` can answer.

    ``limits``: it has a deadline or a priority. ``quiet``: its answers say nothing of it; ``short``: nor of the client's
    version. ``caller`` was known at ``changes`` of who is known. ``repeated`` is the last body but for its numbers,
    ``interned`` where others may have the same.
    """

    __slots__ = (
        "caller", "changes", "dialect", "interned", "limits", "match", "number", "pipeline", "quiet", "repeated", "short",
    )  # fmt: skip

    @property
    def route(self) -> Route:
        assert self.match is not None, "it has a dialect"
        return self.match.route

    def __init__(
        self, match: Match | None, dialect: Dialect | None, head: Head, *, quiet: bool = False, short: bool = False
    ) -> None:
        self.match = match
        self.dialect = dialect
        self.pipeline = "" if match is None else match.pipeline
        self.number = None if match is None else match.number
        self.limits = not LIMITING.isdisjoint(head.headers)
        self.quiet = quiet
        self.short = short and not self.limits and not head.query and not head.http_1_0
        self.caller: Caller | None = None
        self.changes = -1
        self.repeated: Repeated | None = None
        self.interned: Repeated | None = None


class Direct:
    """``begin`` is what the HTTP protocol calls. One of the borders that end exceptions, with ``DataPlane``."""

    def __init__(self, plane: DataPlane, edge: Edge, clock: Clock) -> None:
        self.plane = plane
        self.inference = plane.inference
        self.handle = plane.inference.handle
        self.edge = edge
        self.clock = clock
        self.ids = RandomIds()
        self._bundles = Bundles(self)

    def begin(self, head: Head, body: bytes, received_s: float, asker: Asker) -> Answering | Waiting | None:
        """None where ``DataPlane.respond`` must be asked; then nothing has been taken or counted."""
        try:
            asked: Asked | None = head.asked
            if asked is not None and asked.repeated is not None:
                member = self._member(asked, head, body, received_s, asker)
                if member is not None:
                    return member
            return self._single(head, asker.request(head, body, received_s), asker)
        except Exception:  # a border: it is answered the long way
            _log.exception("a request could not be begun")
            return None

    def _single(self, head: Head, http: HttpRequest, asker: Asker) -> Answering | Waiting | None:
        """The same of one that is in no bundle."""
        asked = head.asked
        if asked is None:
            asked = head.asked = self._asked(head, http)
        if asked.dialect is None or asked.dialect.work(http) >= OFF_LOOP_BYTES_MIN:
            return None
        variant = self.handle.routes.ready(asked.pipeline, asked.number)
        if variant is None or not variant.direct:
            return None
        caller = self._caller(asked, http)
        if caller is None:
            return None
        return self._exchange(asked, variant, caller, http, asker)

    def _exchange(
        self, asked: Asked, variant: Variant, caller: Caller, http: HttpRequest, asker: Asker
    ) -> "Answering | Exchange":
        assert asked.match is not None, "it has a dialect"
        trace = None if asked.quiet else trace_of(http.headers)
        call = Call(http, asked.match, self.ids.next(), Timeline(http.received_s), trace, caller, asked=asked)
        return Exchange(self, variant, call, asker).begun()

    def _member(self, asked: Asked, head: Head, body: bytes, received_s: float, asker: Asker) -> Member | None:
        """Of a bundle, where this is a body that was read before but for its numbers, and its head is as short."""
        repeated = asked.repeated
        if repeated is None or not asked.short or (text := repeated.numbers(body)) is None:
            return None
        if received_s < repeated.apart_until_s:
            return None
        variant = self.handle.routes.ready(asked.pipeline, asked.number)
        if variant is None or repeated.signature is not variant.signature or not variant.direct:
            return None
        caller = asked.caller
        identity = self.edge.identity
        if identity is not None and (caller is None or asked.changes != identity.changes or not identity.holds(caller)):
            return None
        if asked.interned is not repeated:
            if repeated.shape[0] != 1 or not in_rows(variant.signature):
                asked.short = False
                return None
            asked.interned = asked.repeated = repeated = repeated.interned(variant.repeated)
        return self._bundles.join(variant, repeated, caller or ANONYMOUS, text, head, body, received_s, asker)

    def alone(self, variant: Variant, caller: Caller, member: Member) -> None:
        """Answer a member of a bundle by itself: by the version and for the caller that it came in for."""
        http = member.asker.request(member.head, member.body, member.received_s)
        answering = self._exchange(member.head.asked, variant, caller, http, member.asker)
        if isinstance(answering, Waiting):
            member.alone = answering
        else:
            member.asker.tell(answering)

    def fail(self, variant: Variant, caller: Caller, member: Member, error: Exception) -> None:
        """That is the end of a member of a bundle."""
        http = member.asker.request(member.head, member.body, member.received_s)
        id, route = self.ids.next(), member.head.asked.route
        self._entry(variant, caller, id, member).close(error)
        answer = told(error, http, route, route.family, id)
        self.plane.mark(answer, http, route, route.family, id, None)
        member.asker.tell(answer)

    def coded(self, member: Member, answer: HttpAnswer) -> Answering:
        """An answer as the client of a member accepts it."""
        http = member.asker.request(member.head, member.body, member.received_s)
        return _compressed(answer, http) if self.edge.compresses(answer, http) else answer

    def gone(self, variant: Variant, caller: Caller, member: Member) -> None:
        """A member of a bundle left before it was told."""
        self._entry(variant, caller, self.ids.next(), member).close(asyncio.CancelledError())

    def _entry(self, variant: Variant, caller: Caller, id: str, member: Member) -> Entry:
        return self.handle.books.open(variant, Request(id, [], 1, Timeline(member.received_s), caller=caller))

    def _asked(self, head: Head, http: HttpRequest) -> Asked:
        """Without a dialect where it is not plain, whatever the body."""
        found = None if self.edge.waits else self.plane.plain(http)
        if found is not None:
            with suppress(Refused):
                self.edge.origins.check(http.headers, http.peer)
                plain = b"traceparent" not in http.headers and b"x-request-id" not in http.headers
                plain = plain and self.edge.rates is None and not self.edge.origins.headers(http.headers)
                weighed = b";" in http.headers.get(b"accept-encoding", b"")  # by it any answer may have to be coded
                return Asked(*found, head, quiet=plain and self.edge.quotas is None, short=plain and not weighed)
        return Asked(None, None, head)

    def _caller(self, asked: Asked, http: HttpRequest) -> Caller | None:
        """Who asks, and may; None where that is not known at once."""
        identity = self.edge.identity
        if identity is None:
            return ANONYMOUS
        caller: Caller | None = asked.caller
        if asked.changes != identity.changes or caller is None or not identity.holds(caller):
            asked.changes = identity.changes
            caller = identity.known(http)
            if caller is not None and not caller.may(asked.route.scope, asked.pipeline):
                caller = None
            asked.caller = caller
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
        direct, call, variant = self._direct, self._call, self._variant
        entry: Entry | None = None
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
            entry = direct.handle.books.open(variant, request, http.admission)
            self._begun = begun = begin(direct.handle, variant, request, entry)
        except Exception as error:  # a border: a defect of ours costs this request only
            if entry is None:
                direct.inference.count(error)
            else:
                entry.close(error)
            self._over()
            return self._failed(error)
        if begun.ticket.done:
            answering = self._answering(begun)
            if isinstance(answering, HttpAnswer):
                return answering
            asyncio.get_running_loop().call_soon(self._tell, answering)  # who leaves before that must be heard here
        else:
            begun.ticket.then = self._ended
        return self

    def leave(self) -> None:
        self._left = True
        begun = self._begun
        if begun is None or not self._entered:
            return  # all is said, but for what is being compressed
        begun.leave()
        begun.variant.forget(begun.items, begun.ticket)
        begun.entry.close(asyncio.CancelledError())
        self._over()

    def _ended(self, ticket: Ticket) -> None:
        if not self._left and self._begun is not None:
            self._tell(self._answering(self._begun))

    def _tell(self, answering: Answering) -> None:
        if not self._left:
            self._asker.tell(answering)
        elif isinstance(answering, Coroutine):
            answering.close()

    def _answering(self, begun: Begun) -> Answering:
        """The answer, once the ticket is done; what takes long of it is left to be awaited."""
        try:
            answer = begun.end()
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
        if answer.cache is not None:
            encoded.headers += cache_headers(answer, begun.request)
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
            self._entered = False
            self._variant.exit()
        self._call.http.leave()


async def _compressed(answer: HttpAnswer, http: HttpRequest) -> HttpAnswer:
    await compress(answer, http.headers.get(b"accept-encoding"))
    return answer
