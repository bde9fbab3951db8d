"""Where a request that reached a version is written down: once, when it ends, as its client was told of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from forwardpass.batching.ticket import Part
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure
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

    def open(self, variant: Variant, request: Request) -> "Entry":
        return Entry(self, variant, request)


class Entry:
    """One request, from before it is admitted until its answer is encoded: the end of the block is its end.

    ``parts`` are what workers made of it, ``judged_…`` what the judges of its guards said. Its outcome is what the block raised; "ok" where it raised nothing, or the
    first row's failure where every row has failed.
    """

    __slots__ = ("_books", "_request", "_variant", "judged_failures", "judged_notes", "parts")

    def __init__(self, books: Books, variant: Variant, request: Request) -> None:
        self.parts: Sequence[Part] = ()
        self.judged_failures: Mapping[int, Failure] = {}
        self.judged_notes: Sequence[Note] = ()
        self._books = books
        self._variant = variant
        self._request = request

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        record = self._record(self._outcome() if error is None else ended_by(error))
        if isinstance(error, Failed):
            record.cost = 0.0
        self._books.receipts.keep(record)
        self._books.metrics.observe(record)
        self._variant.answered.observe(record)
        request_ended(record)

    def receipt(self) -> dict[str, Any]:
        """For the answer itself, so before that is encoded."""
        return receipt(self._record(self._outcome()))

    def _outcome(self) -> str:
        rows = sum([part.rows for part in self.parts])
        if self.judged_failures:
            failed = len(self.judged_failures) + sum([len(part.failures) for part in self.parts])
            return self.judged_failures[min(self.judged_failures)].code if failed >= self._request.rows else OK
        failures = [part.failures[min(part.failures)] for part in self.parts if part.failures]
        return failures[0].code if failures and not rows else OK

    def _record(self, outcome: str) -> Record:
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
            cost=self._cost(),
        )

    def _cost(self) -> float:
        """By the price of the pipeline, of the rows that did not fail by our fault; nothing if there is none."""
        parts = self.parts
        rows = sum([part.rows + len(part.failures) - ours(part.failures.values()) for part in parts])
        if not rows:
            return 0.0
        return price_of(self._variant.version.definition.price, rows, sum([part.tokens for part in parts]))
