"""The one loop between the queue and the workers: worker free → take what waits → execute → scatter.

One ``_serve`` runs per worker. It asks ``policy`` what to do and does it; it is one of the three borders where every
exception ends in tickets.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Protocol

import msgspec

from forwardpass.batching.cost import CostModel
from forwardpass.batching.executed import Executed
from forwardpass.batching.policy import Wait, linger_s, prefetch_at, release
from forwardpass.batching.probes import Probes
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.sequences import lost as lost_sequence
from forwardpass.batching.ticket import Item, Part
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Batch
from forwardpass.core.timeline import BatchReport

REPORTS_KEPT = 256
_log = logging.getLogger("forwardpass.batching")


class Outcome(msgspec.Struct):
    """What a worker sent back for a batch: one part per item, in order, and its own durations."""

    parts: Sequence[Part]
    preprocess_s: float
    execute_s: float
    postprocess_s: float
    begun: float = 0.0  # when the model was given the batch, on the clock


class WorkerLost(Exception):
    """The worker died with the batch; ``started`` is False when it never got it, ``code`` says how it went.

    ``nobodys``: nobody waited for the batch any more, and its worker was ended for that.
    """

    def __init__(self, code: Code, *, started: bool, nobodys: bool = False) -> None:
        super().__init__(code)
        self.code = code
        self.started = started
        self.nobodys = nobodys


class Executor(Protocol):
    """A worker as the batcher sees it: takes one batch, or a second one ahead when told when."""

    index: int

    async def vacant(self, ahead_at: float | None) -> None:
        """Until it can take a batch: when idle, or from ``ahead_at`` on with one batch running."""

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
        """Send a batch now. The future fails with WorkerLost, never otherwise."""


class Batcher:
    """Runs until cancelled. ``reports`` holds the last batches, newest last."""

    def __init__(self, queue: Queue, batch: Batch, model: CostModel, quarantine: Quarantine, clock: Clock) -> None:
        self.batch = batch
        self.reports: deque[BatchReport] = deque(maxlen=REPORTS_KEPT)
        self.executed = Executed()
        self._queue = queue
        self._model = model
        self._preprocess = CostModel(batch.rows_max)
        self._quarantine = quarantine
        self._probes = Probes(queue, clock)
        self._clock = clock
        self._ids = count(1)

    async def run(self, executors: Sequence[Executor]) -> None:
        async with asyncio.TaskGroup() as loops:
            for executor in executors:
                loops.create_task(self._serve(executor))

    async def _serve(self, executor: Executor) -> None:
        ahead_at: float | None = None
        last_rows = 0
        async with asyncio.TaskGroup() as running:
            while True:
                await executor.vacant(ahead_at)
                if ahead_at is None:
                    await self._linger(executor.index, last_rows)
                items, reason = await self._next(executor)
                now = self._clock()
                rows = sum(item.rows for item in items)
                waited_s = now - min(item.queued_s for item in items)
                report = BatchReport(
                    next(self._ids), now, rows, len(items), reason, executor.index, waited_s, self._queue.rows
                )
                running.create_task(self._settle(items, executor.submit(items), report))
                ahead_at = prefetch_at(now, self._model.predict_s(rows), self._preprocess.predict_s(rows))
                last_rows = rows
                if items[0].alone:
                    ahead_at = None

    async def _linger(self, worker: int, last_rows: int) -> None:
        until = self._clock() + linger_s(self._queue.rows, last_rows, self._model.predict_s(last_rows))
        while linger_s(self._queue.rows, last_rows, self._model.predict_s(last_rows)):
            left_s = until - self._clock()
            if left_s <= 0.0:
                return
            await self._queue.arrival(left_s, worker)

    async def _next(self, executor: Executor) -> tuple[list[Item], str]:
        idle = False
        while True:
            waiting = self._queue.view(self._clock(), executor.index)
            if waiting is None:
                await self._queue.arrival(None, executor.index)
                continue
            if waiting.alone and not idle:  # whoever shares its process would share the blame for its death
                await executor.vacant(None)
                idle = True
                continue
            decision = release(waiting, self.batch)
            if isinstance(decision, Wait):
                await self._queue.arrival(decision.seconds, executor.index)
                continue
            together = self.batch.enabled and not waiting.alone
            items = self._queue.take(waiting.key, self.batch.rows_max, self.batch.cost_max, together=together)
            if items:
                return items, decision.reason

    async def _settle(self, items: list[Item], future: "asyncio.Future[Outcome]", report: BatchReport) -> None:
        try:
            outcome = await future
            self._learn(outcome, report)
            self._scatter(items, outcome, report)
        except WorkerLost as lost:
            self._after_loss(items, lost)
            report.outcome = lost.code.value
        except asyncio.CancelledError:
            for item in items:
                item.ticket.finish(Failed(Code.SHUTTING_DOWN, "the version was unloaded", retry_after_s=1.0))
            raise
        except Exception:  # a defect of ours must cost this batch, never the loop
            _log.exception("batch %d could not be scattered", report.id)
            report.outcome = Code.INTERNAL.value
            for item in items:
                item.ticket.finish(Failed(Code.INTERNAL, "the batch could not be completed"))
        self.reports.append(report)

    def _learn(self, outcome: Outcome, report: BatchReport) -> None:
        report.preprocess_s = outcome.preprocess_s
        report.execute_s = outcome.execute_s
        report.postprocess_s = outcome.postprocess_s
        self._model.observe(report.rows, self._clock() - report.released_s)
        self._preprocess.observe(report.rows, outcome.preprocess_s)
        if any(part.rows for part in outcome.parts):  # V2 counts executions that succeeded
            self.executed.add(report)

    def _scatter(self, items: list[Item], outcome: Outcome, report: BatchReport) -> None:
        for item, part in zip(items, outcome.parts, strict=True):
            item.result = part
            if part.rows and not item.alone and outcome.begun > min(item.ticket.deadline, item.left_s):
                self.executed.overdue += 1
            if part.failure is not None:
                item.ticket.finish(part.failure)
            else:
                part.batch = report
                item.ticket.deliver(item.part, part)

    def _after_loss(self, items: list[Item], lost: WorkerLost) -> None:
        """Each member runs again alone on a fresh worker; the one that is lost twice is the one to blame.

        What one continued died too: its caller is told so. Its input runs again for nobody, as does that of a caller who
        has left, to find the one to blame.
        """
        if lost.nobodys:
            return
        for item in items:
            if not lost.started:
                item.taken = False
                self._queue.put_back([item])
                continue
            item.deaths += 1
            if item.deaths > 1:
                self._quarantine.add(item.columns, item.shapes, item.rows)
                self._queue.discard(self._quarantine.end(item, self._queue.waiting()), probes=True)
                item.ticket.finish(Failed(lost.code, "the model's process died while it ran this request"))
                continue
            if item.held is not None and not item.held.start:
                item.ticket.finish(lost_sequence())
            self._probes.add(item)
