"""A virtual environment for each peer: ``python bench/peers/environments.py [PEER ...]``.

They lie under build/bench/venvs and are made again when a peer's requirements.txt or Python changes.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PEERS = Path(__file__).resolve().parent
ENVIRONMENTS = PEERS.parents[1] / "build" / "bench" / "venvs"
LIMIT_S = 600.0


class Unavailable(Exception):
    """A peer cannot be had here. The text says why."""


def names() -> list[str]:
    """The peers that have an environment of their own."""
    return sorted(path.parent.name for path in PEERS.glob("*/requirements.txt"))


def python_of(name: str) -> Path:
    """The interpreter of the peer's environment, whether it is there or not."""
    return ENVIRONMENTS / name / "bin" / "python"


def is_made(name: str) -> bool:
    stamp = ENVIRONMENTS / name / ".made"
    return stamp.exists() and stamp.read_text() == _wanted(name)


def make(name: str, limit_s: float = LIMIT_S) -> Path:
    """The peer's interpreter; makes its environment if it is not there or stands for other requirements.

    Raises Unavailable with what pip said last, or that it took longer than ``limit_s``.
    """
    if is_made(name):
        return python_of(name)
    folder = ENVIRONMENTS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)], name, 60.0)
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--only-binary=:all:", "-r", str(PEERS / name / "requirements.txt")], name, limit_s)
    (folder / ".made").write_text(_wanted(name))
    return python_of(name)


def make_all(wanted: Sequence[str]) -> dict[str, str]:
    """Makes what can be made, one after the other; the others by name, each with why it could not be had."""
    missing: dict[str, str] = {}
    for name in wanted:
        try:
            make(name)
        except Unavailable as error:
            missing[name] = str(error)
    return missing


def _wanted(name: str) -> str:
    requirements = (PEERS / name / "requirements.txt").read_bytes()
    return hashlib.sha256(requirements + sys.version.encode()).hexdigest()


def _run(command: Sequence[str], name: str, limit_s: float) -> None:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Unavailable(f"{name} could not be had: installing took longer than {limit_s:.0f} s") from None
    if process.returncode:
        lines = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()
        why = re.sub(r"\S*/\S*", "…", lines[-1] if lines else "it said nothing")[:200]
        raise Unavailable(f"{name} could not be had: {why}")


def main() -> None:
    wanted = sys.argv[1:] or names()
    missing = make_all(wanted)
    for name in wanted:
        print(missing.get(name, f"{name}: installed"), flush=True)


if __name__ == "__main__":
    main()
