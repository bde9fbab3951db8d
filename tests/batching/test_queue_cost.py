"""What the queue itself costs: to say no is cheap however much waits and whoever asks (FAULTS R13)."""

import asyncio
import time

import pytest
from tests.batching.making import item

from forwardpass.batching.forecast import Forecast
from forwardpass.batching.queue import Queue
from forwardpass.core.errors import Failed
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits

pytestmark = pytest.mark.alone

WAITING = 4000
TIMES = 200
REFUSAL_MAX_S = 0.001


def deep(tenants: int, waiting: int = WAITING) -> Queue:
    """A batch takes 5 ms at least: whoever has less time is refused."""
    forecast = Forecast(Batch(rows_max=8))
    for _ in range(2):
        forecast.model.observe(8.0, 0.04)
    queue = Queue(Limits(), forecast, lambda: 1000.0)
    for number in range(waiting):
        queue.put([item(tenant=f"tenant-{number % tenants}", deadline=1030.0 + number / 1000)])
    return queue


def refusal_s(queue: Queue, tenants: int) -> float:
    """The CPU time that one refusal takes."""
    asked = [item(tenant=f"tenant-{number % tenants}", deadline=1000.004) for number in range(TIMES)]
    before = time.process_time()
    for one in asked:
        try:
            queue.put([one])
        except Failed:
            continue
        raise AssertionError("it could wait")
    return (time.process_time() - before) / TIMES


@pytest.mark.parametrize("tenants", [1, 100, 1000])
def test_a_refusal_takes_less_than_a_millisecond(tenants: int) -> None:
    async def run() -> float:
        return min(refusal_s(deep(tenants), tenants) for _ in range(3))

    assert asyncio.run(run()) <= REFUSAL_MAX_S


def test_to_leave_a_deep_queue_costs_no_more_than_to_leave_a_short_one() -> None:
    async def run(waiting: int) -> float:
        times = []
        for _ in range(3):
            queue = deep(1, waiting)
            leaving = list(queue.waiting())[:200]
            before = time.process_time()
            for one in leaving:
                queue.discard([one])
            times.append(time.process_time() - before)
        return min(times)

    assert asyncio.run(run(WAITING)) <= 5 * asyncio.run(run(250)) + 0.002
