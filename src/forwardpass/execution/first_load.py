"""What the first load of a version found: all its workers go by it, and so does the next start of the server.

Whether rows are independent, and which engine runs a model, is found out once and then holds: no worker of a version
answers in another way than its neighbours. It lies beside the version's folder in the private store, and counts as long
as the machine, the libraries and this package are the same.
"""

import asyncio
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from forwardpass.core.clock import random_id
from forwardpass.core.pipeline import Version
from forwardpass.execution.beginning import environment
from forwardpass.execution.model_step import ModelStep, fits_settings, is_open
from forwardpass.execution.wire import Loaded, encode

KEPT_BYTES_MAX = 4 * 1024 * 1024
PARTS = ("core", "engines", "execution", "steps")
"""Of this package: what a load runs."""


class _Kept(msgspec.Struct, array_like=True, frozen=True):
    surroundings: str
    loaded: Loaded


_decode = msgspec.msgpack.Decoder(_Kept).decode


class FirstLoad:
    """One for all workers of a version. A version that is in no store is remembered as long as this lives."""

    def __init__(self, version: Version, threads: int) -> None:
        self.careful = False  # nothing is tried that could be left out: a worker ended when it was
        self._version = version
        self._threads = threads
        folder = Path(version.folder)
        self._file = folder.parent / f"{version.digest}.{threads}.loaded" if folder.name == version.digest else None
        self._surroundings = surroundings() if self._file else ""
        self._loaded = self._kept()
        self._found = asyncio.Event()

    async def known(self, worker: int) -> Loaded | None:
        """What to load by; None for the first worker where nothing is known: the others wait for what it finds."""
        if worker > 0 and self._loaded is None:
            await self._found.wait()
        return self._loaded

    def found(self, loaded: Loaded) -> Loaded:
        """A worker has loaded. Returns what holds for it: what the first found, with its own time."""
        if self._loaded is None:
            self._loaded = loaded
            self._keep(loaded)
        self._found.set()
        return msgspec.structs.replace(self._loaded, load_s=loaded.load_s)

    def again(self) -> bool:
        """Its worker ended before it had loaded. Returns whether it may load once more, and then tries no engine or layout."""
        definition = self._version.definition
        tries = not definition.workers.count or any(map(is_open, definition.steps))
        if self.careful or self._loaded is not None or not tries:
            return False
        self.careful = True
        return True

    def _kept(self) -> Loaded | None:
        if self._file is None:
            return None
        try:
            kept = _decode(_read(self._file))
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
        return kept.loaded if kept.surroundings == self._surroundings and self._fits(kept.loaded) else None

    def _fits(self, loaded: Loaded) -> bool:
        """Whether a load of this version can have found that: it may have been written by anybody."""
        definition = self._version.definition
        models = [step for step in definition.steps if step.use == ModelStep.name]
        return bool(
            len(loaded.settings) == len(models)
            and all(map(fits_settings, models, loaded.settings))
            and (definition.workers.count or 1 <= loaded.workers <= max(1, self._threads))
        )

    def _keep(self, loaded: Loaded) -> None:
        if self._file is None:
            return
        draft = self._file.with_name(f".tmp-{random_id()}")
        with suppress(OSError):  # no room, no right: then the next start finds it out again
            try:
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(encode(_Kept(self._surroundings, loaded)))
                draft.replace(self._file)
            finally:
                draft.unlink(missing_ok=True)


def _read(place: Path) -> bytes:
    """A plain file that nobody but this user or root can have written. Raises OSError for another."""
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
            raise PermissionError
        return file.read(KEPT_BYTES_MAX)


def surroundings() -> str:
    """A digest of all that an answer can depend on besides the version's own files."""
    return hashlib.sha256("\n".join(_surroundings()).encode()).hexdigest()


def machine() -> Iterator[str]:
    """What an answer can depend on that other servers may have, too: the libraries and the processor."""
    yield sys.version
    yield str(sorted(environment().items()))
    for folder in sys.path:  # what is installed, by the names of its records: reading them takes much longer
        with suppress(OSError):
            yield from sorted(name for name in os.listdir(folder or ".") if name.endswith(".dist-info"))
    with suppress(OSError):
        processor = Path("/proc/cpuinfo").read_text("utf-8", "replace").split("\n\n")[0]
        yield from (
            line for line in processor.splitlines() if line.startswith(("model", "flags", "Features", "CPU part"))
        )


def _surroundings() -> Iterator[str]:
    yield from machine()
    yield str(sorted(os.sched_getaffinity(0)))
    for part in PARTS:
        for folder, _, files in sorted(os.walk(Path(__file__).parents[1] / part)):
            for name in sorted(each for each in files if each.endswith(".py")):
                found = os.stat(os.path.join(folder, name))
                yield f"{name} {found.st_size} {found.st_mtime_ns}"
