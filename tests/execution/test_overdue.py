"""Work that nobody waits for is not begun, also where its batch waits in the worker already."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import numpy as np
import pytest

from forwardpass.batching.executor import Outcome, WorkerLost
from forwardpass.batching.ticket import Item, Ticket
from forwardpass.core.clock import FakeClock, monotonic_s
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Pipeline, Sequences, Step, Version
from forwardpass.execution import sent
from forwardpass.execution.board import ITEMS_MAX, Board, Marks
from forwardpass.execution.local import LocalWorker
from forwardpass.execution.overdue import Overdue, late
from forwardpass.execution.process import State, WorkerProcess
from forwardpass.execution.sent import Sent
from forwardpass.execution.wire import Run
from forwardpass.steps.protocol import Batch

pytestmark = pytest.mark.anyio

CODE = """
import time

class Model:
    def __init__(self):
        self.seen = 0.0

    def predict(self, batch):
        x = batch["x"][:, 0]
        if (x == -1).any():  # what it was given since it was asked last
            seen, self.seen = self.seen, 0.0
            return {"y": x * 0 + seen}
        self.seen += float(x.sum())
        if (x == 8).any():
            raise ValueError("together")
        time.sleep(float(x.max()) if x.max() < 1 else 3600.0 if x.max() == 1 else 0.0)
        return {"y": x}
"""
MODEL = Step(
    "model",
    {
        "engine": "python",
        "file": "steps.py",
        "call": "Model",
        "inputs": {"x": {"datatype": "FP64", "shape": [1]}},
        "outputs": {"y": {"datatype": "FP64", "shape": []}},
    },
)
SLOW, FOR_EVER, SEEN, RAISES = 0.5, 1.0, -1.0, 8.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    async with worker(tmp_path) as loaded:
        yield loaded


@asynccontextmanager
async def worker(folder: Path, sequence: Sequences | None = None) -> AsyncIterator[WorkerProcess]:
    (folder / "steps.py").write_text(CODE)
    version = Version("p", 1, "0" * 64, str(folder), Pipeline((MODEL,), sequence=sequence), trusted=True)
    made = WorkerProcess(version, 0, threads=1, clock=monotonic_s)
    running = asyncio.create_task(made.run())
    try:
        await made.first_load()
        await ask(made, item(SEEN))  # what the self-test gave it
        yield made
    finally:
        running.cancel()
        await asyncio.wait((running,))


def item(value: float, limit_s: float = 60.0) -> Item:
    data = np.float64(value).tobytes()
    return Item(Ticket(1, monotonic_s() + limit_s), 0, [data], [(1,)], 1, 1.0, len(data), "key", 1, 0.0)


def gone(one: Item) -> Item:
    """Its caller has left."""
    one.ticket.finish(Failed(Code.CANCELLED, "left"))
    one.ticket.ended.exception()
    return one


async def ask(made: WorkerProcess, *items: Item) -> Outcome:
    await made.vacant(None)
    return await made.submit(items)


def value(outcome: Outcome, place: int = 0) -> float:
    return float(np.frombuffer(outcome.parts[place].outputs[0].data)[0])


async def lost(future: "asyncio.Future[Outcome]") -> WorkerLost:
    with pytest.raises(WorkerLost) as gone:
        await future
    return gone.value


def test_both_processes_have_the_same_clock() -> None:
    script = "from forwardpass.core.clock import monotonic_s; print(repr(monotonic_s()))"
    before = monotonic_s()
    there = float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    assert before < there < monotonic_s()


async def test_what_expires_while_its_batch_waits_in_the_worker_is_not_run(made: WorkerProcess) -> None:
    first = made.submit([item(SLOW)])
    ahead = await made.submit([item(16.0, limit_s=0.1), item(32.0)])
    assert ahead.parts[0].failure is not None
    assert (ahead.parts[0].failure.code, ahead.parts[0].rows) == (Code.DEADLINE_EXCEEDED, 0)
    assert (ahead.parts[1].failure, value(ahead, 1)) == (None, 32.0)
    assert (value(await first), value(await ask(made, item(SEEN)))) == (SLOW, SLOW + 32.0)


async def test_what_is_over_when_it_comes_is_not_run(made: WorkerProcess) -> None:
    outcome = await ask(made, item(16.0, limit_s=-1.0), item(32.0, limit_s=-1.0))
    assert [part.failure.code for part in outcome.parts if part.failure] == [Code.DEADLINE_EXCEEDED] * 2
    assert value(await ask(made, item(SEEN))) == 0.0


async def test_what_nobody_waits_for_any_more_is_not_run_when_its_batch_waits_in_the_worker(
    made: WorkerProcess,
) -> None:
    left, stays = item(16.0), item(32.0)
    first, ahead = made.submit([item(SLOW)]), made.submit([left, stays])
    made.forget([left])
    outcome = await ahead
    assert (outcome.parts[0].rows, value(outcome, 1)) == (0, 32.0)
    assert (value(await first), value(await ask(made, item(SEEN)))) == (SLOW, SLOW + 32.0)


async def test_of_a_batch_that_fails_what_is_over_does_not_run_again(made: WorkerProcess) -> None:
    over = item(16.0, limit_s=0.2)
    first, ahead = made.submit([item(SLOW)]), made.submit([item(RAISES), over, item(32.0)])
    await first
    codes = [part.failure and part.failure.code for part in (await ahead).parts]
    assert codes == [Code.ENGINE_FAILED, Code.DEADLINE_EXCEEDED, None]
    assert value(await ask(made, item(SEEN))) == SLOW + (RAISES + 32.0) + RAISES + 32.0


async def test_what_runs_to_find_whom_to_blame_runs_for_nobody(made: WorkerProcess) -> None:
    probe = item(16.0, limit_s=-1.0)
    probe.alone = True
    made.forget([probe])
    assert value(await ask(made, probe)) == 16.0


async def test_the_answer_says_when_it_was_begun(made: WorkerProcess) -> None:
    before = monotonic_s()
    first, ahead = made.submit([item(SLOW)]), made.submit([item(16.0)])
    begun = ((await first).begun, (await ahead).begun)
    assert before < begun[0] < begun[0] + SLOW <= begun[1] < monotonic_s()


async def test_a_batch_that_nobody_waits_for_ends_its_worker_and_harms_none_behind_it(
    made: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent, "ABANDONED_S", 0.2)
    monkeypatch.setattr(sent, "ABANDONED_LOADS", 0.0)
    alone, behind = item(FOR_EVER), item(32.0)
    hanging, ahead = made.submit([alone]), made.submit([behind])
    alone.ticket.finish(Failed(Code.CANCELLED, "left"))
    left, waited = await lost(hanging), await lost(ahead)
    assert (left.nobodys, waited.nobodys, waited.started) == (True, False, False)
    assert value(await ask(made, behind)) == 32.0
    assert alone.ticket.ended.exception() is not None


async def test_after_each_worker_that_was_ended_for_nobody_the_next_has_twice_the_time() -> None:
    clock = FakeClock()
    running, patience = Sent(clock), []
    for batch in range(4):
        hanging = asyncio.get_running_loop().create_future()
        running.add(batch, [gone(item(FOR_EVER))], hanging)
        began = clock()
        while not running.abandoned(clock(), 0.0, 35.0):
            clock.advance(0.5)
        patience.append(clock() - began)
        running.lose(Code.WORKER_HUNG, nobodys=True)
        assert (await lost(hanging)).nobodys
    assert patience == [5.5, 10.5, 20.5, 35.5]  # looked at every half second; never longer than a batch may run
    running.add(9, [item(1.0)], asyncio.get_running_loop().create_future())
    running.pop(9)
    running.add(10, [gone(item(FOR_EVER))], asyncio.get_running_loop().create_future())
    running.abandoned(clock(), 0.0, 35.0)
    clock.advance(5.5)
    assert running.abandoned(clock(), 0.0, 35.0)


async def test_a_suspect_has_all_the_time_that_a_batch_may_take_whoever_waits() -> None:
    clock = FakeClock()
    running, suspect = Sent(clock), gone(item(FOR_EVER))
    suspect.suspect = True
    running.add(1, [suspect], asyncio.get_running_loop().create_future())
    clock.advance(30.0)
    assert not running.abandoned(clock(), 0.0, 60.0)
    clock.advance(31.0)
    assert running.over(clock(), 60.0)


async def test_what_waited_behind_an_abandoned_batch_is_not_suspected_with_it() -> None:
    running, futures = Sent(FakeClock()), [asyncio.get_running_loop().create_future() for _ in range(2)]
    for batch, future in enumerate(futures):
        running.add(batch, [gone(item(1.0))], future)
    running.lose(Code.WORKER_HUNG, nobodys=True)
    assert [(lost.nobodys, lost.started) for lost in [await lost(future) for future in futures]] == [
        (True, True), (False, False),
    ]  # fmt: skip


async def test_who_has_no_place_on_the_board_is_not_said_to_have_been_told() -> None:
    running, items = Sent(FakeClock()), [item(1.0) for _ in range(ITEMS_MAX + 1)]
    with Board() as board:
        running.add(1, items, asyncio.get_running_loop().create_future())
        running.forget([items[0], items[-1], item(1.0)], board)
    assert [each.left_s for each in (items[0], items[1], items[-1])] == [1000.0, inf, inf]


def test_each_that_is_left_out_fails_by_itself_and_holds_nothing_of_others() -> None:
    assert late() is not late()


async def test_a_batch_that_somebody_waits_for_may_run(made: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent, "ABANDONED_S", 0.0)
    monkeypatch.setattr(sent, "ABANDONED_LOADS", 0.0)
    left, stays = item(SLOW), item(0.9)
    left.ticket.finish(Failed(Code.CANCELLED, "left"))
    assert value(await ask(made, left, stays), 1) == 0.9
    assert made.deaths == 0
    assert left.ticket.ended.exception() is not None


async def test_where_sequences_are_kept_nobody_loses_them_for_what_another_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent, "ABANDONED_S", 0.0)
    monkeypatch.setattr(sent, "ABANDONED_LOADS", 0.0)
    async with worker(tmp_path, Sequences()) as made:
        left = item(0.9)
        left.ticket.ended.cancel()
        await made.submit([left])
        assert made.deaths == 0


async def test_workers_that_were_ended_for_nobody_do_not_degrade_the_version(
    made: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent, "ABANDONED_S", 0.0)
    monkeypatch.setattr(sent, "ABANDONED_LOADS", 0.0)
    for _ in range(5):
        left = item(FOR_EVER)
        left.ticket.finish(Failed(Code.CANCELLED, "left"))
        await made.vacant(None)
        await lost(made.submit([left]))
        assert left.ticket.ended.exception() is not None
    await made.vacant(None)
    assert (made.abandoned, made.deaths, made.state) == (5, 0, State.READY)


async def test_one_that_was_ended_for_nobody_is_about_to_be_back_and_no_error_is_logged(
    made: WorkerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sent, "ABANDONED_S", 0.0)
    monkeypatch.setattr(sent, "ABANDONED_LOADS", 0.0)
    await lost(made.submit([gone(item(FOR_EVER))]))
    assert (made.ready, made.returning) == (False, True)
    await made.vacant(None)
    assert (made.ready, made.returning) == (True, False)
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_marks_are_of_one_batch_and_bounded() -> None:
    with Board() as board:
        marks = Marks(os.dup(board.descriptor))
        board.clear(5)
        assert board.mark(5, 3)
        assert not board.mark(5, ITEMS_MAX)  # more than there is room for: it is run
        overdue = Overdue(marks)
        assert overdue.items(Run(5, [1] * 5, [], []), 0.0) == {3}
        assert overdue.items(Run(6, [1] * 5, [], []), 0.0) == set()
        board.clear(9)  # the same place
        assert overdue.items(Run(9, [1] * 5, [], []), 0.0) == set()


def test_a_row_that_is_left_out_takes_its_elements_along_and_those_without_elements_go_too() -> None:
    batch = Batch({"x": np.arange(4.0)}, 4, [0, 1, 2, 3])
    batch.expand([2, 0, 1, 3], {"e": np.array([0.0, 1.0, 20.0, 30.0, 31.0, 32.0])})
    left_out = Overdue().leave_out(Run(0, [2, 1, 1], [], [], until=[1.0, 2.0, 3.0]), batch, 1.0)
    assert left_out == {0}
    assert batch.columns["e"].tolist() == [20.0, 30.0, 31.0, 32.0]
    assert batch.fold().tolist() == [0, 1, 1, 1]
    assert (batch.columns["x"].tolist(), batch.origin, set(batch.failures)) == ([2.0, 3.0], [2, 3], {0, 1})


async def test_a_worker_inside_this_process_leaves_out_what_nobody_waits_for(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(CODE)
    version = Version("p", 1, "0" * 64, str(tmp_path), Pipeline((MODEL,)), trusted=True)
    made = LocalWorker(version, 0, threads=1, clock=monotonic_s)
    running = asyncio.create_task(made.run())
    await made.first_load()
    await made.submit([item(SEEN)])
    left, expired = item(16.0), item(32.0, limit_s=0.1)
    answering = made.submit([item(SLOW), left, expired, item(64.0)])
    left.ticket.ended.cancel()
    outcome = await answering
    assert [part.rows for part in outcome.parts] == [1, 0, 0, 1]
    assert value(await made.submit([item(SEEN)])) == SLOW + 64.0
    running.cancel()
    await asyncio.wait((running,))
