"""Instances and overlap: what several workers, and preprocessing beside execution, are worth."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.serving import Server, forwardpass, serving

pytestmark = pytest.mark.alone

CODE = """
import time


class Model:
    def predict(self, batch):
        time.sleep(0.06)
        return {"y": batch["x"] * 2}


def prepared(amount: float) -> float:
    time.sleep(0.04)
    return amount + 1
"""
DEFINITION = """
[[inputs]]
name = "amount"
type = "number"
[[steps]]
use = "steps:prepared"
output = "x"
datatype = "FP64"
[[steps]]
use = "model"
engine = "python"
file = "steps.py"
call = "Model"
inputs = { x = { datatype = "FP64", shape = [] } }
outputs = { y = { datatype = "FP64", shape = [] } }
[batch]
rows_max = 1
"""


def write(folder: Path, more: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "steps.py").write_text(CODE)
    (folder / "pipeline.toml").write_text(DEFINITION + more)
    return folder


def seconds(server: Server, pipeline: str, requests: int) -> float:
    def ask(n: int) -> None:
        assert server.predict(pipeline, {"amount": n}).json["outputs"] == {"y": (n + 1) * 2.0}

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(6)))  # the batcher learns what preprocessing costs
        started = time.monotonic()
        list(pool.map(ask, range(requests)))
        return time.monotonic() - started


def test_preprocessing_of_the_next_batch_overlaps_execution_of_the_current_one(tmp_path: Path, data: Path) -> None:
    folder = write(tmp_path / "overlap" / "1")
    forwardpass("trust", folder, data=data)
    with serving(folder, data=data) as server:
        one_after_the_other = 20 * (0.04 + 0.06)
        assert seconds(server, "overlap", 20) < 0.85 * one_after_the_other


def test_two_workers_run_two_batches_at_the_same_time(tmp_path: Path, data: Path) -> None:
    folder = write(tmp_path / "two" / "1", "[workers]\ncount = 2\n")
    forwardpass("trust", folder, data=data)
    with serving(folder, data=data) as server:
        assert seconds(server, "two", 20) < 0.6 * 20 * (0.04 + 0.06)
        assert {batch["worker"] for batch in server.batches("two")} == {0, 1}
