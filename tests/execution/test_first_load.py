"""What a first load found holds for the other workers, and for the next start where the surroundings are the same."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forwardpass.core.pipeline import Pipeline, Signature, Step, Version, Workers
from forwardpass.execution.first_load import FirstLoad
from forwardpass.execution.wire import Loaded

DIGEST = "d" * 64
SETTINGS = {"engine": "onnxruntime", "threads": 2, "optimization": "all", "spinning": False}
LOADED = Loaded(Signature((), ()), "onnx_onnxv1", True, True, 0.0, "", ["a warning"], [SETTINGS], 1.5)
MODEL = Step("model", {"engine": "onnxruntime", "file": "m.onnx"})
OPEN = Step("model", {"engine": "auto", "file": "m.onnx", "tolerance": {"absolute": 0.1}})


def version(store: Path, digest: str = DIGEST, step: Step = MODEL, count: int = 1) -> Version:
    (store / digest).mkdir(exist_ok=True)
    return Version("p", 1, digest, str(store / digest), Pipeline((step,), workers=Workers(count=count)))


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


def with_settings(**settings: Any) -> Loaded:
    return msgspec.structs.replace(LOADED, settings=[{**SETTINGS, **settings}])


@pytest.mark.parametrize(
    "loaded",
    [
        with_settings(engine="python"),  # which would run the model file as code
        with_settings(engine=["onnxruntime"]),
        with_settings(threads="all"),
        with_settings(threads=True),
        with_settings(optimization="most"),
        msgspec.structs.replace(LOADED, settings=[{"engine": "onnxruntime", "threads": 2}]),
        msgspec.structs.replace(LOADED, settings=[]),
    ],
)
def test_what_no_load_of_the_version_can_have_found_is_found_out_again(tmp_path: Path, loaded: Loaded) -> None:
    FirstLoad(version(tmp_path), 2).found(loaded)
    assert known(FirstLoad(version(tmp_path), 2)) is None


@pytest.mark.parametrize("workers", [0, 3, 1_000_000])
def test_a_number_of_workers_that_the_threads_do_not_allow_is_found_out_again(tmp_path: Path, workers: int) -> None:
    """Three workers of one thread are what a start with three threads found, and left to one with two."""
    FirstLoad(version(tmp_path, count=0), 2).found(msgspec.structs.replace(LOADED, workers=workers))
    assert known(FirstLoad(version(tmp_path, count=0), 2)) is None
    assert known(FirstLoad(version(tmp_path, count=3), 2)) is not None


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        ({"auto": ["chosen: it"]}, True),
        ({"auto": ["chosen: it"], "engine": "openvino", "precision": "bf16"}, True),
        ({"auto": ["chosen: it"], "engine": "openvino"}, False),
        ({"auto": ["chosen: it"], "engine": "auto"}, False),
        ({"auto": "chosen: it"}, False),
        ({"auto": []}, False),
        ({}, False),
    ],
)
def test_a_choice_holds_only_with_its_reasons_and_the_options_of_its_engine(
    tmp_path: Path, changed: dict[str, Any], holds: bool
) -> None:
    FirstLoad(version(tmp_path, step=OPEN), 2).found(with_settings(**changed))
    assert (known(FirstLoad(version(tmp_path, step=OPEN), 2)) is not None) is holds


def deep(kept: Path) -> None:
    """Text in the place of nothing much: arrays in arrays, deeper than a decoder follows."""
    spoiled = kept.read_bytes().replace(b"\xa6engine\xabonnxruntime", b"\xa6engine" + b"\x91" * 9999 + b"\xc0")
    kept.write_bytes(spoiled)


def linked(kept: Path) -> None:
    kept.symlink_to(kept.rename(kept.with_name("elsewhere")))


def piped(kept: Path) -> None:
    kept.unlink()
    os.mkfifo(kept)


def writable(kept: Path) -> None:
    kept.chmod(0o666)


@pytest.mark.parametrize("spoil", [deep, linked, piped, writable])
def test_what_others_may_have_put_there_is_not_believed(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    FirstLoad(version(tmp_path), 2).found(LOADED)
    (kept,) = tmp_path.glob("*.loaded")
    spoil(kept)
    assert known(FirstLoad(version(tmp_path), 2)) is None


def test_the_kept_file_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FirstLoad(version(tmp_path), 2).found(LOADED)
    finally:
        os.umask(before)
    (kept,) = tmp_path.glob("*.loaded")
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("step", "count"), [(OPEN, 1), (MODEL, 0)])
def test_what_a_worker_ended_by_trying_is_not_tried_twice(tmp_path: Path, step: Step, count: int) -> None:
    first = FirstLoad(version(tmp_path, step=step, count=count), 2)
    assert not first.careful
    assert first.again()
    assert first.careful
    assert not first.again()


def test_a_worker_that_tried_nothing_or_was_told_all_has_no_second_load(tmp_path: Path) -> None:
    assert not FirstLoad(version(tmp_path), 2).again()
    first = FirstLoad(version(tmp_path, step=OPEN), 2)
    first.found(LOADED)
    assert not first.again()


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
