"""READ FIRST. The path of one request from a decoded Request to an Answer: the stages, in order.

route → (judges) → admit → (cache) → queue → [batch → worker] → respond → tell → observe. A new stage is a new line in ``_answer``.
Before this, ``ingress`` framed the bytes and a dialect decoded them; to tell is to encode the answer by the dialect.
``begun`` has the same stages for a request that waits for nothing but its batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

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
from forwardpass.pipeline.guarding import Guarding
from forwardpass.pipeline.joining import answer_of, stamp_shared
from forwardpass.pipeline.priority import priority_of
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant

DEADLINE_MIN_S = 0.001
DEADLINE_MAX_S = 300.0
Told = TypeVar("Told")


class Handle:
    """Answers requests, for a variant the caller has entered. One per server; every style of service is a client."""

    def __init__(
        self, routes: Routes, deadline_default_s: float, clock: Clock, *, receipts: Receipts, metrics: Metrics
    ) -> None:
        self.routes = routes
        self._deadline_default_s = deadline_default_s
        self.deadlines = Deadlines(clock)
        self.clock = clock
        self.books = Books(receipts, metrics, clock)
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
        with self.books.open(variant, request, admission) as entry:
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
            deadline = self.admit(variant, request)
            ticket, items = await variant.grouping.cut(request, deadline, self.clock())
            if request.sequence is not None:
                self._refuse_quarantined(variant, items)
                visit = await variant.sequences.enter(request, request.sequence, items)
            elif variant.cache is not None:
                items, entry.cache = await variant.cache.enter(request, ticket, items)
            self.queue(variant, request, items)  # looks again: the one before it may have killed with the same input
            await self.deadlines.ended(ticket)
            answer = self.respond(variant, request, entry, ticket)
            return answer
        except asyncio.CancelledError:
            self.leave(ticket, items, entry)
            raise
        finally:
            if answer is None and ticket is not None:
                variant.forget(items, ticket)
            if visit is not None:
                request.begun = variant.sequences.leave(visit, answered=answer is not None)

    def queue(self, variant: Variant, request: Request, items: Sequence[Item]) -> None:
        self._refuse_quarantined(variant, items)
        request.timeline.queued = self.clock()
        if variant.ended:  # nobody would take from its queue
            raise Failed(Code.SHUTTING_DOWN, "the version was unloaded", retry_after_s=1.0)
        if items:  # none where every row is known, or runs for somebody else
            variant.queue.put(items)

    def leave(self, ticket: Ticket | None, items: Sequence[Item], entry: Entry) -> None:
        if ticket is not None:
            entry.begun_rows = sum([item.rows for item in items if item.taken])
            ticket.finish(Failed(Code.CANCELLED, "the caller went away"))

    def admit(self, variant: Variant, request: Request) -> float:
        """May it come in? Returns its deadline on the clock."""
        if not variant.available:
            text = f'pipeline "{variant.version.pipeline}" keeps losing its workers'
            raise Failed(Code.MODEL_UNAVAILABLE, text, retry_after_s=5.0)
        request.timeline.admitted = now = self.clock()
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

    def respond(self, variant: Variant, request: Request, entry: Entry, ticket: Ticket) -> Answer:
        """Join the parts, in row order, into the outputs that were asked for."""
        entry.parts = parts = ticket.parts()
        size = 0
        for part in parts:
            for output in part.outputs:
                size += len(output.data)
        if size > ANSWER_BYTES_MAX:
            raise too_large(size)
        timeline, last = request.timeline, parts[-1].batch
        timeline.returned = self.clock()
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
