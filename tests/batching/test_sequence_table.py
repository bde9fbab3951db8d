"""The front's table of sequences: whose turn it is, which worker it goes to, and what becomes of it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batching.making import item
from tests.batching.test_batcher import bench, turns

from forwardpass.batching.sequences import WAITING_MAX, SequenceTable, Visit
from forwardpass.batching.ticket import Held, Item, Part
from forwardpass.core.caller import Caller
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.pipeline import Batch, Sequences
from forwardpass.core.request import Request, Turn
from forwardpass.core.timeline import Timeline

OK = Part(1, [], {}, [])
ROW_FAILED = Part(0, [], {0: Failed(Code.STEP_FAILED, "no")}, [])


@dataclass
class Worker:
    index: int
    deaths: int = 0
    ready: bool = True
    given_up: list[int] = field(default_factory=list)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Front:
    """A table over workers, and the ways in which a request goes through it."""

    def __init__(self, workers: int = 1, limits: Sequences | None = Sequences(idle_s=60.0)) -> None:  # noqa: B008 - frozen
        self.clock = FakeClock()
        self.workers = [Worker(index) for index in range(workers)]
        self.table = SequenceTable(limits, self.workers, self.clock)
        self.begun = 0  # by the last that was asked

    async def enter(self, id: str, *, start: bool = False, end: bool = False, rows: int = 1, **given: Any) -> Visit:
        request = Request("r", [], rows, Timeline(), caller=Caller(given.pop("tenant", "anonymous")))
        return await self.table.enter(request, Turn(id, start, end), [item(rows, **given)])

    async def ask(
        self, id: str, part: Part | None = OK, *, taken: bool = True, answered: bool = True, **turn: Any
    ) -> Held:
        """One request from its turn to its end; ``part`` None: nobody knows how it ended."""
        visit = await self.enter(id, **turn)
        visit.item.taken, visit.item.result = taken, part
        self.begun = self.table.leave(visit, answered=answered)
        assert visit.item.held is not None
        return visit.item.held

    async def end(self, id: str, *, tenant: str = "anonymous", left_s: float = 1.0) -> None:
        request = Request("r", [], 0, Timeline(), caller=Caller(tenant), sequence=Turn(id, end=True))
        await self.table.end(request, self.clock() + left_s)

    def untold(self, id: str | None, begun: int = 1) -> None:
        self.table.untold(Request("r", [], 1, Timeline(), sequence=None if id is None else Turn(id), begun=begun))

    async def refusal(self, id: str, **turn: Any) -> Failure:
        with pytest.raises(Failure) as caught:
            await self.enter(id, **turn)
        return caught.value


@in_loop
async def test_requests_of_a_sequence_go_to_the_worker_that_started_it() -> None:
    front = Front(3)
    first = {id: (await front.ask(id, start=True)).worker for id in "abcd"}
    assert first == {"a": 0, "b": 1, "c": 2, "d": 0}  # the one with the fewest
    assert [(await front.ask(id)).worker for id in "abcd"] == [0, 1, 2, 0]
    front.workers[1].ready = False
    assert (await front.ask("e", start=True)).worker == 2


@in_loop
async def test_what_was_never_started_has_ended_or_was_idle_is_not_found() -> None:
    front = Front()
    assert (await front.refusal("a")).code is Code.SEQUENCE_NOT_FOUND
    await front.ask("a", start=True)
    await front.ask("a", end=True)
    assert (await front.refusal("a")).code is Code.SEQUENCE_NOT_FOUND
    await front.ask("b", start=True)
    front.clock.advance(60.0)
    await front.ask("b")
    front.clock.advance(60.1)
    refused = await front.refusal("b")
    assert (refused.code, len(front.table)) == (Code.SEQUENCE_NOT_FOUND, 0)
    assert "idle for more than 60 s" in refused.text


@in_loop
async def test_a_sequence_is_not_idle_while_a_request_of_it_runs() -> None:
    front = Front()
    running = await front.enter("a", start=True)
    front.clock.advance(60.1)
    assert front.table.live() == 1
    running.item.taken, running.item.result = True, OK
    front.table.leave(running, answered=True)
    await front.ask("a")


@in_loop
async def test_a_start_of_a_live_sequence_starts_it_again_where_it_is() -> None:
    front = Front(2)
    first = await front.ask("a", start=True)
    again = await front.ask("a", start=True)
    assert (again.worker, again.number, again.start) == (first.worker, first.number, True)


@in_loop
async def test_a_request_that_fails_changes_nothing() -> None:
    front = Front()
    await front.ask("new", ROW_FAILED, start=True)
    assert (await front.refusal("new")).code is Code.SEQUENCE_NOT_FOUND
    await front.ask("a", start=True)
    await front.ask("a", ROW_FAILED, end=True)
    await front.ask("a", ROW_FAILED, answered=False)
    await front.ask("a", None, taken=False)  # it waited until its deadline and never ran
    await front.ask("a")


@in_loop
async def test_a_request_whose_end_nobody_knows_loses_the_sequence_until_it_is_started_again() -> None:
    front = Front()
    before = await front.ask("a", start=True)
    await front.ask("a", OK, answered=False)  # the answer came, and the caller had been told another thing
    assert (await front.refusal("a")).code is Code.SEQUENCE_LOST
    await front.ask("a", start=True)
    await front.ask("a", None)
    assert [(await front.refusal("a")).code for _ in range(2)] == [Code.SEQUENCE_LOST] * 2
    assert (await front.ask("a", start=True)).number != before.number


@in_loop
async def test_a_sequence_dies_with_its_worker_and_no_other_does() -> None:
    front = Front(2)
    await front.ask("a", start=True)
    await front.ask("b", start=True)
    front.workers[0].deaths += 1
    assert (await front.refusal("a")).code is Code.SEQUENCE_LOST
    await front.ask("b")
    await front.ask("a", start=True)
    await front.ask("a")


@in_loop
async def test_live_are_those_that_go_on() -> None:
    front = Front(2)
    for id in "abcd":
        await front.ask(id, start=True)
    await front.ask("a", end=True)
    assert front.table.live() == 3
    await front.ask("b", None)  # nobody knows how it ended
    front.workers[0].deaths += 1  # which held c
    assert (front.table.live(), len(front.table)) == (1, 3)
    await front.ask("b", start=True)
    front.clock.advance(60.0)
    assert front.table.live() == 2
    front.clock.advance(0.1)
    assert (front.table.live(), Front(limits=None).table.live()) == (0, 0)


@in_loop
async def test_a_worker_that_has_no_such_sequence_says_so() -> None:
    front = Front()
    await front.ask("a", start=True)
    await front.ask("a", Part(0, [], {0: Failed(Code.SEQUENCE_LOST, "gone")}, []))
    assert (await front.refusal("a")).code is Code.SEQUENCE_LOST


@in_loop
async def test_there_are_never_more_than_allowed_and_what_is_lost_makes_room() -> None:
    front = Front(limits=Sequences(idle_s=60.0, sequences_max=2))
    await front.ask("a", start=True)
    front.clock.advance(20.0)
    await front.ask("b", start=True)
    refused = await front.refusal("c", start=True)
    assert (refused.code, refused.retry_after_s) == (Code.SEQUENCES_FULL, 40.0)
    assert "sequence.sequences_max: 2" in refused.text
    front.clock.advance(40.1)
    await front.ask("c", start=True)
    front.workers[0].deaths += 1
    await front.ask("d", start=True)
    await front.ask("e", start=True)
    assert len(front.table) == 2


@in_loop
async def test_a_worker_is_told_of_the_sequences_that_are_given_up_and_of_no_others() -> None:
    front = Front(2, Sequences(idle_s=60.0))
    lost, _, ended, failed = [(await front.ask(id, start=True)).number for id in "abcd"]
    idle = (await front.ask("e", start=True)).number
    await front.ask("a", None)
    await front.ask("c", end=True)
    await front.ask("d", ROW_FAILED)
    front.clock.advance(30.0)
    for id in "bd":
        await front.ask(id)
    front.clock.advance(30.1)
    assert front.table.live() == 2
    assert [worker.given_up for worker in front.workers] == [[lost, idle], []]
    assert ended != failed


@in_loop
async def test_a_sequence_can_be_ended_without_a_record_by_its_tenant_only() -> None:
    front = Front()
    number = (await front.ask("a", start=True)).number
    with pytest.raises(Failure) as refused:
        await front.end("a", tenant="another")
    assert refused.value.code is Code.SEQUENCE_NOT_FOUND
    await front.end("a")
    assert (len(front.table), front.workers[0].given_up) == (0, [number])
    with pytest.raises(Failure) as refused:
        await front.end("a")
    assert refused.value.code is Code.SEQUENCE_NOT_FOUND


@in_loop
async def test_a_lost_sequence_is_ended_too() -> None:
    front = Front()
    await front.ask("a", None, start=True)
    await front.end("a")
    assert (await front.refusal("a")).code is Code.SEQUENCE_NOT_FOUND


@in_loop
async def test_an_end_has_its_turn_after_the_requests_before_it_and_what_waits_behind_it_is_told() -> None:
    front = Front()
    running = await front.enter("a", start=True)
    with pytest.raises(Failure) as late:
        await front.end("a", left_s=0.0)
    ends = [asyncio.create_task(front.end("a")) for _ in range(2)]
    behind, fresh = asyncio.create_task(front.ask("a")), asyncio.create_task(front.ask("a", start=True))
    await turns()
    running.item.taken, running.item.result = True, OK
    front.table.leave(running, answered=True)
    told = await asyncio.gather(*ends, behind, fresh, return_exceptions=True)
    codes = [each.code if isinstance(each, Failure) else None for each in (late.value, *told)]
    assert codes == [Code.DEADLINE_EXCEEDED, None, Code.SEQUENCE_NOT_FOUND, Code.SEQUENCE_NOT_FOUND, None]
    await front.ask("a")


@in_loop
async def test_where_nothing_is_kept_nothing_can_be_ended() -> None:
    with pytest.raises(Failure) as refused:
        await Front(limits=None).end("a")
    assert refused.value.code is Code.UNKNOWN_FIELD


@in_loop
async def test_an_answer_that_could_not_be_told_loses_its_sequence_and_no_other() -> None:
    front = Front()
    numbers = [(await front.ask(id, start=True)).number for id in "ab"]
    for id in ("a", "a", "none", None):
        front.untold(id)
    assert (await front.refusal("a")).code is Code.SEQUENCE_LOST
    assert front.workers[0].given_up == numbers[:1]
    await front.ask("b")


@in_loop
async def test_what_ran_behind_an_answer_that_could_not_be_told_is_lost_with_it() -> None:
    front = Front()
    await front.ask("a", start=True)
    behind = await front.enter("a")
    front.untold("a")
    behind.item.taken, behind.item.result = True, OK
    front.table.leave(behind, answered=True)
    assert (await front.refusal("a")).code is Code.SEQUENCE_LOST
    await front.ask("a", start=True)
    await front.ask("a")


@pytest.mark.parametrize("ended", [True, False])
@in_loop
async def test_an_answer_that_could_not_be_told_spares_the_sequence_that_was_started_after_it(ended: bool) -> None:
    front = Front()
    await front.ask("a", start=True)
    late = front.begun
    if ended:
        await front.ask("a", end=True)
    await front.ask("a", start=True)
    front.untold("a", late)
    await front.ask("a")
    front.untold("a", front.begun)
    assert (await front.refusal("a")).code is Code.SEQUENCE_LOST


@pytest.mark.parametrize(("part", "code"), [(OK, None), (ROW_FAILED, Code.SEQUENCE_LOST), (None, Code.SEQUENCE_LOST)])
@in_loop
async def test_an_answer_that_could_not_be_told_counts_behind_a_start_that_fails_only(
    part: Part | None, code: Code | None
) -> None:
    front = Front()
    number = (await front.ask("a", start=True)).number
    starting = await front.enter("a", start=True)
    front.untold("a", front.begun)
    starting.item.taken, starting.item.result = True, part
    front.table.leave(starting, answered=part is OK)
    if code is None:
        await front.ask("a")
    else:
        assert (await front.refusal("a")).code is code
    assert front.workers[0].given_up == ([] if code is None else [number])


@in_loop
async def test_requests_of_one_sequence_have_their_turns_one_by_one_in_the_order_they_came() -> None:
    front = Front()
    order: list[int] = []

    async def one(number: int) -> None:
        visit = await front.enter("a", start=number == 0)
        order.append(number)
        await asyncio.sleep(0)
        order.append(number)
        visit.item.taken, visit.item.result = True, OK
        front.table.leave(visit, answered=True)

    await asyncio.gather(*map(one, range(5)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@in_loop
async def test_what_waits_behind_an_end_is_told_and_a_start_behind_it_starts() -> None:
    front = Front()
    await front.ask("a", start=True)
    last = await front.enter("a", end=True)
    late, fresh = asyncio.create_task(front.ask("a")), asyncio.create_task(front.ask("a", start=True))
    await turns()
    last.item.taken, last.item.result = True, OK
    front.table.leave(last, answered=True)
    with pytest.raises(Failure) as told:
        await late
    assert told.value.code is Code.SEQUENCE_NOT_FOUND
    assert (await fresh).start


@in_loop
async def test_a_waiter_that_is_cancelled_leaves_the_line_and_nobody_is_forgotten() -> None:
    front = Front()
    running = await front.enter("a", start=True)
    gone, had_its_turn, stays = (asyncio.create_task(front.ask("a")) for _ in range(3))
    await turns()
    gone.cancel()
    await turns()
    running.item.taken, running.item.result = True, OK
    front.table.leave(running, answered=True)
    had_its_turn.cancel()  # in the moment in which its turn comes
    await stays
    assert gone.cancelled()
    assert had_its_turn.cancelled()
    await front.ask("a")


@in_loop
async def test_a_wait_ends_with_the_deadline_and_has_a_bound() -> None:
    front = Front()
    running = await front.enter("a", start=True)
    assert (await front.refusal("a", deadline=front.clock())).code is Code.DEADLINE_EXCEEDED
    waiting = [asyncio.create_task(front.ask("a")) for _ in range(WAITING_MAX)]
    await turns()
    assert (await front.refusal("a")).code is Code.QUEUE_FULL
    running.item.taken, running.item.result = True, OK
    front.table.leave(running, answered=True)
    await asyncio.gather(*waiting)


@in_loop
async def test_two_tenants_never_share_a_sequence() -> None:
    front = Front()
    await front.ask("a", start=True, tenant="one")
    assert (await front.refusal("a", tenant="two")).code is Code.SEQUENCE_NOT_FOUND


@in_loop
async def test_only_one_row_and_only_where_sequences_are_kept() -> None:
    refused = await Front().refusal("a", start=True, rows=2)
    assert (refused.code, refused.field) == (Code.BATCH_TOO_LARGE, "sequence_id")
    assert (await Front(limits=None).refusal("a", start=True)).code is Code.UNKNOWN_FIELD


def held(data: bytes, worker: int, *, start: bool = False) -> Item:
    one = item(data=data)
    one.held, one.key = Held(worker, 1, start, False), (worker, None)
    return one


@in_loop
async def test_items_run_in_their_worker_only_and_those_of_different_sequences_together() -> None:
    async with bench(executors=3) as made:
        items = [held(b"%d" % n, n % 3) for n in range(9)]
        assert await made.answers(items) == [b"%d" % n for n in range(9)]
        assert [executor.batches for executor in made.executors] == [
            [[b"%d" % n for n in (worker, worker + 3, worker + 6)]] for worker in range(3)
        ]


@in_loop
async def test_what_comes_while_its_worker_is_busy_waits_for_it_and_the_others_run_on() -> None:
    async with bench(executors=2, hold=True) as made:
        first, behind = held(b"first", 1), held(b"behind", 1)
        made.queue.put([first])
        await turns()
        made.queue.put([behind])
        free = item(data=b"free")
        made.queue.put([free])
        await turns()
        assert made.executors[0].batches == [[b"free"]]
        made.executors[1].release()
        await turns()
        assert made.executors[1].batches == [[b"first"], [b"behind"]]


@in_loop
async def test_of_a_lost_batch_a_start_runs_again_and_what_continued_is_lost() -> None:
    async with bench(kill=frozenset({b"poison"})) as made:
        items = [held(b"start", 0, start=True), held(b"next", 0), held(b"poison", 0)]
        assert await made.answers(items) == [b"start", Code.SEQUENCE_LOST, Code.SEQUENCE_LOST]


@in_loop
async def test_what_continued_a_sequence_and_kills_is_found_by_running_alone_for_nobody() -> None:
    async with bench(kill=frozenset({b"poison"})) as made:
        silence, poison = held(b"silence", 0), held(b"poison", 0)
        assert await made.answers([silence, poison]) == [Code.SEQUENCE_LOST] * 2
        await turns(20)
        assert sorted(made.executors[0].batches) == [[b"poison"], [b"silence"], [b"silence", b"poison"]]
        assert len(made.quarantine) == 1
        with pytest.raises(Failure) as refused:
            made.quarantine.check(poison.columns, poison.shapes, 1)
        assert refused.value.code is Code.QUARANTINED
        made.quarantine.check(silence.columns, silence.shapes, 1)


@in_loop
async def test_an_input_that_is_in_many_lost_batches_by_chance_is_never_blamed() -> None:
    async with bench(kill=frozenset({b"one", b"two", b"three"})) as made:
        for poison in (b"one", b"two", b"three"):
            assert await made.answers([held(b"silence", 0), held(poison, 0)]) == [Code.SEQUENCE_LOST] * 2
            await turns(20)
        assert len(made.quarantine) == 3
        assert await made.answers([held(b"silence", 0)]) == [b"silence"]


@in_loop
async def test_what_runs_again_for_nobody_leaves_nothing_in_its_worker() -> None:
    async with bench(kill=frozenset({b"poison"}), hold=True) as made:
        items = [held(b"start", 0, start=True), held(b"next", 0), held(b"poison", 0)]
        made.queue.put(items)
        await turns()
        items[0].ticket.finish(Failed(Code.DEADLINE_EXCEEDED, "late"))
        made.executors[0].release()
        for _ in items:
            await turns(10)
            made.executors[0].release()
        assert [one.held for one in items] == [Held(0, 1, True, True)] * 3
        assert [await made.answer(one) for one in items] == [Code.DEADLINE_EXCEEDED] + [Code.SEQUENCE_LOST] * 2


@given(st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2))), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_nothing_that_is_pinned_or_not_waits_for_ever(script: list[tuple[int, int | None]]) -> None:
    async def run() -> None:
        async with bench(Batch(rows_max=3), executors=3) as made:
            items = [
                item(data=b"%d" % n) if worker is None else held(b"%d" % n, worker)
                for n, (_, worker) in enumerate(script)
            ]
            for one, (pause, _) in zip(items, script, strict=True):
                made.queue.put([one])
                await turns(pause)
            found = await asyncio.wait_for(asyncio.gather(*map(made.answer, items)), 5.0)
            assert found == [b"%d" % n for n in range(len(script))]
            for n, (_, worker) in enumerate(script):
                ran = [e.index for e in made.executors if any(b"%d" % n in batch for batch in e.batches)]
                assert len(ran) == 1
                assert worker in (None, *ran)

    asyncio.run(run())
