"""The one loop between the queue and the workers: worker free → take what waits → execute → scatter.

One ``_serve`` runs per worker. It asks ``policy`` what to do and does it; it is one of the three borders where every
exception ends in tickets.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from itertools import count

from forwardpass.batching.cost import CostModel
from forwardpass.batching.executed import Executed
from forwardpass.batching.executor import Executor, Outcome, WorkerLost
from forwardpass.batching.forecast import Forecast, Underway
from forwardpass.batching.policy import Wait, linger_s, prefetch_at, release
from forwardpass.batching.probes import Probes
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.sequences import lost as lost_sequence
from forwardpass.batching.spent import Spent
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.timeline import BatchReport

REPORTS_KEPT = 256
_log = logging.getLogger("forwardpass.batching")


class Batcher:
    """Runs until cancelled. ``reports`` holds the last batches, newest last."""

    def __init__(self, queue: Queue, forecast: Forecast, quarantine: Quarantine, clock: Clock) -> None:
        self.reports: deque[BatchReport] = deque(maxlen=REPORTS_KEPT)
        self.executed = Executed()
        self._queue = queue
        self._forecast = forecast
        self._preprocess = CostModel()
        self._quarantine = quarantine
        self._probes = Probes(queue, clock)
        self._clock = clock
        self._ids = count(1)
        self._spent = Spent()

    async def run(self, executors: Sequence[Executor]) -> None:
        async with asyncio.TaskGroup() as loops:
            for executor in executors:
                loops.create_task(self._serve(executor))

    async def _serve(self, executor: Executor) -> None:
        ahead_at: float | None = None
        last_rows, last_s = 0, 0.0
        async with asyncio.TaskGroup() as running:
            while True:
                await self._vacant(executor, ahead_at)
                if ahead_at is None:
                    await self._linger(executor.index, last_rows, last_s)
                items, reason = await self._next(executor)
                now = self._clock()
                last_rows, cost = sum(item.rows for item in items), sum(item.cost for item in items)
                waited_s = now - min(item.queued_s for item in items)
                report = BatchReport(
                    next(self._ids), now, last_rows, len(items), reason, executor.index, waited_s, self._queue.rows
                )
                last_s, starts_s = self._forecast.model.predict_s(cost), now + self._left_s(executor)
                underway = self._forecast.workers.begin(executor.index, now, last_s)
                running.create_task(self._settle(items, executor.submit(items), report, underway))
                ahead_at = prefetch_at(starts_s, last_s, self._preprocess.predict_s(cost))
                if items[0].alone or items[0].suspect:
                    ahead_at = None

    async def _vacant(self, executor: Executor, ahead_at: float | None) -> None:
        self._forecast.workers.await_worker(executor.index)
        await executor.vacant(ahead_at)
        self._forecast.workers.vacant(executor.index)

    def _left_s(self, executor: Executor) -> float:
        return self._forecast.workers.left_s(executor.index, self._clock())

    async def _linger(self, worker: int, last_rows: int, last_s: float) -> None:
        until = self._clock() + linger_s(self._queue.rows, last_rows, last_s)
        while linger_s(self._queue.rows, last_rows, last_s):
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
                await self._vacant(executor, None)
                idle = True
                continue
            batch = self._forecast.batch
            decision = release(waiting, batch)
            if isinstance(decision, Wait):
                await self._queue.arrival(decision.seconds, executor.index)
                continue
            together = batch.enabled and not waiting.alone
            starts_in_s = 0.0 if idle else self._left_s(executor)
            items = self._queue.take(
                waiting.key, batch.rows_max, batch.cost_max, together=together, starts_in_s=starts_in_s
            )
            if items:
                return items, decision.reason
            if starts_in_s > 0.0:  # all would be over before this worker has ended what it is at
                await self._vacant(executor, None)
                idle = True  # whatever is still in the books: to ask again without waiting would never end

    async def _settle(
        self, items: list[Item], future: "asyncio.Future[Outcome]", report: BatchReport, underway: Underway
    ) -> None:
        try:
            try:
                outcome = await future
            finally:
                busy_s = self._forecast.workers.end(underway, self._clock())
            begun, before_s = outcome.begun, outcome.preprocess_s
            ended_s = begun + outcome.execute_s + outcome.postprocess_s
            spent_s = self._spent.seconds(
                underway.worker, begun, ended_s, before_s, sent_s=underway.sent_s, now=self._clock(), seen_s=busy_s
            )
            self._learn(items, outcome, report, spent_s)
            self._scatter(items, outcome, report)
        except WorkerLost as lost:
            if lost.nobodys:
                self._forecast.model.observe(sum([item.cost for item in items]), busy_s)
                await self._quarantine.suspect_all(items, busy_s)
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

    def _learn(self, items: list[Item], outcome: Outcome, report: BatchReport, busy_s: float) -> None:
        report.preprocess_s = outcome.preprocess_s
        report.execute_s = outcome.execute_s
        report.postprocess_s = outcome.postprocess_s
        cost = sum([item.cost for item, part in zip(items, outcome.parts, strict=True) if part.failure is None])
        if any(part.rows for part in outcome.parts):  # one that failed says little of one that does not
            self._forecast.model.observe(cost, busy_s)
            self._preprocess.observe(cost, outcome.preprocess_s)
            self.executed.add(report)  # V2 counts executions that succeeded

    def _scatter(self, items: list[Item], outcome: Outcome, report: BatchReport) -> None:
        for item, part in zip(items, outcome.parts, strict=True):
            item.result = part
            if item.suspect and (part.failure is None or part.failure.code is not Code.DEADLINE_EXCEEDED):
                self._quarantine.clear(item, outcome.execute_s)
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
            if item.deaths > 1 or item.suspect:
                self._quarantine.add(item.columns, item.shapes, item.rows)
                self._queue.discard(self._quarantine.end(item, self._queue.waiting()), probes=True)
                item.ticket.finish(Failed(lost.code, "the model's process died while it ran this request"))
                continue
            if item.held is not None and not item.held.start:
                item.ticket.finish(lost_sequence())
            self._probes.add(item)
