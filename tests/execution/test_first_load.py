"""What a first load found holds for the other workers, and for the next start where the surroundings are the same."""

import asyncio
import os
from pathlib import Path

from forwardpass.core.pipeline import Pipeline, Signature, Step, Version
from forwardpass.execution.first_load import FirstLoad
from forwardpass.execution.wire import Loaded

DIGEST = "d" * 64
LOADED = Loaded(Signature((), ()), "onnx_onnxv1", True, True, 0.0, "", ["a warning"], [{"engine": "python"}], 1.5)


def version(store: Path, digest: str = DIGEST) -> Version:
    (store / digest).mkdir(exist_ok=True)
    return Version("p", 1, digest, str(store / digest), Pipeline((Step("model", {}),)))


def known(first: FirstLoad, worker: int = 0) -> Loaded | None:
    return asyncio.run(asyncio.wait_for(first.known(worker), 5))


def test_nothing_is_known_at_first_and_all_of_it_after_the_next_start(tmp_path: Path) -> None:
    first = FirstLoad(version(tmp_path), 2)
    assert known(first) is None
    first.found(LOADED)
    assert known(FirstLoad(version(tmp_path), 2)) == LOADED


def test_other_workers_wait_for_what_the_first_finds(tmp_path: Path) -> None:
    async def load() -> list[Loaded | None]:
        first = FirstLoad(version(tmp_path), 2)
        others = [asyncio.create_task(first.known(worker)) for worker in (1, 2)]
        assert await first.known(0) is None
        first.found(LOADED)
        return [await other for other in others]

    assert asyncio.run(load()) == [LOADED, LOADED]


def test_a_later_worker_goes_by_the_first_and_tells_its_own_time(tmp_path: Path) -> None:
    first = FirstLoad(version(tmp_path), 2)
    first.found(LOADED)
    other = Loaded(Signature((), ()), "", False, False, 9.0, "tested at the first load", [], [], 0.25)
    assert first.found(other) == Loaded(
        LOADED.signature, LOADED.platform, True, True, 0.0, "", LOADED.warnings, LOADED.settings, 0.25
    )


def test_other_files_and_other_threads_know_nothing_of_it(tmp_path: Path) -> None:
    FirstLoad(version(tmp_path), 2).found(LOADED)
    assert known(FirstLoad(version(tmp_path, "e" * 64), 2)) is None
    assert known(FirstLoad(version(tmp_path), 1)) is None


def test_other_cores_know_nothing_of_it(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    FirstLoad(version(tmp_path), 1).found(LOADED)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert known(FirstLoad(version(tmp_path), 1)) is None or len(cores) == 1
    finally:
        os.sched_setaffinity(0, cores)


def test_what_was_spoiled_is_found_out_again(tmp_path: Path) -> None:
    FirstLoad(version(tmp_path), 2).found(LOADED)
    (kept,) = tmp_path.glob("*.loaded")
    kept.write_bytes(kept.read_bytes()[:-3])
    first = FirstLoad(version(tmp_path), 2)
    assert known(first) is None
    first.found(LOADED)
    assert known(FirstLoad(version(tmp_path), 2)) == LOADED


def test_a_store_that_cannot_be_written_costs_the_next_start_only(tmp_path: Path) -> None:
    made = version(tmp_path)
    first = FirstLoad(made, 2)
    (tmp_path / DIGEST).rmdir()
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    assert first.found(LOADED) == LOADED
    assert known(first, 1) == LOADED


def test_a_version_in_no_store_leaves_nothing_behind(tmp_path: Path) -> None:
    first = FirstLoad(Version("p", 1, DIGEST, str(tmp_path), Pipeline(())), 1)
    first.found(LOADED)
    assert list(tmp_path.iterdir()) == []
