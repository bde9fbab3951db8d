"""A version that leaves its number of workers open, over real workers."""

import asyncio
from pathlib import Path

import pytest
from tests import fixtures_onnx as models

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Pipeline, Step, Version, Workers
from forwardpass.execution.local import LocalWorker
from forwardpass.execution.process import WorkerProcess
from forwardpass.rollout.fleet import Fleet
from forwardpass.rollout.layout import laid_out
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant

pytestmark = pytest.mark.anyio

DIGEST = "d" * 64
FIELD = {"x": {"datatype": "FP64", "shape": [1]}}
SLOW = Step("model", {"engine": "python", "file": "own.py", "call": "Slow", "inputs": FIELD, "outputs": FIELD})
OWN = """
import time

class Slow:
    def load(self, folder, threads):
        time.sleep(600)
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def accept(variant: Variant) -> None:
    """No golden examples."""


def version(store: Path, step: Step | None = None, count: int = 0) -> Version:
    folder = store / DIGEST
    folder.mkdir(exist_ok=True)
    models.identity(folder / "m.onnx")
    (folder / "own.py").write_text(OWN)
    steps = (step or Step("model", {"engine": "onnxruntime", "file": "m.onnx"}),)
    return Version("p", 1, DIGEST, str(folder), Pipeline(steps, workers=Workers(count=count)), trusted=True)


async def test_it_is_found_once_and_then_known(tmp_path: Path) -> None:
    made = version(tmp_path)
    counts = [
        (await laid_out(made, threads=2, clock=monotonic_s, make_worker=WorkerProcess)).definition.workers.count
        for _ in range(2)
    ]
    assert counts[0] == counts[1] in (1, 2)
    assert len(list(tmp_path.glob("*.loaded"))) == 1


async def test_a_number_that_is_written_is_that(tmp_path: Path) -> None:
    made = version(tmp_path, count=3)
    assert await laid_out(made, threads=2, clock=monotonic_s, make_worker=WorkerProcess) is made


async def test_in_this_process_there_is_one(tmp_path: Path) -> None:
    found = await laid_out(version(tmp_path), threads=2, clock=monotonic_s, make_worker=LocalWorker)
    assert found.definition.workers.count == 1


async def test_what_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    made = version(tmp_path, Step("model", {"engine": "onnxruntime", "file": "own.onnx"}))
    (Path(made.folder) / "own.onnx").write_text(OWN)
    with pytest.raises(Misconfigured) as refused:
        await laid_out(made, threads=2, clock=monotonic_s, make_worker=WorkerProcess)
    assert refused.value.code is Code.MODEL_INVALID


async def test_closing_does_not_wait_for_what_is_being_found_out(tmp_path: Path) -> None:
    async with Fleet(Routes(), accept, threads=2, clock=monotonic_s) as fleet:
        loading = asyncio.create_task(fleet.load(version(tmp_path, SLOW)))
        await asyncio.sleep(0)
        await fleet.close(0.0)
        with pytest.raises(Failed) as ended:
            await asyncio.wait_for(loading, 10.0)
        assert ended.value.code is Code.SHUTTING_DOWN
