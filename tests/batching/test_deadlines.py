"""When a request's time is over, also when nobody could look at the clock in time."""

import asyncio
import math
from collections.abc import Sequence

import pytest
from tests.batching.making import ScriptedExecutor, item

from forwardpass.batching.batcher import Batcher
from forwardpass.batching.deadlines import Deadlines
from forwardpass.batching.executor import Outcome, WorkerLost
from forwardpass.batching.forecast import Forecast
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Item, Part, Ticket
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failure
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits


def ended(taken_s: float) -> Code | None:
    """How a request with a second to go ends whose answer is there after so long."""

    async def run() -> Code | None:
        clock = FakeClock()
        deadlines, ticket = Deadlines(clock), Ticket(1, clock() + 1.0)
        waiting = asyncio.create_task(deadlines.ended(ticket))
        await asyncio.sleep(0)
        clock.advance(taken_s)  # before the timer had its turn, as for a process that stood still
        ticket.deliver(0, Part(1, [], {}, ()))
        try:
            await waiting
        except Failure as failure:
            return failure.code
        return None

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("taken_s", "code"), [(0.0, None), (0.999, None), (1.0, Code.DEADLINE_EXCEEDED), (5.0, Code.DEADLINE_EXCEEDED)]
)
def test_an_answer_after_the_deadline_is_none(taken_s: float, code: Code | None) -> None:
    assert ended(taken_s) is code


class LateWorker(ScriptedExecutor):
    """Begins every batch at the same time, whatever the deadlines of its items are."""

    begun = 1002.0

    def _answer(self, items: Sequence[Item], future: "asyncio.Future[Outcome]") -> None:
        parts = [Part(one.rows, [], {}, ()) for one in items]
        future.set_result(Outcome(parts, 0.0, 0.0, 0.0, self.begun))


@pytest.mark.parametrize(
    ("deadline", "left_s", "alone", "counted"),
    [
        (1002.0, math.inf, False, 0),
        (1001.9, math.inf, False, 1),
        (9999.0, 1002.0, False, 0),
        (9999.0, 1001.9, False, 1),
        (1001.9, math.inf, True, 0),  # to find whom to blame it runs for nobody
    ],
)
def test_what_a_worker_began_too_late_is_counted(deadline: float, left_s: float, alone: bool, counted: int) -> None:
    async def run() -> int:
        clock = FakeClock()
        forecast = Forecast(Batch(), 1)
        queue = Queue(Limits(), forecast, clock)
        batcher = Batcher(queue, forecast, Quarantine(60.0, clock), clock)
        running = asyncio.create_task(batcher.run([LateWorker(clock)]))
        one = item(deadline=deadline)
        one.left_s, one.alone = left_s, alone
        queue.put([one])
        await one.ticket.ended
        running.cancel()
        await asyncio.wait((running,))
        return batcher.executed.overdue

    assert asyncio.run(run()) == counted


def test_what_was_ended_for_nobody_runs_no_more_and_is_not_blamed() -> None:
    async def run() -> None:
        clock = FakeClock()
        forecast = Forecast(Batch(), 1)
        queue, quarantine = Queue(Limits(), forecast, clock), Quarantine(60.0, clock)
        worker = ScriptedExecutor(clock, hold=True)
        running = asyncio.create_task(Batcher(queue, forecast, quarantine, clock).run([worker]))
        one = item()
        queue.put([one])
        for _ in range(5):
            await asyncio.sleep(0)
        one.ticket.ended.cancel()
        worker.held.pop()[1].set_exception(WorkerLost(Code.WORKER_HUNG, started=True, nobodys=True))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (queue.items, len(quarantine), worker.batches) == (0, 0, [[b"x"]])
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(run())
