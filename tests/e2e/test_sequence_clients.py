"""The Python client in sequences of a real server, and how many of them the server says there are."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx
from tests.e2e.pipelines import RUNNING_SUM
from tests.serving import Server, serving, wait_until

from forwardpass.client import AsyncClient, Client, Prediction, RequestError

ONE = {"x": [1.0, 0.0]}


def repository(root: Path) -> Path:
    for number in (1, 2):
        folder = root / "sum" / str(number)
        fixtures_onnx.accumulator(folder / "model.onnx")
        (folder / "pipeline.toml").write_text(RUNNING_SUM + "[sequence]\n")
        for path in folder.iterdir():
            os.utime(path, (1_000_000_000, 1_000_000_000))
    return root


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root, data = tmp_path_factory.mktemp("sequences"), tmp_path_factory.mktemp("data")
    with serving(repository(root), data=data, settings={"run.versions": "all"}) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{server.port}") as made:
        yield made


def total(prediction: Prediction) -> float:
    first: float = prediction.outputs["y"][0]
    return first


def latest(server: Server) -> Any:
    (version,) = [each for each in server.status()["versions"] if each["version"] == 2]
    return version


def live(server: Server) -> tuple[int, bool]:
    """How many the status says there are, and whether the metrics say so too."""
    version = latest(server)
    sample = f'forwardpass_sequences{{pipeline="sum",version="2"}} {version["sequences"]}\n'
    return version["sequences"], sample in server.get("/metrics", admin=True).body.decode()


def test_a_sequence_remembers_until_its_last_request(client: Client, server: Server) -> None:
    before, _ = live(server)
    with client.sequence("sum") as sums:
        assert [total(sums.predict({"x": np.array([part, 0], "float32")})) for part in range(5)] == [0, 1, 3, 6, 10]
        assert live(server) == (before + 1, True)
        assert total(sums.predict(ONE, last=True)) == 11
    assert live(server) == (before, True)


def test_sequences_of_one_async_client_do_not_mix(server: Server) -> None:
    async def one(client: AsyncClient, step: float) -> list[float]:
        async with client.sequence("sum") as sums:
            return [total(await sums.predict({"x": [step, 0.0]}, last=part == 9)) for part in range(10)]

    async def run() -> list[list[float]]:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            return await asyncio.gather(*(one(client, step) for step in range(8)))

    assert asyncio.run(run()) == [[step * part for part in range(1, 11)] for step in range(8)]


def test_a_refused_request_changes_nothing_and_the_sequence_goes_on(client: Client) -> None:
    with client.sequence("sum") as sums:
        sums.predict(ONE)
        with pytest.raises(RequestError, match="wrong_type"):
            sums.predict({"x": ["1", 0.0]})
        assert total(sums.predict(ONE, last=True)) == 2.0


def test_a_sequence_goes_on_in_the_version_that_began_it(client: Client, server: Server) -> None:
    with client.sequence("sum", version=1) as older, client.sequence("sum") as newer:
        assert [older.predict(ONE).version, newer.predict(ONE).version] == [1, 2]
        assert total(newer.predict(ONE, last=True)) == total(older.predict(ONE, last=True)) == 2.0


def test_a_lost_sequence_says_so_and_a_new_one_begins_from_zero(client: Client, server: Server) -> None:
    with client.sequence("sum") as sums:
        sums.predict(ONE)
        os.kill(latest(server)["workers"][0]["pid"], signal.SIGKILL)
        wait_until(lambda: live(server) == (0, True))
        with pytest.raises(RequestError) as caught:
            sums.predict(ONE)
    assert (caught.value.code, caught.value.status) == ("sequence_lost", 410)
    with client.sequence("sum") as sums:
        assert total(sums.predict(ONE, last=True)) == 1.0
