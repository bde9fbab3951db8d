"""Where a request that reached a version is written down: once, when it ends, as its client was told of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from forwardpass.admit.quotas import NOTHING, Admission, Use
from forwardpass.batching.ticket import Part
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failure, Refused
from forwardpass.core.pipeline import Price
from forwardpass.core.request import Note, Request
from forwardpass.observe.log import request_ended
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts, Record, receipt
from forwardpass.pipeline.charge import ours, price_of
from forwardpass.rollout.variant import Variant

OK = "ok"


def ended_by(error: BaseException) -> Code:
    """How a request ended that this ended."""
    if isinstance(error, Failure):
        return error.code
    return Code.CANCELLED if isinstance(error, asyncio.CancelledError) else Code.INTERNAL


@dataclass(frozen=True, slots=True)
class Books:
    """The record of a request is what receipt, metrics, statistics and log are made from."""

    receipts: Receipts
    metrics: Metrics
    clock: Clock

    def open(self, variant: Variant, request: Request, admission: Admission | None = None) -> "Entry":
        return Entry(self, variant, request, admission)


class Entry:
    """One request, from before it is admitted until its answer is encoded: the end of the block is its end.

    ``parts`` are what workers made of it, ``judged_…`` what the judges of its guards said. Its outcome is what the block raised; "ok" where it raised nothing, or the
    first row's failure where every row has failed. What it comes to is settled with ``admission`` and written down, the
    same for both; ``begun_rows`` are those that a worker was given of a request without an answer.
    """

    __slots__ = (
        "_admission",
        "_books",
        "_request",
        "_variant",
        "begun_rows",
        "judged_failures",
        "judged_notes",
        "parts",
    )

    def __init__(self, books: Books, variant: Variant, request: Request, admission: Admission | None) -> None:
        self.parts: Sequence[Part] = ()
        self.begun_rows = 0
        self.judged_failures: Mapping[int, Failure] = {}
        self.judged_notes: Sequence[Note] = ()
        self._admission = admission
        self._books = books
        self._variant = variant
        self._request = request

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        use = self._use(error)
        if self._admission is not None:
            self._admission.settle(use)
        record = self._record(self._outcome() if error is None else ended_by(error), use.cost)
        if not self._request.judging:  # what a judge was asked is in the receipt of the request that it judges
            self._books.receipts.keep(record)
        self._books.metrics.observe(record)
        self._variant.answered.observe(record)
        request_ended(record)

    def receipt(self) -> dict[str, Any]:
        """For the answer itself, so before that is encoded."""
        return receipt(self._record(self._outcome(), self._use(None).cost))

    def _outcome(self) -> str:
        rows = sum([part.rows for part in self.parts])
        if self.judged_failures:
            failed = len(self.judged_failures) + sum([len(part.failures) for part in self.parts])
            return self.judged_failures[min(self.judged_failures)].code if failed >= self._request.rows else OK
        failures = [part.failures[min(part.failures)] for part in self.parts if part.failures]
        return failures[0].code if failures and not rows else OK

    def _record(self, outcome: str, cost: float) -> Record:
        request, parts, loaded = self._request, self.parts, self._variant.loaded
        request.timeline.responded = self._books.clock()
        return Record(
            request.id,
            self._variant.version,
            request.timeline,
            [part.batch for part in parts if part.batch is not None],
            request.rows,
            sum([len(part.failures) for part in parts]) + len(self.judged_failures),
            [*self.judged_notes, *[note for part in parts for note in part.notes]],
            "" if loaded is not None and loaded.bitwise else "batching changes the last bits of a row's answer",
            outcome,
            tokens=sum([part.tokens for part in parts]),
            trace=request.trace.id if request.trace is not None else "",
            tenant=request.tenant,
            key=request.caller.id,
            cost=cost,
        )

    def _use(self, error: BaseException | None) -> Use:
        """Of the rows that workers made something of, those that did not fail by our fault. Nothing of a request that
        did, and of one that a judge was asked: the request that is judged pays its own pipeline's price."""
        parts, price = self.parts, self._variant.version.definition.price
        if self._request.judging or not (error is None or isinstance(error, Refused | asyncio.CancelledError)):
            return NOTHING
        if error is not None and not parts:
            return self._begun(price)
        rows = sum([part.rows + len(part.failures) - ours(part.failures.values()) for part in parts])
        tokens = sum([part.tokens for part in parts]) if rows else 0
        return Use(rows, tokens, price_of(price, rows, tokens))

    def _begun(self, price: Price) -> Use:
        """Of a request that its caller left: how many tokens there were nobody has said, so as many as are reserved."""
        rows = self.begun_rows
        if not rows or self._admission is None:
            return Use(rows, 0, price_of(price, rows, 0))
        tokens = self._admission.reserved.tokens * rows / max(1, self._request.rows)
        return Use(rows, tokens, price_of(price, rows, tokens))
