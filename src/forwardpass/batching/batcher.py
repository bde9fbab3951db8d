"""The one loop between the queue and the workers: worker free → take what waits → send it → scatter what was answered.

One ``_serve`` runs per worker. It asks ``policy`` what to do and does it; it is one of the three borders where every
exception ends in tickets. What waits is sent before the last batch is scattered: the worker runs while its callers are
answered.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence
from itertools import count

from forwardpass.batching.executed import Executed
from forwardpass.batching.executor import Executor, Outcome, WorkerLost
from forwardpass.batching.forecast import Forecast
from forwardpass.batching.learning import Flight, Learning
from forwardpass.batching.losses import Losses
from forwardpass.batching.policy import Wait
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.taking import Taken, Taking
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.timeline import BatchReport

REPORTS_KEPT = 256
_log = logging.getLogger("forwardpass.batching")


class Batcher:
    """Runs until cancelled. ``reports`` holds the last batches, newest last; ``executed`` sums up all."""

    def __init__(self, queue: Queue, forecast: Forecast, quarantine: Quarantine, clock: Clock) -> None:
        self.reports: deque[BatchReport] = deque(maxlen=REPORTS_KEPT)
        self.executed = Executed()
        self._queue = queue
        self._forecast = forecast
        self._taking = Taking(queue, forecast, clock)
        self._learning = Learning(forecast, clock)
        self._quarantine = quarantine
        self._losses = Losses(queue, quarantine, clock)
        self._clock = clock
        self._ids = count(1)

    async def run(self, executors: Sequence[Executor]) -> None:
        async with asyncio.TaskGroup() as loops:
            for executor in executors:
                loops.create_task(self._serve(executor))

    async def _serve(self, executor: Executor) -> None:
        last: Flight | None = None
        async with asyncio.TaskGroup() as behind:
            while True:
                taken = outcome = None
                if last is not None and last.ahead_at is None:
                    outcome = await self._ended(last)
                    taken = None if outcome is None else self._at_once(executor, last)
                    if outcome is not None and taken is None:
                        self._scatter(last, outcome)
                        outcome = None
                sent = self._send(executor, taken or await self._next(executor, last))
                if last is not None and outcome is not None:
                    self._scatter(last, outcome)
                if sent.ahead_at is not None:
                    behind.create_task(self._settle(sent))
                last = sent

    def _send(self, executor: Executor, taken: Taken) -> Flight:
        items, now, rows, requests, queued_s = taken.items, self._clock(), 0, 0, math.inf
        for item in items:
            rows += item.rows
            requests += item.requests
            queued_s = min(queued_s, item.queued_s)
        report = BatchReport(
            next(self._ids), now, rows, requests, taken.reason, executor.index, now - queued_s, self._queue.rows,
            limit=taken.limit, why=taken.why,
        )  # fmt: skip
        try:
            future = executor.submit(items)
        except Exception as error:  # a defect of ours: they are told as of one that comes later
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        return self._learning.sent(items, future, report, together=taken.together)

    def _at_once(self, executor: Executor, last: Flight) -> Taken | None:
        """What can be sent without any wait."""
        if not self._queue.rows or not executor.idle or self._taking.lingers_s(last.report):
            return None
        found = self._taking.look(executor.index, idle=True)
        return found if isinstance(found, Taken) else None

    async def _next(self, executor: Executor, last: Flight | None) -> Taken:
        if not executor.idle:
            await self._vacant(executor, None if last is None else last.ahead_at)
        if last is not None and last.ahead_at is None and self._taking.lingers_s(last.report):
            await self._linger(executor, last)
        idle = False
        while True:
            found = self._taking.look(executor.index, idle=idle)
            if isinstance(found, Taken):
                return found
            if isinstance(found, Wait):
                await self._queue.arrival(None if math.isinf(found.seconds) else found.seconds, executor.index)
            else:
                await self._vacant(executor, None)
                idle = True  # whatever is still in the books: to ask again without waiting would never end

    async def _vacant(self, executor: Executor, ahead_at: float | None) -> None:
        self._forecast.workers.await_worker(executor.index)
        await executor.vacant(ahead_at)
        self._forecast.workers.vacant(executor.index)

    async def _linger(self, executor: Executor, last: Flight) -> None:
        until = self._clock() + self._taking.lingers_s(last.report)
        while self._taking.lingers_s(last.report):
            left_s = until - self._clock()
            if left_s <= 0.0:
                return
            await self._queue.arrival(left_s, executor.index)

    async def _settle(self, flight: Flight) -> None:
        outcome = await self._ended(flight)
        if outcome is not None:
            self._scatter(flight, outcome)

    async def _ended(self, flight: Flight) -> Outcome | None:
        """Until it was answered; None when it was lost, and then all is said. What it took is learnt."""
        items, report, learning = flight.items, flight.report, self._learning
        try:
            try:
                outcome = await flight.future
            finally:
                learning.ended(flight)
            if learning.answered(flight, outcome):
                self.executed.add(report)
            return outcome
        except WorkerLost as lost:
            await self._lost(flight, lost)
        except asyncio.CancelledError:
            for item in items:
                item.ticket.finish(Failed(Code.SHUTTING_DOWN, "the version was unloaded", retry_after_s=1.0))
            raise
        except Exception:  # a defect of ours must cost this batch, never the loop
            self._defect(flight, items)
        self.reports.append(report)
        return None

    async def _lost(self, flight: Flight, lost: WorkerLost) -> None:
        flight.report.outcome = lost.code.value
        try:
            if lost.nobodys:
                self._learning.lost_for_nobody(flight)
            await self._losses.settle(flight.items, lost, flight.busy_s)
        except Exception:
            self._defect(flight, [item for item in flight.items if not item.waiting])

    def _scatter(self, flight: Flight, outcome: Outcome) -> None:
        report, begun = flight.report, outcome.begun
        for item, part in zip(flight.items, outcome.parts, strict=True):
            try:
                item.result = part
                if item.suspect and (part.failure is None or part.failure.code is not Code.DEADLINE_EXCEEDED):
                    self._quarantine.clear(item, outcome.execute_s)
                if part.rows and not item.alone and (begun > item.ticket.deadline or begun > item.left_s):
                    self.executed.overdue += 1
                if part.failure is not None:
                    item.ticket.finish(part.failure)
                else:
                    part.batch = report
                    item.ticket.deliver(item.part, part)
            except Exception:  # a defect of ours must cost this item, never its neighbours
                self._defect(flight, (item,))
        self.reports.append(report)

    def _defect(self, flight: Flight, items: Sequence[Item]) -> None:
        _log.exception("batch %d could not be scattered", flight.report.id)
        flight.report.outcome = Code.INTERNAL.value
        for item in items:
            item.ticket.finish(Failed(Code.INTERNAL, "the batch could not be completed"))
