import asyncio

from tests.batching.making import item

from forwardpass.batching.forecast import Forecast
from forwardpass.batching.probes import PROBE_S, Probes
from forwardpass.batching.queue import Queue
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits


def test_what_waits_for_a_worker_that_never_comes_back_is_forgotten_in_the_end() -> None:
    async def run() -> None:
        clock = FakeClock()
        queue = Queue(Limits(), Forecast(Batch()), clock)
        probes = Probes(queue, clock)
        left, asked = item(deadline=clock() + 1.0), item(deadline=clock() + 2 * PROBE_S)
        for one in (left, asked):
            probes.add(one)
        left.ticket.finish(Failed(Code.DEADLINE_EXCEEDED, "late"))
        left.ticket.ended.exception()
        kept = []
        for passed_s in (PROBE_S - 0.1, 0.1, PROBE_S):
            queue.discard([left])
            clock.advance(passed_s)
            probes.expire()
            kept.append(list(queue.waiting()))
        assert kept == [[left, asked], [asked], []]
        assert (queue.rows, queue.bytes, queue.items) == (0, 0, 0)

    asyncio.run(run())
