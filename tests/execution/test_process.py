"""A worker's process as the front sees it: started, fed, watched, replaced."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests import fixtures_onnx as models

from forwardpass.batching.executor import Outcome, WorkerLost
from forwardpass.batching.ticket import Item, Ticket
from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Pipeline, Step, Version, Workers
from forwardpass.execution import process, wire
from forwardpass.execution.beginning import Order, Process, spawned
from forwardpass.execution.first_load import FirstLoad
from forwardpass.execution.process import State, WorkerProcess

pytestmark = pytest.mark.anyio

CODE = """
import os, subprocess, sys, time

class Model:
    def predict(self, batch):
        first = float(batch["x"][0, 0])
        if first == 1:
            try:
                subprocess.Popen(["sleep", "600"])
            except PermissionError:
                pass
        if first == 2:  # hold the interpreter's lock, at work
            sys.setswitchinterval(1000.0)
            until = time.perf_counter() + 4.0
            while time.perf_counter() < until:
                pass
            sys.setswitchinterval(0.005)
        if first == 3:
            time.sleep(60)
        if first == 4:
            sys.exit(0)
        if first == 5:
            time.sleep(1.5)
        return {"y": batch["x"][:, 0]}
"""
MODEL = Step(
    "model",
    {
        "engine": "python",
        "file": "steps.py",
        "call": "Model",
        "inputs": {"x": {"datatype": "FP64", "shape": [-1]}},
        "outputs": {"y": {"datatype": "FP64", "shape": []}},
    },
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Time:
    """A clock that can leap, as it does for a process that was stopped."""

    leapt_s = 0.0

    def __call__(self) -> float:
        return monotonic_s() + self.leapt_s


@asynccontextmanager
async def worker(folder: Path, time: Time | None = None, **limits: Any) -> AsyncIterator[WorkerProcess]:
    (folder / "steps.py").write_text(CODE)
    definition = Pipeline((MODEL,), workers=Workers(**limits))
    version = Version("p", 1, "0" * 64, str(folder), definition, trusted=True)
    made = WorkerProcess(version, 0, threads=1, clock=time or Time())
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.wait((running,))


def item(value: float, width: int = 1) -> Item:
    data = np.full(width, value).tobytes()
    ticket = Ticket(1, monotonic_s() + 60.0)
    return Item(ticket, 0, [data], [(width,)], 1, 1.0, len(data), "key", 1, 0.0)


async def submitted(made: WorkerProcess, *items: Item) -> "asyncio.Future[Outcome]":
    await made.first_load()
    await made.vacant(None)
    return made.submit(items)


async def lost(made: WorkerProcess, *items: Item) -> Code:
    with pytest.raises(WorkerLost) as gone:
        await (await submitted(made, *items))
    return gone.value.code


async def answered(made: WorkerProcess) -> None:
    outcome = await (await submitted(made, item(0.0)))
    assert bytes(outcome.parts[0].outputs[0].data) == bytes(8)


async def until(true: Any, limit_s: float = 10.0) -> None:
    async with asyncio.timeout(limit_s):
        while not true():
            await asyncio.sleep(0.02)


async def test_a_process_that_cannot_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with worker(tmp_path) as made:
        await answered(made)
        assert made.pid is not None
        start = asyncio.create_subprocess_exec
        refusals = [OSError(24, "Too many open files")] * 2

        async def reluctant(*given: Any, **options: Any) -> asyncio.subprocess.Process:
            if refusals:
                raise refusals.pop()
            return await start(*given, **options)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", reluctant)
        os.kill(made.pid, signal.SIGKILL)
        await until(lambda: made.state is State.RESTARTING)
        await answered(made)
        assert (made.deaths, refusals) == (3, [])


@asynccontextmanager
async def ended_at_first(folder: Path, *, count: int = 1, **options: Any) -> AsyncIterator[WorkerProcess]:
    """A worker whose first process is killed before it can load."""
    orders: list[Order] = []

    async def begin(order: Order) -> Process:
        begun = await spawned(order)
        if not orders:
            os.kill(begun.pid, signal.SIGKILL)
        orders.append(order)
        return begun

    models.identity(folder / "m.onnx")
    step = Step("model", {"file": "m.onnx", **options})
    version = Version("p", 1, "0" * 64, str(folder), Pipeline((step,), workers=Workers(count=count)))
    made = WorkerProcess(version, 0, threads=2, clock=Time(), begin=begin)
    made.first = FirstLoad(version, 2)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def test_a_worker_that_ends_while_it_tries_engines_is_followed_by_one_that_does_not(tmp_path: Path) -> None:
    async with ended_at_first(tmp_path, engine="auto", tolerance={"absolute": 0.1}) as made:
        loaded = await made.first_load()
        assert loaded.settings[0]["auto"][1:] == ["others are not tried: a worker ended when they were"]


async def test_a_worker_that_ends_while_it_tries_layouts_is_followed_by_one_that_does_not(tmp_path: Path) -> None:
    async with ended_at_first(tmp_path, count=0, engine="onnxruntime") as made:
        loaded = await made.first_load()
        assert (loaded.workers, loaded.layout.partition(": ")[2]) == (
            1,
            "others are not tried: a worker ended when they were",
        )


async def test_a_worker_that_ends_in_a_first_load_that_tries_nothing_fails_the_load(tmp_path: Path) -> None:
    async with ended_at_first(tmp_path, engine="onnxruntime") as made:
        with pytest.raises(Misconfigured) as refused:
            await made.first_load()
        assert refused.value.code is Code.LOAD_FAILED


async def test_a_first_process_that_cannot_be_started_fails_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*given: Any, **options: Any) -> asyncio.subprocess.Process:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", never)
    async with worker(tmp_path) as made:
        with pytest.raises(Misconfigured) as refused:
            await made.first_load()
        assert refused.value.code is Code.LOAD_FAILED


async def test_a_worker_starts_nothing_that_could_outlive_it(tmp_path: Path) -> None:
    async with worker(tmp_path) as made:
        await (await submitted(made, item(1.0)))
        assert psutil.Process(made.pid).children() == []


async def test_the_log_names_the_process_that_died(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with worker(tmp_path) as made:
        await made.first_load()
        pid = made.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: made.deaths == 1)
    (event,) = [vars(record)["event"] for record in caplog.records if record.message == "worker died"]
    assert (event["pid"], event["reason"]) == (pid, "ended with status -9")


async def test_what_the_front_slept_through_counts_against_no_batch(tmp_path: Path) -> None:
    time = Time()
    async with worker(tmp_path, time, batch_limit_s=10.0) as made:
        running = await submitted(made, item(5.0))
        await asyncio.sleep(0.6)
        time.leapt_s = 100.0
        await running
        assert made.deaths == 0


async def test_own_code_that_would_end_its_thread_fails_its_batch(tmp_path: Path) -> None:
    async with worker(tmp_path) as made:
        failure = (await (await submitted(made, item(4.0)))).parts[0].failure
        assert failure is not None
        assert failure.code is Code.ENGINE_FAILED
        await answered(made)
        assert made.deaths == 0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STALLED_AFTER_S", 1.5)
    monkeypatch.setattr(process, "HUNG_AFTER_S", 2.0)


@pytest.mark.usefixtures("impatient")
async def test_own_code_that_holds_the_interpreters_lock_is_left_to_its_batch_limit(tmp_path: Path) -> None:
    async with worker(tmp_path) as made:
        running = await submitted(made, item(2.0))
        await until(lambda: made.state is State.STALLED)
        await running
        await answered(made)
        assert made.deaths == 0


@pytest.mark.usefixtures("impatient")
async def test_a_worker_that_is_stopped_in_a_batch_is_replaced(tmp_path: Path) -> None:
    async with worker(tmp_path) as made:
        running = await submitted(made, item(3.0))
        assert made.pid is not None
        os.kill(made.pid, signal.SIGSTOP)
        with pytest.raises(WorkerLost) as gone:
            await asyncio.wait_for(running, 6.0)
        assert gone.value.code is Code.WORKER_HUNG
        await answered(made)


async def test_a_batch_that_cannot_be_sent_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with worker(tmp_path) as made:
        await answered(made)
        monkeypatch.setattr(wire, "PAYLOAD_BYTES_MAX", 64)
        assert await lost(made, item(0.0, 9)) is Code.WORKER_CRASHED
        await answered(made)
        assert made.deaths == 0


async def test_a_batch_over_the_memory_limit_is_answered_by_the_worker_that_lives_on(tmp_path: Path) -> None:
    async with worker(tmp_path, memory_max_mb=512) as made:
        outcome = await (await submitted(made, item(0.0, 70 * 1024**2)))
        failure = outcome.parts[0].failure
        assert failure is not None
        assert failure.code is Code.ENGINE_OUT_OF_MEMORY
        await answered(made)
        assert made.deaths == 0
