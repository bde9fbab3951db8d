"""Pipelines that can be driven into every fault: graphs that end the process or ask for all memory, own code that tries."""

import os
from pathlib import Path

from onnx import TensorProto
from tests import fixtures_onnx
from tests.e2e.pipelines import OWN_CODE, OWN_MODEL

SECRET = "canary-3f1c9a7e5b"
"""In the server's environment: no worker, no answer and no log line may know it."""

CONTROL = "control"

MODEL = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n'
SETTINGS = {
    "divide": "[batch]\nwait_ms = 300\n",  # so that strangers share a batch with the one that kills
    "huge": "[workers]\nmemory_max_mb = 4096\n",
}
GRAPHS = {
    CONTROL: fixtures_onnx.identity,
    "identity": fixtures_onnx.identity,
    "half": lambda path: fixtures_onnx.identity(path, ("N", 2), TensorProto.FLOAT16),
    "divide": fixtures_onnx.div_int32,
    "unique": fixtures_onnx.unique_axis0,
    "huge": fixtures_onnx.constant_of_shape,
    "large": fixtures_onnx.constant_of_shape,
    "nan": fixtures_onnx.nan_maker,
    "strings": fixtures_onnx.text_identity,
}

PROBE_CODE = """
import os
import socket
import subprocess


def _connect(where):
    with socket.create_connection(("127.0.0.1", int(where)), 2):
        return "connected"


def _listen(where):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "bound"


def _write(where):
    with open(where, "w") as file:
        return str(file.write("x"))


def _read(where):
    with open(where, "rb") as file:
        return repr(file.read(4096))


def _run(where):
    done = subprocess.run(["/bin/cat", where], capture_output=True)
    if done.returncode != 0:
        raise PermissionError(done.returncode, "the program failed")
    return repr(done.stdout)


def _print(where):
    line = "FPW1 \\x1b[31m\\x01" + "y" * (int(where) - 20) + "\\n"
    os.write(1, line.encode()) if where == "1" else print(line * 200)
    return "printed"


ACTS = {
    "read": _read,
    "write": _write,
    "list": lambda where: repr(os.listdir(where)),
    "make": lambda where: str(os.mkdir(where)),
    "connect": _connect,
    "listen": _listen,
    "run": _run,
    "print": _print,
    "environment": lambda where: repr(dict(os.environ)),
    "environment-of-server": lambda where: _read(f"/proc/{os.getppid()}/environ"),
    "memory-of-server": lambda where: _read(f"/proc/{os.getppid()}/maps"),
    "root-of-server": lambda where: _read(f"/proc/{os.getppid()}/root{where}"),
    "signal-server": lambda where: str(os.kill(os.getppid(), 0)),
}


def attempt(text: str) -> str:
    act, _, where = text.partition(" ")
    try:
        return ACTS[act](where) if act in ACTS else act.upper()
    except OSError as error:
        return f"refused: {type(error).__name__}"
"""

PROBE = """
[[inputs]]
name = "text"
type = "text"

[[steps]]
use = "steps:attempt"
output = "result"
datatype = "BYTES"

[[golden]]
request = { text = "hello" }
expect = { result = "HELLO" }
"""


def write_faulty(root: Path) -> None:
    """One folder a pipeline, version 1."""
    for name, graph in GRAPHS.items():
        folder = root / name / "1"
        graph(folder / "model.onnx")
        if name in SETTINGS:
            (folder / "pipeline.toml").write_text(MODEL + SETTINGS[name])
    write_own(root / "own" / "1", OWN_MODEL, OWN_CODE)
    write_own(root / "probe" / "1", PROBE, PROBE_CODE)
    settle(root)


def write_own(folder: Path, definition: str, code: str) -> None:
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(definition)
    (folder / "steps.py").write_text(code)


def settle(root: Path) -> None:
    """Date everything back: files that were just written are given a second to settle."""
    for path in root.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
