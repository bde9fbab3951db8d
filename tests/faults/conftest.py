"""One server over the faulty pipelines, a control client that never stops asking it, and the oracle after every case."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.faults.faulty import SECRET, write_faulty
from tests.faults.oracle import Control, Oracle
from tests.serving import Server, forwardpass, serving, wait_until


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    root = tmp_path_factory.mktemp("models")
    write_faulty(root)
    forwardpass("trust", root, data=data)
    return root


@pytest.fixture(scope="session")
def served(repository: Path, data: Path) -> Iterator[tuple[Server, Control]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_PASSWORD", SECRET)
        with (
            serving(repository, data=data, settings={"limits.header_time_s": 2.0, "grpc.serve": "on"}) as running,
            Control(running) as control,
        ):
            wait_until(lambda: b"\nready: " in running.log.read_bytes())  # the last line that is not JSON
            yield running, control


@pytest.fixture
def server(served: tuple[Server, Control], data: Path) -> Iterator[Server]:
    """The server all cases share; whatever a case did to it, the oracle's promises hold afterwards."""
    running, control = served
    oracle = Oracle(running, control, data / "store")
    yield running
    oracle.check()


class Figure(Protocol):
    def __call__(self, what: str, value: str, bar: str) -> None: ...


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Has ``make faults`` print what a test measured, beside the bar that the test holds it to."""
    return lambda what, value, bar: record_property("figure", f"{what}: {value} (bar: {bar})")
