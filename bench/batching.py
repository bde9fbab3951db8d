"""What batching itself costs, decides and saves: ``python bench/batching.py``, or with ``--rounds N`` for quieter figures.

No model and no socket. Calls and padding are counted, and waits are of virtual time, so these figures are the same each
time; microseconds are of this machine and this hour. One line for each figure with its bar; the summary comes last.
"""

import argparse
import asyncio
import cProfile
import pstats
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import uvloop

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import Figure, say, summarise  # noqa: E402
from tests.batching.virtual import Client, Machine, Place, in_virtual_time  # noqa: E402

from forwardpass.batching.batcher import Batcher  # noqa: E402
from forwardpass.batching.executor import Outcome  # noqa: E402
from forwardpass.batching.forecast import Forecast  # noqa: E402
from forwardpass.batching.limit import ROWS_MOST  # noqa: E402
from forwardpass.batching.quarantine import Quarantine  # noqa: E402
from forwardpass.batching.queue import Queue  # noqa: E402
from forwardpass.batching.ticket import Item, Part, Ticket  # noqa: E402
from forwardpass.core.clock import monotonic_s  # noqa: E402
from forwardpass.core.pipeline import Batch  # noqa: E402
from forwardpass.core.pipeline import Queue as Limits  # noqa: E402

LARGE = 32
BATCHES = 500
ANSWERS = 20_000


class Echo:
    """A worker that has answered as soon as the event loop looks again."""

    index = 0

    def __init__(self) -> None:
        self._running: asyncio.Future[Outcome] | None = None

    @property
    def idle(self) -> bool:
        return self._running is None

    async def vacant(self, ahead_at: float | None) -> None:
        assert self.idle, "it is asked only after it has answered"

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
        loop = asyncio.get_running_loop()
        self._running = loop.create_future()
        loop.call_soon(self._answer, items)
        return self._running

    def _answer(self, items: Sequence[Item]) -> None:
        future, self._running = self._running, None
        assert future is not None
        parts = [Part(item.rows, [], {}, ()) for item in items]
        future.set_result(Outcome(parts, 1e-5, 1e-4, 1e-5, monotonic_s()))


async def handed_over(size: int, batches: int, forecast: Forecast) -> float:
    """Seconds of CPU for each batch of so many items, from the queue to the tickets and back."""
    queue = Queue(Limits(), forecast, monotonic_s)
    batcher = Batcher(queue, forecast, Quarantine(60.0, monotonic_s), monotonic_s)
    running = asyncio.create_task(batcher.run([Echo()]))
    spent = 0
    for _ in range(batches):
        now = monotonic_s()
        items = [Item(Ticket(1, now + 30.0), 0, [b"x" * 120], [(30,)], 1, 1.0, 120, None, 5, now) for _ in range(size)]
        ended = items[-1].ticket.ended
        begun = time.process_time_ns()
        for item in items:
            queue.put([item])
        await ended
        spent += time.process_time_ns() - begun
    running.cancel()
    await asyncio.wait((running,))
    return spent / batches / 1e9


def calls(size: int, forecast: Forecast) -> float:
    """Of Python and of what it calls, for each batch of so many items; made and awaited by the benchmark among them."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        profile = cProfile.Profile()
        profile.enable()
        runner.run(handed_over(size, BATCHES, forecast))
        profile.disable()
    return float(pstats.Stats(profile).total_calls) / BATCHES  # type: ignore[attr-defined]  # the stubs leave it out


def hand_off(rounds: int) -> list[Figure]:
    """A batch beside its items: the line through batches of 1 and of 32 at none; the limit is learnt, as by default."""
    forecast = Forecast(Batch())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(handed_over(LARGE, 200, forecast))
        assert forecast.limits.of(None).rows == LARGE, "a batch takes all of them"
        pairs = [[runner.run(handed_over(size, BATCHES, forecast)) for size in (1, LARGE)] for _ in range(rounds)]
    items_us = [1e6 * (large - small) / (LARGE - 1) for small, large in pairs]
    batches_us = [1e6 * small - item for (small, _), item in zip(pairs, items_us, strict=True)]
    small, large = calls(1, forecast), calls(LARGE, forecast)
    each = (large - small) / (LARGE - 1)
    spread = f"{min(batches_us):.0f} to {max(batches_us):.0f}; an item beside it {median(items_us):.1f} us"
    return [
        say(
            Figure(
                "hand-off of a batch, beside its items, CPU of the front", median(batches_us), "us", 40.0, True, spread
            )
        ),
        say(Figure("the same, calls", small - each, "calls", 150.0, True, f"an item {each:.0f} calls")),
    ]


def closed(machines: Sequence[Machine], batch: Batch, callers: int) -> tuple[float, int]:
    """Callers that ask again as soon as they are answered, ANSWERS times: rows a second, and the last limit."""

    async def run() -> tuple[float, int]:
        place = Place(machines, batch, Limits())
        running = asyncio.create_task(place.batcher.run(place.machines))
        client, begun_s, answered = Client(1.0, 1.0, deadline_s=300.0), place.clock(), 0

        async def ask() -> None:
            nonlocal answered
            while answered < ANSWERS:
                await place.answer(client)
                answered += 1

        await asyncio.gather(*[ask() for _ in range(callers)])
        per_s = answered / (place.clock() - begun_s)
        running.cancel()
        await asyncio.wait((running,))
        return per_s, place.batcher.reports[-1].limit

    return in_virtual_time(run())


def opened(fixed_s: float, per_row_s: float, batch: Batch, per_s: float) -> float:
    """The median time to an answer of callers that come at random, for 60 s, the first third left out."""

    async def run() -> float:
        place = Place([Machine(0, fixed_s, per_row_s, noise=0.1)], batch, Limits())
        client = Client(per_s, 60.0, deadline_s=30.0)
        await place.load([client])
        return median([seconds for at, _, seconds in client.outcomes if at > 20.0])

    return in_virtual_time(run())


def limits() -> list[Figure]:
    """Models that gain from company, and one that does not."""
    figures = []
    for name, fixed_s, per_row_s in (("picture", 0.0005, 0.010), ("text", 0.004, 0.001), ("table", 0.0002, 0.000005)):
        machine = Machine(0, fixed_s, per_row_s, noise=0.1)
        per_s, limit = closed([machine], Batch(), 256)
        most = ROWS_MOST / (fixed_s + per_row_s * ROWS_MOST)
        title = f"{name}: rows done by the learnt limit / in batches of 128, 256 callers"
        figures.append(say(Figure(title, per_s / most, "", 0.9, False, f"the limit is {limit}")))
    ours, large = (opened(0.0005, 0.010, batch, 75.0) for batch in (Batch(), Batch(rows_max=32)))
    spread = f"{1000 * ours:.0f} and {1000 * large:.0f} ms, at four fifths of what can be done"
    figures.append(say(Figure("picture: median wait by the learnt limit / by 32", ours / large, "", 0.9, True, spread)))
    return figures


def two_workers() -> list[Figure]:
    """Sixteen callers, 10 ms a row: each worker takes its share of what waits."""
    one, two = (
        closed([Machine(index, 0.001, 0.010) for index in range(count)], Batch(rows_max=32), 16)[0] for count in (1, 2)
    )
    return [say(Figure("two workers / one, 16 callers", two / one, "", 1.9, False, f"{one:.0f} and {two:.0f} rows/s"))]


def padding() -> list[Figure]:
    """512 texts of 33 to 64 bytes, which share a key, in batches of 16: filled up as they wait and in their order."""
    chance = random.Random(3)
    queue = Queue(Limits(), Forecast(Batch(rows_max=16)), monotonic_s)
    lengths = [chance.randint(33, 64) for _ in range(512)]
    for length in lengths:
        ticket = Ticket(1, monotonic_s() + 1000.0)
        queue.put([Item(ticket, 0, [b"x" * length], [()], 1, 1.0, length, "text", 5, 0.0, length=length)])
    batches = []
    while queue.rows:
        batches.append([item.length for item in queue.take("text", 16, None, together=True)])
    ours, real = sum(max(batch) * len(batch) for batch in batches), sum(lengths)
    in_order = sum(16 * max(lengths[start : start + 16]) for start in range(0, 512, 16))
    spread = f"{100 * (ours / real - 1):.0f} % of padding, in their order {100 * (in_order / real - 1):.0f} %"
    return [
        say(
            Figure(
                "padding of mixed lengths / in their order", (ours - real) / (in_order - real), "", 0.6, True, spread
            )
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of what is timed; medians are reported")
    rounds = parser.parse_args().rounds
    summarise([*hand_off(rounds), *limits(), *two_workers(), *padding()])


if __name__ == "__main__":
    main()
