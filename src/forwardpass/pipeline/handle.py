"""READ FIRST. The path of one request from a decoded Request to an Answer: the stages, in order.

route → admit → (cache) → queue → [batch → worker] → respond → observe. A new stage is a new line in ``answer``.
Before this, ``ingress`` framed the bytes and a dialect decoded them; after it, the dialect encodes the answer.
"""

import asyncio
from collections.abc import Sequence

from forwardpass.batching.deadlines import Deadlines
from forwardpass.batching.sequences import Visit
from forwardpass.batching.ticket import Item, Part
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure, Refused, show
from forwardpass.core.request import Answer, Note, Request
from forwardpass.core.tensor import Tensor
from forwardpass.execution.replies import too_large
from forwardpass.execution.wire import ANSWER_BYTES_MAX
from forwardpass.observe.log import request_ended
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts, Record, receipt
from forwardpass.pipeline.joining import joined
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant

DEADLINE_MIN_S = 0.001
DEADLINE_MAX_S = 300.0
CANCELLED = "cancelled"


class Handle:
    """Answers requests, for a variant the caller has entered. One per server; every style of service is a client."""

    def __init__(
        self, routes: Routes, deadline_default_s: float, clock: Clock, *, receipts: Receipts, metrics: Metrics
    ) -> None:
        self.routes = routes
        self._deadline_default_s = deadline_default_s
        self._deadlines = Deadlines(clock)
        self._clock = clock
        self._receipts = receipts
        self._metrics = metrics

    def route(self, pipeline: str, number: int | None) -> Variant:
        """Which variant answers; the dialect decodes against its signature."""
        return self.routes.find(pipeline, number)

    async def end_sequence(self, variant: Variant, request: Request) -> None:
        """Give up what is kept of the request's sequence, once those before it have ended; it needs no rows."""
        await variant.sequences.end(request, self._deadline(request))

    async def answer(self, variant: Variant, request: Request) -> Answer:
        """Raises the Failure that ended the request; a caller that goes away cancels what has not run yet."""
        items: Sequence[Item] = ()
        parts: list[Part] = []
        visit: Visit | None = None
        outcome: str = CANCELLED
        try:
            deadline = self._admit(variant, request)
            ticket, items = await variant.grouping.cut(request, deadline, self._clock())
            self._refuse_quarantined(variant, items)
            if request.sequence is not None:
                visit = await variant.sequences.enter(request, request.sequence, items)
                self._refuse_quarantined(variant, items)  # again: the one before it may have killed with the same input
            request.timeline.queued = self._clock()
            if variant.ended:  # nobody would take from its queue
                raise Failed(Code.SHUTTING_DOWN, "the version was unloaded", retry_after_s=1.0)
            variant.queue.put(items)
            self._deadlines.watch(ticket)
            try:
                await ticket.ended
            finally:
                self._deadlines.forget(ticket)
            parts = ticket.parts()
            answer = self._respond(variant, request, parts)
            outcome = "ok"
        except Failure as failure:
            outcome = failure.code
            raise
        except asyncio.CancelledError:
            if items:
                items[0].ticket.finish(Failed(Code.CANCELLED, "the caller went away"))
            raise
        finally:
            if outcome != "ok":
                variant.queue.discard(items)
            if visit is not None:
                request.begun = variant.sequences.leave(visit, answered=outcome == "ok")
            record = self._observe(variant, request, parts, outcome)
        if request.receipt:
            answer.receipt = receipt(record)
        return answer

    def _admit(self, variant: Variant, request: Request) -> float:
        """May it come in? Returns its deadline on the clock."""
        if not variant.available:
            text = f'pipeline "{variant.version.pipeline}" keeps losing its workers'
            raise Failed(Code.MODEL_UNAVAILABLE, text, retry_after_s=5.0)
        request.timeline.admitted = now = self._clock()
        deadline = self._deadline(request)
        if deadline <= now:
            raise Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the request was admitted")
        fixed = variant.signature.fixed_rows
        if fixed not in (None, 1, request.rows):
            text = f"the model takes exactly {fixed} rows; {request.rows} were sent"
            raise Refused(Code.SHAPE_MISMATCH, text)
        for name in request.outputs:
            if all(name != field.name for field in variant.signature.outputs):
                known = ", ".join(field.name for field in variant.signature.outputs)
                raise Refused(Code.UNKNOWN_OUTPUT, f'output "{show(name)}" does not exist; there are: {known}')
        return deadline

    def _deadline(self, request: Request) -> float:
        asked_s = self._deadline_default_s if request.deadline_s is None else request.deadline_s
        return request.timeline.received + min(max(asked_s, DEADLINE_MIN_S), DEADLINE_MAX_S)

    def _refuse_quarantined(self, variant: Variant, items: Sequence[Item]) -> None:
        if len(variant.quarantine):
            for item in items:
                variant.quarantine.check(item.columns, item.shapes, item.rows)

    def _respond(self, variant: Variant, request: Request, parts: Sequence[Part]) -> Answer:
        """Join the parts, in row order, into the outputs that were asked for."""
        size = sum([len(output.data) for part in parts for output in part.outputs])
        if size > ANSWER_BYTES_MAX:
            raise too_large(size)
        last = parts[-1].batch
        assert last is not None, "a part that was delivered names its batch"
        timeline = request.timeline
        timeline.returned = self._clock()
        timeline.released = last.released_s
        timeline.preprocess_s, timeline.execute_s = last.preprocess_s, last.execute_s
        timeline.postprocess_s = last.postprocess_s
        outputs = self._outputs(variant, request, parts)
        if len(parts) == 1:
            only = parts[0]
            return Answer(
                variant.version,
                variant.signature,
                outputs,
                request.rows,
                only.failures,
                only.notes,
                tokens=only.tokens,
            )
        failures: dict[int, Failure] = {}
        notes: list[Note] = []
        start = 0
        for part in parts:
            failures.update({start + row: failure for row, failure in part.failures.items()})
            notes.extend(Note(start + note.row, note.name, note.value) for note in part.notes)
            start += part.rows + len(part.failures)
        tokens = sum([part.tokens for part in parts])
        return Answer(variant.version, variant.signature, outputs, request.rows, failures, notes, tokens=tokens)

    def _outputs(self, variant: Variant, request: Request, parts: Sequence[Part]) -> dict[str, Tensor]:
        tensors = parts[0].outputs
        if len(parts) > 1:
            tensors = [joined(field, index, parts) for index, field in enumerate(variant.signature.outputs)]
        outputs = dict(zip(variant.signature.output_names, tensors, strict=True))
        return {name: outputs[name] for name in request.outputs} if request.outputs else outputs

    def _observe(self, variant: Variant, request: Request, parts: Sequence[Part], outcome: str) -> Record:
        """Leave the record from which receipt, metrics and log are made."""
        request.timeline.responded = self._clock()
        loaded = variant.loaded
        record = Record(
            request.id,
            variant.version,
            request.timeline,
            [part.batch for part in parts if part.batch is not None],
            request.rows,
            sum([len(part.failures) for part in parts]),
            [note for part in parts for note in part.notes],
            "" if loaded is not None and loaded.bitwise else "batching changes the last bits of a row's answer",
            outcome,
            tokens=sum([part.tokens for part in parts]),
            trace=request.trace.id if request.trace is not None else "",
        )
        self._receipts.keep(record)
        self._metrics.observe(record)
        variant.answered.observe(record)
        request_ended(record)
        return record
