"""READ FIRST. The path of one request from a decoded Request to an Answer: the stages, in order.

route → (judges) → admit → (cache) → queue → [batch → worker] → respond → tell → observe. A new stage is a new line in ``_answer``.
Before this, ``ingress`` framed the bytes and a dialect decoded them; to tell is to encode the answer by the dialect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from forwardpass.admit.quotas import Admission
from forwardpass.batching.deadlines import Deadlines
from forwardpass.batching.sequences import Visit
from forwardpass.batching.ticket import Item, Ticket
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Refused, show
from forwardpass.core.request import Answer, Request
from forwardpass.execution.replies import too_large
from forwardpass.execution.wire import ANSWER_BYTES_MAX
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts
from forwardpass.pipeline.books import Books, Entry
from forwardpass.pipeline.guarding import Guarding, without_shadows
from forwardpass.pipeline.joining import answer_of, stamp_shared
from forwardpass.pipeline.priority import priority_of
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant

DEADLINE_MIN_S = 0.001
DEADLINE_MAX_S = 300.0
Told = TypeVar("Told")


class Begun(NamedTuple):
    """A request that is in the queue or beyond."""

    variant: Variant
    request: Request
    entry: Entry
    ticket: Ticket
    items: Sequence[Item]


class Handle:
    """Answers requests, for a variant the caller has entered. One per server; every style of service is a client."""

    def __init__(
        self, routes: Routes, deadline_default_s: float, clock: Clock, *, receipts: Receipts, metrics: Metrics
    ) -> None:
        self.routes = routes
        self._deadline_default_s = deadline_default_s
        self._deadlines = Deadlines(clock)
        self._clock = clock
        self._books = Books(receipts, metrics, clock)
        self._guarding = Guarding(routes, clock, self.answer)

    def route(self, pipeline: str, number: int | None) -> Variant:
        """Which variant answers; the dialect decodes against its signature."""
        return self.routes.find(pipeline, number)

    async def end_sequence(self, variant: Variant, request: Request) -> None:
        """Give up what is kept of the request's sequence, once those before it have ended; it needs no rows."""
        await variant.sequences.end(request, self._deadline(request))

    async def answer(self, variant: Variant, request: Request) -> Answer:
        """Raises the Failure that ended the request; a caller that goes away cancels what has not run yet."""
        return await self.told(variant, request, _as_it_is)

    async def told(
        self,
        variant: Variant,
        request: Request,
        tell: Callable[[Answer, Request], Awaitable[Told]],
        admission: Admission | None = None,
    ) -> Told:
        """What ``tell`` makes of the answer. That is part of the request: what it raises is how the request ended."""
        with self._books.open(variant, request, admission) as entry:
            answer = await self._guarding.around(variant, request, entry, self._deadline(request), self._answer)
            if request.receipt:
                answer.receipt = entry.receipt()
            return await tell(answer, request)

    async def _answer(self, variant: Variant, request: Request, entry: Entry) -> Answer:
        items: Sequence[Item] = ()
        ticket: Ticket | None = None
        visit: Visit | None = None
        answer: Answer | None = None
        try:
            deadline = self._admit(variant, request)
            ticket, items = await variant.grouping.cut(request, deadline, self._clock())
            if request.sequence is not None:
                self._refuse_quarantined(variant, items)
                visit = await variant.sequences.enter(request, request.sequence, items)
            elif variant.cache is not None:
                items, entry.cache = await variant.cache.enter(request, ticket, items)
            self._queue(variant, request, items)  # looks again: the one before it may have killed with the same input
            await self._deadlines.ended(ticket)
            answer = self._respond(variant, request, entry, ticket)
            return answer
        except asyncio.CancelledError:
            self._leave(ticket, items, entry)
            raise
        finally:
            if answer is None and ticket is not None:
                variant.forget(items, ticket)
            if visit is not None:
                request.begun = variant.sequences.leave(visit, answered=answer is not None)

    def open(self, variant: Variant, request: Request, admission: Admission | None = None) -> Entry:
        """The books of a request that is begun here; whoever opened them closes them."""
        return self._books.open(variant, request, admission)

    def begin(self, variant: Variant, request: Request, entry: Entry, requests: int = 1) -> "Begun":
        """The same stages for a request of a variant with ``direct``: all that it waits for is its ticket.

        ``requests`` that came as one, a row each. Raises Failure.
        """
        items: Sequence[Item] = ()
        ticket: Ticket | None = None
        try:
            deadline = self._admit(variant, request)
            ticket, items = variant.grouping.items(request, deadline, self._clock())
            if requests > 1:
                for item in items:
                    item.requests = item.rows
            if variant.cache is not None:
                items, entry.cache = variant.cache.enter_now(request, ticket, items)
            self._queue(variant, request, items)
        except BaseException:
            if ticket is not None:
                variant.forget(items, ticket)
            raise
        self._deadlines.watch(ticket)
        return Begun(variant, request, entry, ticket, items)

    def end(self, begun: "Begun") -> Answer:
        """The answer, once the ticket is done. Raises the Failure that ended it."""
        answer: Answer | None = None
        try:
            self._deadlines.settle(begun.ticket)
            answer = self._respond(begun.variant, begun.request, begun.entry, begun.ticket)
            if begun.request.receipt:
                answer.receipt = begun.entry.receipt()
            return without_shadows(answer)
        finally:
            if answer is None:
                begun.variant.forget(begun.items, begun.ticket)

    def close_alike(
        self, begun: "Begun", ids: Sequence[str], received_s: Sequence[float], left: Sequence[bool]
    ) -> None:
        """The books of requests that came as one and were answered so; those whose callers have ``left`` were not."""
        self._books.close_alike(begun.entry, ids, received_s, left)

    def leave(self, begun: "Begun") -> None:
        """Its caller went away before it had ended: now it has."""
        self._leave(begun.ticket, begun.items, begun.entry)

    def _queue(self, variant: Variant, request: Request, items: Sequence[Item]) -> None:
        self._refuse_quarantined(variant, items)
        request.timeline.queued = self._clock()
        if variant.ended:  # nobody would take from its queue
            raise Failed(Code.SHUTTING_DOWN, "the version was unloaded", retry_after_s=1.0)
        if items:  # none where every row is known, or runs for somebody else
            variant.queue.put(items)

    def _leave(self, ticket: Ticket | None, items: Sequence[Item], entry: Entry) -> None:
        if ticket is not None:
            entry.begun_rows = sum([item.rows for item in items if item.taken])
            ticket.finish(Failed(Code.CANCELLED, "the caller went away"))

    def _admit(self, variant: Variant, request: Request) -> float:
        """May it come in? Returns its deadline on the clock."""
        if not variant.available:
            text = f'pipeline "{variant.version.pipeline}" keeps losing its workers'
            raise Failed(Code.MODEL_UNAVAILABLE, text, retry_after_s=5.0)
        request.timeline.admitted = now = self._clock()
        deadline = self._deadline(request)
        if deadline <= now:
            raise Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the request was admitted")
        request.priority = priority_of(request)
        fixed = variant.signature.fixed_rows
        if fixed not in (None, 1, request.rows):
            text = f"the model takes exactly {fixed} rows; {request.rows} were sent"
            raise Refused(Code.SHAPE_MISMATCH, text)
        for name in request.outputs:
            if name not in variant.signature.output_names:
                known = ", ".join(field.name for field in variant.signature.outputs)
                raise Refused(Code.UNKNOWN_OUTPUT, f'output "{show(name)}" does not exist; there are: {known}')
        return deadline

    def _deadline(self, request: Request) -> float:
        asked_s = self._deadline_default_s if request.deadline_s is None else request.deadline_s
        return request.timeline.received + min(max(asked_s, DEADLINE_MIN_S), DEADLINE_MAX_S)

    def _refuse_quarantined(self, variant: Variant, items: Sequence[Item]) -> None:
        if not variant.quarantine.empty:
            for item in items:
                variant.quarantine.look(item)

    def _respond(self, variant: Variant, request: Request, entry: Entry, ticket: Ticket) -> Answer:
        """Join the parts, in row order, into the outputs that were asked for."""
        entry.parts = parts = ticket.parts()
        size = 0
        for part in parts:
            for output in part.outputs:
                size += len(output.data)
        if size > ANSWER_BYTES_MAX:
            raise too_large(size)
        timeline, last = request.timeline, parts[-1].batch
        timeline.returned = self._clock()
        if entry.cache is not None:
            stamp_shared(timeline, parts, entry.cache)
        elif last is not None:
            timeline.released = last.released_s
            timeline.preprocess_s, timeline.execute_s = last.preprocess_s, last.execute_s
            timeline.postprocess_s = last.postprocess_s
        answer = answer_of(variant.version, variant.signature, request, parts)
        answer.cache = entry.cache
        return answer


async def _as_it_is(answer: Answer, request: Request) -> Answer:
    return answer
