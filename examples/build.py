"""Build the example pipelines into a repository that ``forwardpass serve`` takes: python examples/build.py [NAME ...]"""

import argparse
import fcntl
import hashlib
import importlib
import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
WORK = EXAMPLES / ".work"
NAMES = (
    "sentences",
    "filetype",
    "fraud",
    "ocr",
    "ranking",
    "search",
    "recommendation",
    "mixed",
    "safety",
    "voice",
    "voice_live",
    "speech",
)
LIBRARIES = ("numpy", "onnx", "onnxruntime", "pandas", "pillow", "scikit-learn", "skl2onnx", "tokenizers")
UNAVAILABLE_EXIT = 3
SOURCES = {".py", ".toml", ".jsonl"}
FROM = {
    "ranking": ("sentences",),
    "search": ("sentences", "recommendation"),
    "recommendation": ("sentences",),
    "voice_live": ("voice",),
    "speech": ("voice",),
}
"""Examples that are made of others' sources."""


def digest(files: list[Path], *words: str) -> str:
    """One sha256 over these files' names and content, and these words."""
    total = hashlib.sha256("\n".join(words).encode())
    for file in sorted(files):
        total.update(f"\n{file.name}\n".encode())
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def sources_digest(name: str) -> str:
    versions = [f"{library} {importlib.metadata.version(library)}" for library in LIBRARIES]
    folders = (EXAMPLES, *(EXAMPLES / each for each in (name, *FROM.get(name, ()))))
    files = [file for folder in folders for file in folder.iterdir() if file.suffix in SOURCES]
    return digest(files, *versions)


def state(name: str, target: Path) -> dict[str, str]:
    """What a stamp holds: the example is up to date while neither its sources nor its built files changed."""
    built = [file for file in target.rglob("*") if file.is_file()] if target.is_dir() else []
    return {"sources": sources_digest(name), "built": digest(built)}


def build(name: str, target: Path) -> str:
    """Build into a new folder, then put it in place of ``target``: a build that fails leaves the old one as it was."""
    module = importlib.import_module(f"examples.{name}.build")
    fresh = WORK / "building" / f"{name}-{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        summary: str = module.build(fresh, WORK / "downloads")
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return summary


def bring_up_to_date(name: str, output: Path) -> str:
    target = output / name / "1"
    stamp = output / ".stamps" / f"{name}.json"  # a server does not look into hidden folders
    if stamp.exists() and json.loads(stamp.read_text()) == state(name, target):
        return "unchanged"
    summary = build(name, target)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(json.dumps(state(name, target)))
    return summary


@contextmanager
def only_one() -> Iterator[None]:
    """One build at a time on this machine, whoever asked for it: the others wait."""
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} (default: all)")
    parser.add_argument("--output", type=Path, default=WORK / "models", help="the repository's folder (%(default)s)")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(NAMES)):
        parser.error(f"no example is named {', '.join(unknown)}; there are {', '.join(NAMES)}")
    sys.path.insert(0, str(EXAMPLES.parent))  # this file may run as a script; the examples import each other by package
    from examples.packages import Unavailable

    for name in arguments.names or NAMES:
        try:
            with only_one():
                summary = bring_up_to_date(name, arguments.output)
            print(f"{name}: {summary}", flush=True)
        except Unavailable as missing:
            print(f"{name}: {missing}", file=sys.stderr)
            return UNAVAILABLE_EXIT
    return 0


if __name__ == "__main__":
    sys.exit(main())
