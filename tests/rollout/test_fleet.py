"""Versions that come, go and break, over real workers."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests import fixtures_onnx as models

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failure
from forwardpass.core.pipeline import Pipeline, Signature, Step, Version, Workers
from forwardpass.execution.wire import Loaded
from forwardpass.rollout.fleet import Fleet
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant

pytestmark = pytest.mark.anyio

MODEL = Step("model", {"engine": "onnxruntime", "file": "m.onnx"})


class Time:
    """A clock that can break, as a stand-in for a defect of ours."""

    broken = False

    def __call__(self) -> float:
        if self.broken:
            raise RuntimeError("a defect")
        return monotonic_s()


async def accept(variant: Variant) -> None:
    """No golden examples."""


def version(folder: Path, number: int, **parts: Any) -> Version:
    models.identity(folder / "m.onnx", ("N", 2))
    return Version("p", number, "0" * 64, str(folder), Pipeline((MODEL,), **parts))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def fleet(time: Time | None = None) -> AsyncIterator[tuple[Fleet, Routes]]:
    routes = Routes()
    async with Fleet(routes, accept, threads=1, clock=time or Time()) as made:
        yield made, routes


async def test_a_draining_version_gives_way_at_once_and_ends_with_its_last_request(tmp_path: Path) -> None:
    async with fleet() as (made, routes):
        old, new = await made.load(version(tmp_path, 1)), await made.load(version(tmp_path, 2))
        assert routes.find("p", None) is new
        new.enter()
        unloading = asyncio.create_task(made.unload("p", 2, 30.0))
        await asyncio.sleep(0)
        assert routes.find("p", None) is old
        assert new.stage is Stage.DRAINING
        new.exit()
        await asyncio.wait_for(unloading, 5.0)
        assert routes.variants() == [old]
        with pytest.raises(Failure) as late:
            new.enter()
        assert late.value.code is Code.NOT_READY
        await made.close(0.0)


async def test_closing_while_an_unload_drains_waits_for_it(tmp_path: Path) -> None:
    async with fleet() as (made, routes):
        only = await made.load(version(tmp_path, 1))
        only.enter()
        unloading = asyncio.create_task(made.unload("p", 1, 30.0))
        await asyncio.sleep(0)
        closing = asyncio.create_task(made.close(30.0))
        await asyncio.wait((closing,), timeout=0.1)
        assert only.stage is Stage.DRAINING
        only.exit()
        await asyncio.wait_for(asyncio.gather(unloading, closing), 5.0)
        assert routes.variants() == []


async def test_a_version_that_ended_by_a_defect_is_gone_and_can_be_loaded_again(tmp_path: Path) -> None:
    time = Time()
    async with fleet(time) as (made, routes):
        await made.load(version(tmp_path, 1))
        time.broken = True
        async with asyncio.timeout(5.0):
            while routes.variants():
                await asyncio.sleep(0.05)
        time.broken = False
        again = await made.load(version(tmp_path, 1))
        assert routes.find("p", None) is again
        await made.close(0.0)


async def outcome(act: Coroutine[Any, Any, object]) -> Code | None:
    try:
        await act
    except Failure as failure:
        return failure.code
    return None


async def test_a_load_that_the_end_of_the_fleet_overtakes_is_told_so_and_leaves_nothing(tmp_path: Path) -> None:
    async with fleet() as (made, routes):
        loading = asyncio.create_task(outcome(made.load(version(tmp_path, 1))))
        await asyncio.sleep(0)
        assert [variant.stage for variant in routes.variants()] == [Stage.LOADING]
        await made.close(30.0)
        assert await loading is Code.SHUTTING_DOWN
        assert routes.variants() == []


async def test_nothing_is_loaded_once_the_fleet_ends(tmp_path: Path) -> None:
    async with fleet() as (made, _):
        old = await made.load(version(tmp_path, 1))
        old.enter()
        closing = asyncio.create_task(made.close(30.0))
        await asyncio.sleep(0)
        assert await outcome(made.load(version(tmp_path, 2))) is Code.SHUTTING_DOWN
        old.exit()
        await closing
    assert await outcome(made.load(version(tmp_path, 3))) is Code.SHUTTING_DOWN


async def test_an_unload_says_that_it_begins_only_where_there_is_something_to_unload(tmp_path: Path) -> None:
    leaving: list[Stage] = []
    async with fleet() as (made, routes):
        loading = asyncio.create_task(made.load(version(tmp_path, 1)))
        await asyncio.sleep(0)
        (variant,) = routes.variants()
        await made.unload("p", 1, 30.0, lambda: leaving.append(variant.stage))
        assert loading.done() and leaving == [Stage.READY]
        assert (
            await outcome(made.unload("p", 1, 30.0, lambda: leaving.append(variant.stage))) is Code.PIPELINE_NOT_FOUND
        )
    assert leaving == [Stage.READY]


class Slot:
    """A worker that has loaded."""

    def __init__(self, independent: bool) -> None:
        self._loaded = Loaded(Signature((), ()), "none", independent, True, 0.0, "so it is", [], [], 0.0)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def first_load(self) -> Loaded:
        return self._loaded

    async def vacant(self, ahead_at: float | None) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("independent", [(True, False), (False, True)])
async def test_rows_share_batches_only_when_every_worker_found_them_independent(
    tmp_path: Path, independent: tuple[bool, bool]
) -> None:
    made = Variant(version(tmp_path, 1, workers=Workers(count=2)), threads=1, clock=monotonic_s)
    made.workers = cast(Any, [Slot(each) for each in independent])
    running = asyncio.create_task(made.run(accept))
    assert await made.settled() is Stage.READY
    assert (made.batch.enabled, made.batching_reason) == (False, "off: so it is")
    running.cancel()
    await asyncio.wait((running,))
