"""What the sources hold and what is loaded of it; loads and unloads are played."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forwardpass.catalogue import Catalogue, Key
from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed, Failure, Misconfigured, Problem, Refused
from forwardpass.core.pipeline import Pipeline, Step, Version
from forwardpass.pipeline.repository import Found
from forwardpass.rollout.acts import Acts
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant


class Server:
    """Loads by making a variant, and fails for the versions in ``trouble``; ``sources`` have a/1, a/2 and b/1.

    ``begun`` counts what was begun, which waits for ``go``.
    """

    def __init__(self, folder: Path, *, every: bool = False) -> None:
        self.folder = folder
        self.routes = Routes()
        self.trouble: dict[Key, Exception] = {}
        self.failures: dict[Key, Failure] = {}
        self.wanted: set[Key] = set()
        self.acts = Acts()
        self.begun, self.go = asyncio.Semaphore(0), asyncio.Event()
        self.go.set()
        self.meanwhile: Callable[[], None] = lambda: None
        self.told: list[str] = []
        for place in ("a/1", "a/2", "b/1"):
            (folder / place).mkdir(parents=True)
        self.catalogue = Catalogue(
            [folder], self.routes, self.load, self.unload, self.failures, self.wanted, self.acts, every=every
        )

    async def load(self, found: Found) -> None:
        self.told.append(f"load {found.pipeline}/{found.number}")
        self.begun.release()
        await self.go.wait()
        self.meanwhile()
        if (found.pipeline, found.number) in self.trouble:
            raise self.trouble[found.pipeline, found.number]
        self.add(found.pipeline, found.number)

    async def unload(self, pipeline: str, number: int) -> None:
        self.told.append(f"unload {pipeline}/{number}")
        self.begun.release()
        await self.go.wait()
        self.routes.remove(self.routes.find(pipeline, number))

    def add(self, pipeline: str, number: int, stage: Stage = Stage.READY) -> None:
        version = Version(pipeline, number, "digest", "/folder", Pipeline((Step("model"),)))
        variant = Variant(version, threads=1, clock=monotonic_s)
        variant.stage = stage
        self.routes.add(variant)

    def outcome(self, act: Coroutine[Any, Any, None]) -> Code | None:
        try:
            asyncio.run(act)
        except Failure as failure:
            return failure.code
        return None

    def states(self) -> dict[str, tuple[str, str]]:
        entries = asyncio.run(self.catalogue.index())
        return {f"{entry['name']}/{entry['version']}": (entry["state"], entry["reason"]) for entry in entries}


def test_the_index_lists_what_could_be_loaded_and_what_is(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.add("a", 2)
    server.add("b", 1, Stage.VERIFYING)
    server.add("gone", 7, Stage.DRAINING)
    assert server.states() == {
        "a/1": ("UNAVAILABLE", "unloaded"), "a/2": ("READY", ""), "b/1": ("LOADING", ""), "gone/7": ("UNLOADING", ""),
    }  # fmt: skip


def test_a_version_that_failed_at_the_start_says_so_without_a_path(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.failures["a", 2] = Misconfigured(Code.MODEL_INVALID, (Problem(str(tmp_path), "", "bad", ""),))
    assert server.states()["a/2"] == ("UNAVAILABLE", "could not be loaded: model_invalid")


@pytest.mark.parametrize(("every", "told"), [(False, ["load a/2"]), (True, ["load a/1", "load a/2"])])
def test_a_load_takes_the_newest_version_or_all_as_the_settings_say(
    tmp_path: Path, every: bool, told: list[str]
) -> None:
    server = Server(tmp_path, every=every)
    asyncio.run(server.catalogue.load("a"))
    assert server.told == told


def test_what_is_loaded_is_not_loaded_again(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.add("a", 2)
    asyncio.run(server.catalogue.load("a"))
    assert server.told == []


@pytest.mark.parametrize(("stage", "outcome"), [(Stage.READY, None), (Stage.DRAINING, Code.NOT_READY)])
def test_a_load_that_somebody_else_did_meanwhile_is_done_if_it_answers(
    tmp_path: Path, stage: Stage, outcome: Code | None
) -> None:
    server = Server(tmp_path)
    server.trouble["a", 2] = Refused(Code.CONFLICT, "loaded already")
    server.meanwhile = lambda: server.add("a", 2, stage)
    assert server.outcome(server.catalogue.load("a")) is outcome
    assert server.told == ["load a/2"]


def test_a_load_and_an_unload_go_on_though_nobody_waits_any_more(tmp_path: Path) -> None:
    server = Server(tmp_path)

    async def run() -> None:
        for act, state in ((server.catalogue.load, "READY"), (server.catalogue.unload, "UNAVAILABLE")):
            server.go.clear()
            asked = asyncio.create_task(act("a"))
            await asyncio.wait_for(server.begun.acquire(), 5.0)
            asked.cancel()
            await asyncio.wait((asked,))
            server.go.set()
            await server.acts.ended()
            assert [entry["state"] for entry in await server.catalogue.index()][1] == state

    asyncio.run(run())


def test_a_load_that_fails_though_nobody_waits_is_told_in_the_log_and_the_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(tmp_path)
    server.trouble["a", 2] = Misconfigured(Code.MODEL_INVALID, "bad")

    async def run() -> None:
        server.go.clear()
        asked = asyncio.create_task(server.catalogue.load("a"))
        await asyncio.wait_for(server.begun.acquire(), 5.0)
        asked.cancel()
        server.go.set()
        await asyncio.wait((asked,))
        await server.acts.ended()

    asyncio.run(run())
    assert "bad" in caplog.text and "nobody waited" in caplog.text
    assert server.states()["a/2"] == ("UNAVAILABLE", "could not be loaded: model_invalid")


def test_an_unload_gives_up_what_failed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.failures["a", 1] = Misconfigured(Code.MODEL_INVALID, "bad")
    server.wanted |= {("a", 1), ("a", 2), ("b", 1)}
    server.trouble["a", 2] = Misconfigured(Code.MODEL_INVALID, "bad too")
    assert server.outcome(server.catalogue.load("a")) is Code.MODEL_INVALID
    asyncio.run(server.catalogue.unload("a"))
    assert server.told == ["load a/2", "unload a/1", "unload a/2"]
    assert server.states()["a/2"] == ("UNAVAILABLE", "unloaded")


def test_a_load_that_fails_says_no_path_and_the_log_says_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = Server(tmp_path)
    problem = Problem("pipeline.toml", "steps[0].use", "found 'x'", "a step", 3)
    server.trouble["a", 2] = Misconfigured(Code.DEFINITION_INVALID, (problem,))
    with pytest.raises(Failed) as failed, caplog.at_level(logging.ERROR):
        asyncio.run(server.catalogue.load("a"))
    assert failed.value.code is Code.DEFINITION_INVALID
    assert str(tmp_path) not in failed.value.text
    assert f"{tmp_path}/a/2/pipeline.toml:3: steps[0].use" in caplog.text
    assert server.states()["a/2"] == ("UNAVAILABLE", "could not be loaded: definition_invalid")
    server.trouble.clear()
    asyncio.run(server.catalogue.load("a"))
    assert server.states()["a/2"] == ("READY", "")


def test_a_defect_in_a_load_is_that_versions_failure_and_the_log_says_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(tmp_path)
    server.trouble["a", 2] = ValueError("a defect")
    with pytest.raises(Failed) as failed, caplog.at_level(logging.ERROR):
        asyncio.run(server.catalogue.load("a"))
    assert (failed.value.code, "a defect" in failed.value.text) == (Code.LOAD_FAILED, False)
    assert "ValueError: a defect" in caplog.records[0].__dict__["event"]["detail"]
    assert server.states()["a/2"] == ("UNAVAILABLE", "could not be loaded: load_failed")


def test_an_unload_takes_all_versions_the_oldest_first(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.add("a", 2)
    server.add("a", 1)
    asyncio.run(server.catalogue.unload("a"))
    asyncio.run(server.catalogue.unload("a"))  # it is unloaded already
    assert server.told == ["unload a/1", "unload a/2"]


def test_what_the_sources_do_not_have_is_neither_loaded_nor_unloaded(tmp_path: Path) -> None:
    server = Server(tmp_path)
    for act in (server.catalogue.load, server.catalogue.unload):
        with pytest.raises(Refused) as refused:
            asyncio.run(act("c"))
        assert refused.value.code is Code.PIPELINE_NOT_FOUND


def test_a_repository_that_cannot_be_read_is_our_fault_and_not_shown(tmp_path: Path) -> None:
    server = Server(tmp_path / "models")
    (tmp_path / "models").rename(tmp_path / "moved")
    with pytest.raises(Failed) as failed:
        asyncio.run(server.catalogue.index())
    assert (failed.value.code, failed.value.text) == (Code.INTERNAL, "the repository cannot be read")
    assert str(tmp_path) in failed.value.detail
