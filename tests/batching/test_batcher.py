import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batching.making import ScriptedExecutor, item

from forwardpass.batching.batcher import Batcher
from forwardpass.batching.executor import Outcome, WorkerLost
from forwardpass.batching.forecast import Forecast
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Held, Item, Part
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failure
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits


class Bench:
    """A batcher over scripted executors."""

    def __init__(self, batch: Batch, executors: int, kill: frozenset[bytes], hold: bool) -> None:
        self.clock = FakeClock()
        forecast = self.forecast = Forecast(batch, executors)
        self.queue = Queue(Limits(), forecast, self.clock)
        self.quarantine = Quarantine(60.0, self.clock)
        self.batcher = Batcher(self.queue, forecast, self.quarantine, self.clock)
        self.executors = [ScriptedExecutor(self.clock, i, kill, hold) for i in range(executors)]

    async def answer(self, given: Item) -> bytes | Code:
        try:
            await given.ticket.ended
        except Failure as failure:
            return failure.code
        (part,) = given.ticket.parts()
        return bytes(part.outputs[0].data)

    async def answers(self, given: Sequence[Item]) -> list[bytes | Code]:
        self.queue.put(given)
        return list(await asyncio.gather(*map(self.answer, given)))


@asynccontextmanager
async def bench(
    batch: Batch | None = None, executors: int = 1, kill: frozenset[bytes] = frozenset(), *, hold: bool = False
) -> AsyncIterator[Bench]:
    made = Bench(batch or Batch(), executors, kill, hold)
    running = asyncio.create_task(made.batcher.run(made.executors))
    yield made
    running.cancel()
    await asyncio.wait((running,))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_waited_while_the_worker_was_busy_leaves_as_one_batch() -> None:
    async def run() -> None:
        async with bench(hold=True) as made:
            first = item(data=b"0")
            made.queue.put([first])
            await turns()
            rest = [item(data=b"%d" % n) for n in range(1, 6)]
            for one in rest:
                made.queue.put([one])
                await turns(2)
            made.executors[0].release()
            await turns()
            assert made.executors[0].batches == [[b"0"], [b"1", b"2", b"3", b"4", b"5"]]
            made.executors[0].release()
            await asyncio.gather(*map(made.answer, [first, *rest]))
            assert [report.reason for report in made.batcher.reports] == ["worker_free", "worker_free"]
            assert made.batcher.reports[1].rows == 5

    asyncio.run(run())


def test_only_the_killer_of_a_lost_batch_fails_and_its_input_is_quarantined() -> None:
    async def run() -> None:
        async with bench(kill=frozenset({b"poison"})) as made:
            items = [item(data=data) for data in (b"a", b"poison", b"b")]
            assert await made.answers(items) == [b"a", Code.WORKER_CRASHED, b"b"]
            assert len(made.quarantine) == 1
            with pytest.raises(Failure) as refused:
                made.quarantine.check(items[1].columns, items[1].shapes, 1)
            assert refused.value.code is Code.QUARANTINED
            made.quarantine.check(items[0].columns, items[0].shapes, 1)

    asyncio.run(run())


def test_what_waits_with_the_killers_input_is_refused_and_kills_nobody() -> None:
    async def run() -> None:
        async with bench(Batch(rows_max=2), kill=frozenset({b"poison"}), hold=True) as made:
            items = [item(data=data) for data in (b"poison", b"poison", b"poison", b"other")]
            told = asyncio.create_task(made.answers(items))
            for _ in range(3):
                await turns(10)
                made.executors[0].release()
            assert await told == [Code.WORKER_CRASHED, Code.QUARANTINED, Code.QUARANTINED, b"other"]
            assert made.executors[0].batches == [[b"poison", b"poison"], [b"poison"], [b"other"]]

    asyncio.run(run())


def test_a_lost_batch_is_run_again_one_by_one() -> None:
    async def run() -> None:
        async with bench(kill=frozenset({b"poison"})) as made:
            await made.answers([item(data=data) for data in (b"a", b"poison", b"b")])
            assert made.executors[0].batches[0] == [b"a", b"poison", b"b"]
            assert sorted(made.executors[0].batches[1:]) == [[b"a"], [b"b"], [b"poison"]]
            assert [report.reason for report in made.batcher.reports][1:] == ["rerun_alone"] * 3

    asyncio.run(run())


def test_quarantine_ends_with_its_period() -> None:
    clock = FakeClock()
    quarantine = Quarantine(60.0, clock)
    quarantine.add([b"x"], [()], 1)
    clock.advance(61.0)
    quarantine.check([b"x"], [()], 1)
    assert len(quarantine) == 0


def test_batching_off_runs_every_item_by_itself_and_ignores_the_wait() -> None:
    async def run() -> None:
        async with bench(Batch(enabled=False, wait_ms=1000.0)) as made:
            await made.answers([item(data=b"a"), item(data=b"b")])
            assert made.executors[0].batches == [[b"a"], [b"b"]]

    asyncio.run(run())


def test_an_item_cancelled_while_it_runs_does_not_harm_its_batch() -> None:
    async def run() -> None:
        async with bench(hold=True) as made:
            leaves, stays = item(data=b"l"), item(data=b"s")
            made.queue.put([leaves, stays])
            await turns()
            leaves.ticket.finish(Failure(Code.CANCELLED, "gone"))
            made.executors[0].release()
            assert await made.answer(stays) == b"s"
            assert await made.answer(leaves) is Code.CANCELLED

    asyncio.run(run())


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 3),
)
@settings(max_examples=50, deadline=None)
def test_every_client_gets_its_own_answer_whatever_arrives_leaves_or_dies(
    script: list[tuple[int, bool, bool]], executors: int
) -> None:
    async def run() -> None:
        kill = frozenset(b"%d" % n for n, (_, poison, _) in enumerate(script) if poison)
        async with bench(Batch(rows_max=4), executors, kill) as made:
            items = []
            for n, (pause, _, leaves) in enumerate(script):
                one = item(data=b"%d" % n)
                items.append(one)
                made.queue.put([one])
                if leaves:
                    one.ticket.finish(Failure(Code.CANCELLED, "gone"))
                    made.queue.discard([one])
                await turns(pause)
            found = await asyncio.gather(*map(made.answer, items))
            for n, (_, poison, leaves) in enumerate(script):
                right = Code.CANCELLED if leaves else Code.WORKER_CRASHED if poison else b"%d" % n
                assert found[n] == right

    asyncio.run(run())


@pytest.mark.parametrize("leaves_after", [0, 1])
def test_a_killer_whose_caller_has_left_is_found_all_the_same(leaves_after: int) -> None:
    """Before its batch is lost, or while it waits to run again."""

    async def run() -> None:
        async with bench(kill=frozenset({b"poison"}), hold=True) as made:
            late, mate = item(data=b"poison"), item(data=b"mate")
            made.queue.put([late, mate])
            await turns()
            for death in range(2):
                if death == leaves_after:
                    late.ticket.finish(Failure(Code.CANCELLED, "gone"))
                    made.queue.discard([late])
                made.executors[0].release()
                if death == 0 and leaves_after == 1:
                    made.executors[0].vacancy.clear()  # the worker is not back yet
                    await turns(10)
                    late.ticket.finish(Failure(Code.CANCELLED, "gone"))
                    made.queue.discard([late])
                    made.executors[0].vacancy.set()
                await turns(10)
            made.executors[0].release()
            assert [await made.answer(each) for each in (late, mate)] == [Code.CANCELLED, b"mate"]
            assert made.executors[0].batches == [[b"poison", b"mate"], [b"poison"], [b"mate"]]
            assert len(made.quarantine) == 1

    asyncio.run(run())


def test_a_batch_that_never_began_has_not_been_taken() -> None:
    async def run() -> None:
        async with bench(hold=True) as made:
            one = item()
            made.queue.put([one])
            await turns()
            _, future = made.executors[0].held.pop()
            future.set_exception(WorkerLost(Code.WORKER_CRASHED, started=False))
            await turns()
            assert (one.waiting, one.taken, one.deaths) == (True, False, 0)
            made.executors[0].vacancy.set()
            await turns()
            made.executors[0].release()
            assert await made.answer(one) == b"x"

    asyncio.run(run())


async def end_for_nobody(made: Bench, seconds: float = 5.0) -> None:
    """The worker is ended, as nobody waits for what it runs."""
    items, future = made.executors[0].held.pop()
    for one in items:
        one.ticket.finish(Failure(Code.CANCELLED, "gone"))
        one.ticket.ended.exception()
    made.clock.advance(seconds)
    future.set_exception(WorkerLost(Code.WORKER_HUNG, started=True, nobodys=True))
    await settled(lambda: len(made.batcher.reports) > 0)
    made.executors[0].vacancy.set()


async def settled(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5.0):
        while not true():
            await asyncio.sleep(0.001)


def looked_at(made: Bench, *inputs: bytes) -> list[Item]:
    items = [item(data=data) for data in inputs]
    for one in items:
        made.quarantine.look(one)
        made.queue.put([one])
    return items


def test_of_what_was_ended_for_nobody_the_one_that_hangs_again_alone_is_quarantined_and_its_mate_answered() -> None:
    async def run() -> None:
        async with bench(hold=True) as made:
            looked_at(made, b"mate", b"hangs")
            await turns()
            await end_for_nobody(made)
            assert len(made.quarantine) == 0, "nobody is blamed at first"
            mate, hangs, stranger = looked_at(made, b"mate", b"hangs", b"stranger")
            await turns()
            made.executors[0].release()
            assert await made.answer(mate) == b"mate"
            await turns()
            _, future = made.executors[0].held.pop()
            future.set_exception(WorkerLost(Code.WORKER_HUNG, started=True))
            assert await made.answer(hangs) is Code.WORKER_HUNG
            made.executors[0].vacancy.set()
            await turns()
            made.executors[0].release()
            assert await made.answer(stranger) == b"stranger"
            assert made.executors[0].batches[1:] == [[b"mate"], [b"hangs"], [b"stranger"]]
            with pytest.raises(Failure) as refused:
                looked_at(made, b"hangs")
            assert refused.value.code is Code.QUARANTINED
            made.quarantine.look(innocent := item(data=b"mate"))
            assert not innocent.suspect

    asyncio.run(run())


def test_what_a_batch_cost_until_it_was_ended_for_nobody_is_learnt() -> None:
    async def run() -> None:
        async with bench(hold=True) as made:
            made.forecast.model.observe(1.0, 0.001)
            looked_at(made, b"hangs")
            await turns()
            await end_for_nobody(made, 5.0)
            assert made.forecast.model.predict_s(1.0) > 2.0
            made.queue.put([item(data=b"runs")])
            await turns()
            with pytest.raises(Failure) as refused:
                made.queue.put([item(data=b"hopeless", deadline=made.clock() + 0.06)])
            assert refused.value.code is Code.QUEUE_WAIT_TOO_LONG

    asyncio.run(run())


@pytest.mark.parametrize(("said", "learnt_s"), [(True, 0.06), (False, 2.0)])
def test_what_a_batch_cost_is_what_its_worker_says_and_at_most_as_much_again_if_the_loop_came_late(
    said: bool, learnt_s: float
) -> None:
    async def run() -> None:
        async with bench(hold=True) as made:
            (one,) = looked_at(made, b"x")
            await turns()
            _, future = made.executors[0].held.pop()
            begun = made.clock() + 0.01
            made.clock.advance(2.0)  # the loop is late
            future.set_result(Outcome([Part(1, [], {}, [])], 0.005, 0.02, 0.005, begun if said else 0.0))
            await one.ticket.ended
            assert made.forecast.model.predict_s(1.0) == pytest.approx(learnt_s)

    asyncio.run(run())


def test_a_worker_that_is_free_before_the_books_say_so_takes_what_is_urgent_at_once() -> None:
    """Its batch was answered and the batcher has not looked yet: to ask it again and again would stop the event loop."""

    async def run() -> None:
        async with bench(hold=True) as made:
            made.forecast.workers.count = 2  # the other one is not there: only this one can take it
            made.executors[0].preprocess_s = 0.5  # so that batches are sent ahead
            for _ in range(2):
                made.queue.put([item()])
                await turns()
                made.executors[0].release()
                await turns()
                made.forecast.model.observe(1.0, 1.0)
            slow, urgent = item(), item(data=b"urgent", deadline=made.clock() + 0.5)
            made.queue.put([slow])
            await turns()
            made.executors[0].vacancy.set()  # idle again, and nobody was told
            await turns()
            made.queue.put([urgent])
            await asyncio.wait_for(turns(), 5.0)
            assert made.executors[0].batches == [[b"x"], [b"x"], [b"x"], [b"urgent"]]

    asyncio.run(run())


def test_a_batch_that_cannot_be_sent_for_a_defect_fails_by_itself() -> None:
    class Defective(ScriptedExecutor):
        def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
            if items[0].columns[0] == b"defect":
                raise TypeError
            return ScriptedExecutor.submit(self, items)

    async def run() -> None:
        made = Bench(Batch(rows_max=1), 1, frozenset(), hold=False)
        running = asyncio.create_task(made.batcher.run([Defective(made.clock)]))
        assert await made.answers([item(data=b"defect"), item(data=b"fine")]) == [Code.INTERNAL, b"fine"]
        assert [report.outcome for report in made.batcher.reports] == ["internal", "ok"]
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(run())


@pytest.mark.parametrize(("pinned", "taken"), [(False, 8), (True, 16)])
def test_what_only_one_worker_may_run_is_shared_with_no_other(pinned: bool, taken: int) -> None:
    async def run() -> None:
        async with bench(executors=2) as made:
            for cost in (1.0, 4.0):
                made.forecast.model.observe(cost, 0.010 * cost)
            items = [item(key="key") for _ in range(16)]
            for number, one in enumerate(items):
                one.held = Held(0, number, start=True, end=False) if pinned else None
            made.queue.put(items)
            await turns()
            assert len(made.executors[0].batches[0]) == taken

    asyncio.run(run())
