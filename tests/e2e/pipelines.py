"""Pipelines for end-to-end tests: real ONNX graphs, and own code that sleeps, raises, dies or forgets rows when told to."""

import os
from pathlib import Path

from tests import fixtures_onnx

OWN_CODE = '''
import os
import time

import numpy as np


class Model:
    """Row sums; inputs 1000+ms sleep, -1 raises, -2 ends the process, -3 hangs, -4 asks for the most rows it ever got
    at once since it was last asked."""

    def __init__(self):
        self.rows_most = 0

    def predict(self, batch):
        x = batch["x"]
        first = x[:, 0]
        self.rows_most = max(self.rows_most, len(x))
        if (first == -1).any():
            raise ValueError("secret text of the model at /srv/models")
        if (first == -2).any():
            os._exit(7)
        while (first == -3).any():
            time.sleep(0.1)
        pause = first[(first >= 1000) & (first < 9000)]
        if len(pause):
            time.sleep(float(pause.max() - 1000) / 1000)
        y = x.sum(axis=1)
        if (first == -4).any():
            y[first == -4], self.rows_most = self.rows_most, 0
        return {"y": y}


def checked(text: str) -> str:
    if text == "bad":
        raise ValueError("this text is bad")
    return text.upper()
'''

OWN_MODEL = """
[[inputs]]
name = "x"
type = "tensor"
datatype = "FP64"
shape = [2]

[[steps]]
use = "model"
engine = "python"
file = "steps.py"
call = "Model"
inputs = { x = { datatype = "FP64", shape = [2] } }
outputs = { y = { datatype = "FP64", shape = [] } }

[[golden]]
request = { x = [1.0, 2.0] }
expect = { y = 3.0 }
[[golden]]
request = { x = [2.0, 2.0] }
expect = { y = 4.0 }
"""

RUNNING_SUM = """
[[steps]]
use = "model"
engine = "onnxruntime"
file = "model.onnx"
state = { total = "after" }
constants = { scale = 1 }
"""
"""Of the accumulator of tests/fixtures_onnx.py: what came so far. In a sequence with a section of that name."""

OWN_STEP = """
[[inputs]]
name = "text"
type = "text"

[[steps]]
use = "steps:checked"
output = "shout"
datatype = "BYTES"
"""


def write_repository(root: Path) -> None:
    """One folder a pipeline, version 1."""
    graphs = {
        "identity": fixtures_onnx.identity,
        "add": fixtures_onnx.add,
        "divide": fixtures_onnx.div_int32,
        "leading-one": fixtures_onnx.leading_one,
        "batch-mean": fixtures_onnx.mean_over_batch,
        "nan": fixtures_onnx.nan_maker,
        "huge": fixtures_onnx.constant_of_shape,
        "strings": fixtures_onnx.text_identity,
    }
    for name, graph in graphs.items():
        folder = root / name / "1"
        folder.mkdir(parents=True)
        graph(folder / "model.onnx")
    wide = root / "wide" / "1"
    wide.mkdir(parents=True)
    fixtures_onnx.identity(wide / "model.onnx", ("N", 6, 320, 640))
    write_own(root / "own" / "1", OWN_MODEL)
    write_own(root / "limit32" / "1", OWN_MODEL + "\n[batch]\nrows_max = 32\n")
    write_own(root / "wait" / "1", OWN_MODEL + "\n[batch]\nwait_ms = 50\n")
    write_own(root / "single" / "1", OWN_MODEL + "\n[batch]\nrows_max = 1\nwait_ms = 500\n")
    write_own(root / "rows" / "1", OWN_STEP)
    long_ago = 1_000_000_000  # files that were just written are given a second to settle
    for path in root.rglob("*"):
        os.utime(path, (long_ago, long_ago))


def write_own(folder: Path, definition: str) -> None:
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(definition)
    (folder / "steps.py").write_text(OWN_CODE)
