"""Where a request that reached a version is written down: once, when it ends, as its client was told of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from forwardpass.admit.quotas import NOTHING, Admission, Use
from forwardpass.batching.ticket import Part
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failure, Refused
from forwardpass.core.pipeline import Price
from forwardpass.core.request import CacheUse, Note, Request
from forwardpass.core.timeline import BatchReport
from forwardpass.observe.log import request_ended, requests_told
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts, Record, Shared, receipt
from forwardpass.pipeline.charge import ours, price_of
from forwardpass.rollout.variant import Variant

OK = "ok"
NOT_BITWISE = "batching changes the last bits of a row's answer"


def ended_by(error: BaseException) -> Code:
    """How a request ended that this ended."""
    if isinstance(error, Failure):
        return error.code
    return Code.CANCELLED if isinstance(error, asyncio.CancelledError) else Code.INTERNAL


class _Sums(NamedTuple):
    """Over the parts of a request; ``failed`` with the rows that judges failed, ``ours`` of the others by our own fault."""

    rows: int
    failed: int
    ours: int
    tokens: int
    notes: Sequence[Note]
    batches: Sequence[BatchReport]
    outcome: str


@dataclass(frozen=True, slots=True)
class Books:
    """The record of a request is what receipt, metrics, statistics and log are made from."""

    receipts: Receipts
    metrics: Metrics
    clock: Clock

    def open(self, variant: Variant, request: Request, admission: Admission | None = None) -> "Entry":
        return Entry(self, variant, request, admission)

    def close_alike(
        self, entry: "Entry", ids: Sequence[str], received_s: Sequence[float], left: Sequence[bool]
    ) -> None:
        """Of an entry that is that of several requests, of a row each, none of which failed."""
        shared = entry.shared()
        if any(left) or requests_told():
            for id, at_s, gone in zip(ids, received_s, left, strict=True):
                self.enter(shared.of(id, at_s, Code.CANCELLED if gone else OK), entry)
            return
        taken_s = [shared.record.timeline.responded - at_s for at_s in received_s]
        self.receipts.keep_alike(ids, received_s, shared)
        self.metrics.observe_alike(shared.record, taken_s)
        entry.variant.answered.observe_alike(shared.record, taken_s)

    def enter(self, record: Record, entry: "Entry") -> None:
        """A record that is whole."""
        if not entry.judges:  # what a judge was asked is in the receipt of the request that it judges
            self.receipts.keep(record)
        self.metrics.observe(record)
        entry.variant.answered.observe(record)
        request_ended(record)


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
        "begun_rows",
        "cache",
        "judged_failures",
        "judged_notes",
        "parts",
        "variant",
    )

    def __init__(self, books: Books, variant: Variant, request: Request, admission: Admission | None) -> None:
        self.parts: Sequence[Part] = ()
        self.begun_rows = 0
        self.cache: CacheUse | None = None
        self.judged_failures: Mapping[int, Failure] = {}
        self.judged_notes: Sequence[Note] = ()
        self._admission = admission
        self._books = books
        self.variant = variant
        self._request = request

    @property
    def judges(self) -> bool:
        return bool(self._request.judging)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def close(self, error: BaseException | None) -> None:
        """The end of the request: what ended it, None where it was answered."""
        sums = self._sums()
        use = self._use(error, sums)
        if self._admission is not None:
            self._admission.settle(use)
        record = self._record(sums.outcome if error is None else ended_by(error), use.cost, sums)
        self._books.enter(record, self)

    def shared(self) -> Shared:
        """What the requests have in common that this was opened for together."""
        one = self._sums()._replace(rows=1)
        record = self._record(OK, self._use(None, one).cost, one)
        record.rows = 1
        return Shared(record)

    def receipt(self) -> dict[str, Any]:
        """For the answer itself, so before that is encoded."""
        sums = self._sums()
        return receipt(self._record(sums.outcome, self._use(None, sums).cost, sums))

    def _sums(self) -> "_Sums":
        parts = self.parts
        if len(parts) == 1 and not self.judged_failures and not self.judged_notes:
            (part,) = parts
            if not part.failures and not part.notes and part.batch is not None:
                return _Sums(part.rows, 0, 0, part.tokens, (), (part.batch,), OK)
        failures = [part.failures for part in parts if part.failures]
        rows = sum([part.rows for part in parts])
        failed = sum(map(len, failures)) + len(self.judged_failures)
        outcome = OK
        if self.judged_failures:
            if failed >= self._request.rows:
                outcome = self.judged_failures[min(self.judged_failures)].code
        elif failures and not rows:
            outcome = failures[0][min(failures[0])].code
        return _Sums(
            rows,
            failed,
            sum([ours(each.values()) for each in failures]),
            sum([part.tokens for part in parts]),
            [*self.judged_notes, *[note for part in parts for note in part.notes]],
            [part.batch for part in parts if part.batch is not None],
            outcome,
        )

    def _record(self, outcome: str, cost: float, sums: "_Sums") -> Record:
        request, loaded = self._request, self.variant.loaded
        request.timeline.responded = self._books.clock()
        caller = request.caller
        return Record(
            request.id,
            self.variant.version,
            request.timeline,
            sums.batches,
            request.rows,
            sums.failed,
            sums.notes,
            "" if loaded is not None and loaded.bitwise else NOT_BITWISE,
            outcome,
            tokens=sums.tokens,
            trace=request.trace.id if request.trace is not None else "",
            tenant=caller.tenant,
            key=caller.id,
            cost=cost,
            cache=self.cache,
        )

    def _use(self, error: BaseException | None, sums: "_Sums") -> Use:
        """Of the rows that workers made something of, those that did not fail by our fault. Nothing of a request that
        did, and of one that a judge was asked: the request that is judged pays its own pipeline's price."""
        price = self.variant.version.definition.price
        if self._request.judging or not (error is None or isinstance(error, Refused | asyncio.CancelledError)):
            return NOTHING
        if error is not None and not self.parts:
            return self._begun(price)
        rows = sums.rows + sums.failed - len(self.judged_failures) - sums.ours
        tokens = sums.tokens if rows else 0
        return Use(rows, tokens, price_of(price, rows, tokens))

    def _begun(self, price: Price) -> Use:
        """Of a request that its caller left: how many tokens there were nobody has said, so as many as are reserved."""
        rows = self.begun_rows
        if not rows or self._admission is None:
            return Use(rows, 0, price_of(price, rows, 0))
        tokens = self._admission.reserved.tokens * rows / max(1, self._request.rows)
        return Use(rows, tokens, price_of(price, rows, tokens))
