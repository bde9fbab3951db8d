"""Workers forked from a template are what spawned ones are, and none is lost when the template is."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests import fixtures_onnx
from tests.serving import serving

from forwardpass.batching.ticket import Item, Ticket
from forwardpass.core.clock import monotonic_s
from forwardpass.core.pipeline import Pipeline, Step, Version
from forwardpass.execution.beginning import Begin, spawned
from forwardpass.execution.process import State, WorkerProcess
from forwardpass.execution.template import Template

pytestmark = pytest.mark.anyio

CODE = """
import ctypes, sys

import numpy

HEAVY = ("PIL", "av", "cv2", "openvino", "opentelemetry", "scipy", "sklearn", "tokenizers", "torch", "google.protobuf")

class Model:
    def predict(self, batch):
        asked = float(batch["x"][0, 0])
        if asked == 1:
            ctypes.string_at(0)
        answer = 0.0
        if asked == 2:
            answer = float(sum(name in sys.modules for name in HEAVY))
        if asked == 3:
            answer = numpy.random.random()
        return {"y": numpy.full(len(batch["x"]), answer)}
"""
DECLARED = {"inputs": {"x": {"datatype": "FP64", "shape": [1]}}, "outputs": {"y": {"datatype": "FP64", "shape": []}}}
MODEL = Step("model", {"engine": "python", "file": "steps.py", "call": "Model", **DECLARED})
CRASH, HEAVY, CHANCE = 1.0, 2.0, 3.0
BOX = ("Seccomp", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "SigIgn", "SigCgt", "SigBlk")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def template() -> Iterator[Template]:
    with Template() as made:
        yield made


@asynccontextmanager
async def worker(folder: Path, begin: Begin) -> AsyncIterator[WorkerProcess]:
    (folder / "steps.py").write_text(CODE)
    version = Version("p", 1, "0" * 64, str(folder), Pipeline((MODEL,)), trusted=True)
    made = WorkerProcess(version, 0, threads=1, clock=monotonic_s, begin=begin)
    running = asyncio.create_task(made.run())
    try:
        await made.first_load()
        yield made
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def asked(made: WorkerProcess, value: float) -> float:
    await made.vacant(None)
    data = np.full(1, value).tobytes()
    outcome = await made.submit([Item(Ticket(1, monotonic_s() + 60.0), 0, [data], [(1,)], 1, 1.0, 8, "key", 1, 0.0)])
    answer: float = np.frombuffer(outcome.parts[0].outputs[0].data)[0]
    return answer


async def replaced(made: WorkerProcess, before: int | None) -> int:
    """The pid of the process that came after that one."""
    async with asyncio.timeout(30.0):
        while made.state is not State.READY or made.pid is None or made.pid == before:
            await asyncio.sleep(0.01)
    return made.pid


def box_of(pid: int | None) -> dict[str, object]:
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        **{name: status[name] for name in BOX},
        "limits": Path(f"/proc/{pid}/limits").read_text(),
        "environment": sorted(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")),
        "descriptors": sorted(re.sub(r"\d", "", str(each.readlink())) for each in Path(f"/proc/{pid}/fd").iterdir()),
        "session": os.getsid(pid or 0) == os.getpgid(pid or 0) == pid,
        "parent": psutil.Process(pid).ppid(),
    }


def libraries_at(pid: int | None) -> set[str]:
    """Where the interpreter's memory begins, and its libraries'."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split("-")[0] for line in lines if "libc.so" in line or "[heap]" in line}


async def test_a_forked_worker_is_boxed_as_a_spawned_one(template: Template, tmp_path: Path) -> None:
    async with worker(tmp_path, template.begin) as forked, worker(tmp_path, spawned) as plain:
        assert psutil.Process(forked.pid).cmdline() != psutil.Process(plain.pid).cmdline()  # it was not spawned
        assert box_of(forked.pid) == box_of(plain.pid)


async def test_the_template_is_one_thread(template: Template, tmp_path: Path) -> None:
    async with worker(tmp_path, template.begin):
        assert psutil.Process(template.pid).num_threads() == 1


async def test_a_worker_has_what_its_pipeline_needs_and_no_more(template: Template, tmp_path: Path) -> None:
    async with worker(tmp_path, template.begin) as made:
        assert await asked(made, HEAVY) == 0.0


async def test_workers_of_a_template_have_chances_of_their_own(template: Template, tmp_path: Path) -> None:
    async with worker(tmp_path, template.begin) as one, worker(tmp_path, template.begin) as other:
        assert await asked(one, CHANCE) != await asked(other, CHANCE)


async def test_a_killed_worker_is_replaced_by_the_same_template(template: Template, tmp_path: Path) -> None:
    async with worker(tmp_path, template.begin) as made:
        before, of = made.pid, template.pid
        os.kill(before or 0, signal.SIGKILL)
        await replaced(made, before)
        assert (await asked(made, 0.0), made.deaths, template.pid) == (0.0, 1, of)


async def test_no_worker_has_the_memory_layout_of_one_that_crashed(template: Template, tmp_path: Path) -> None:
    async with worker(tmp_path, template.begin) as made:
        before, layout = made.pid, libraries_at(made.pid)
        with pytest.raises(Exception, match="worker_crashed"):
            await asked(made, CRASH)
        assert not layout & libraries_at(await replaced(made, before))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_template_that_does_not_answer_costs_no_worker(end: signal.Signals, tmp_path: Path) -> None:
    with Template(answer_time_s=2.0) as template:
        async with worker(tmp_path, template.begin) as made:
            before, of = made.pid, template.pid
            os.kill(of or 0, end)
            assert await asked(made, 0.0) == 0.0  # the workers it has made live on
            os.kill(before or 0, signal.SIGKILL)
            await replaced(made, before)
            assert await asked(made, 0.0) == 0.0
            assert psutil.STATUS_ZOMBIE not in {child.status() for child in psutil.Process().children()}


async def test_a_template_that_cannot_fork_says_so_and_can_later(template: Template, tmp_path: Path) -> None:
    async with worker(tmp_path, template.begin) as made:
        before, forking = made.pid, psutil.Process(template.pid)
        descriptors, limits = forking.num_fds(), forking.rlimit(psutil.RLIMIT_NOFILE)
        forking.rlimit(psutil.RLIMIT_NOFILE, (descriptors, limits[1]))
        os.kill(before or 0, signal.SIGKILL)
        async with asyncio.timeout(30.0):
            while made.deaths < 2:  # the one that was killed, and the one that could not be started
                await asyncio.sleep(0.01)
        forking.rlimit(psutil.RLIMIT_NOFILE, limits)
        await replaced(made, before)
        assert (await asked(made, 0.0), template.pid, forking.num_fds()) == (0.0, forking.pid, descriptors)


async def test_a_start_that_is_given_up_leaves_no_process_behind(template: Template, tmp_path: Path) -> None:
    here = psutil.Process()
    before = {child.pid for child in here.children(recursive=True)}
    (tmp_path / "steps.py").write_text(CODE)
    version = Version("p", 1, "0" * 64, str(tmp_path), Pipeline((MODEL,)), trusted=True)
    made = WorkerProcess(version, 0, threads=1, clock=monotonic_s, begin=template.begin)
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait((running,))
    assert template.pid in before and {child.pid for child in here.children(recursive=True)} <= before


def test_a_template_ends_with_its_block() -> None:
    with Template() as template:
        pid = template.pid
    assert pid is not None and not psutil.pid_exists(pid)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_that_ends_leaves_no_process_behind(end: signal.Signals, tmp_path: Path) -> None:
    fixtures_onnx.identity(tmp_path / "identity.onnx")
    with serving(tmp_path / "identity.onnx", data=tmp_path / "data") as server:
        family = psutil.Process(server.process.pid).children(recursive=True)
        assert len(family) == 2  # the template, and the worker that it forked
        for each in family:
            each.suspend()  # it cannot see that its server is gone
        server.process.send_signal(end)
        assert psutil.wait_procs(family, timeout=10.0)[1] == []
