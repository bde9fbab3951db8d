"""Wake-ups: none is lost, and nobody is woken for what only another worker may take."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from tests.batching.making import item

from forwardpass.batching.forecast import Forecast
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Held
from forwardpass.core.clock import FakeClock
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Bench:
    """A queue and a task that waits for each of its workers; ``woken`` names them as they wake."""

    def __init__(self, workers: int) -> None:
        self.queue = Queue(Limits(), Forecast(Batch()), FakeClock())
        self.woken: list[int] = []
        self.tasks = [asyncio.create_task(self._wait(worker)) for worker in range(workers)]

    async def _wait(self, worker: int) -> None:
        while True:
            await self.queue.arrival(None, worker)
            self.woken.append(worker)

    def put(self, worker: int | None) -> None:
        one = item()
        if worker is not None:
            one.held, one.key = Held(worker, 1, False, False), (worker, None)
        self.queue.put([one])

    async def turns(self) -> list[int]:
        """Who woke meanwhile; a circle of wake-ups would go on and show."""
        self.woken = []
        for _ in range(50):
            await asyncio.sleep(0)
        return self.woken

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()


@in_loop
async def test_what_is_pinned_wakes_its_worker_alone_and_once() -> None:
    bench = Bench(3)
    await bench.turns()
    bench.put(1)
    assert await bench.turns() == [1]
    bench.put(1)
    assert await bench.turns() == [1]
    bench.close()


@in_loop
async def test_what_is_pinned_to_a_busy_worker_keeps_nobody_from_being_woken_for_the_rest() -> None:
    bench = Bench(2)
    bench.put(7)
    await bench.turns()
    bench.put(None)
    assert sorted(await bench.turns()) == [0, 1]  # each looks once: nobody has taken it
    bench.close()


@in_loop
async def test_a_worker_that_is_woken_and_ends_passes_it_on() -> None:
    bench = Bench(2)
    await bench.turns()
    bench.put(None)
    bench.tasks[0].cancel()
    assert await bench.turns() == [1]
    bench.close()


@in_loop
async def test_a_waiter_whose_time_is_over_swallows_no_wake_up() -> None:
    bench = Bench(1)
    await asyncio.wait_for(bench.queue.arrival(0.001, 0), 5.0)
    bench.woken = []
    bench.put(0)
    assert await bench.turns() == [0]
    bench.close()
