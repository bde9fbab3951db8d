"""Copies a version out of the owner's folder into a private draft: safely, completely and unchanged (FAULTS R5).

Nothing of the source is trusted: every file is opened beneath it without following links, must be a regular file with
one name, and must be the same before and after it was copied. A folder that is still being written is waited for.
"""

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from forwardpass.core import clock
from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.pipeline import onnx_file, signatures
from forwardpass.pipeline.files import (
    identity,
    kind_problem,
    name_problem,
    open_below,
    open_file,
    open_folder,
    sha256_of,
)
from forwardpass.pipeline.manifest import FILE_NAME as MANIFEST
from forwardpass.pipeline.manifest import (
    MANIFEST_BYTES_MAX,
    Entry,
    Manifest,
    compare,
    decode,
    digest_of,
    mismatch,
    read_bytes,
)

FILES_MAX = 10_000
TOTAL_BYTES_MAX = 64 * 1024**3
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".download", ".swp", ".swo", "~")
_NOT_TAKEN_IN = "__pycache__"

Identity = tuple[int, int, int, int]
"""Device, inode, size and time of change of a file: see ``files.identity``."""


@dataclass(frozen=True, slots=True)
class Patience:
    """A source is taken in once it has kept still for ``settle_s``; after ``limit_s`` of waiting it is refused."""

    settle_s: float = 1.0
    limit_s: float = 60.0
    pause: Callable[[float], None] = clock.pause
    wall_s: Callable[[], float] = clock.wall_s


@dataclass(slots=True)
class Look:
    """What one look at a source found. Hidden files are seen (a copy in progress may be one) but not taken in."""

    files: dict[str, Identity] = field(default_factory=dict)
    hidden: dict[str, Identity] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # name -> why it is not taken in
    has_manifest: bool = False

    def newest_s(self) -> float:
        return max((changed / 1e9 for *_, changed in [*self.files.values(), *self.hidden.values()]), default=0.0)

    def leave_out_signatures(self) -> None:
        """Those of bare model files: MODEL.onnx.sig beside MODEL.onnx vouches for it and is no part of a version."""
        for name in [name for name in self.files if name.endswith(signatures.SUFFIX)]:
            model = name.removesuffix(signatures.SUFFIX)
            if onnx_file.is_onnx(model) and model in self.files:
                del self.files[name]

    def add(self, name: str, status: os.stat_result) -> None:
        """Sort one entry that is no folder."""
        last = name.rpartition("/")[2]
        problem = name_problem(name) or kind_problem(status)
        if last.startswith("."):
            self.hidden[name] = identity(status)
        elif problem:
            self.refused[name] = problem
        elif last.endswith(_UNFINISHED) or last.startswith("~"):
            self.refused[name] = "the name of a copy in progress or an editor's draft"
        elif name == MANIFEST:
            self.has_manifest = True
        elif name != signatures.FILE_NAME:  # no part of what it is about
            self.files[name] = identity(status)


class Source:
    """An open folder to take files from; with ``model_file`` only that file and what the caller adds of it."""

    def __init__(self, folder: Path, model_file: str = "") -> None:
        self.folder = folder
        self.wanted: set[str] = {model_file} if model_file else set()  # empty = everything
        self.signature_file = model_file + signatures.SUFFIX if model_file else signatures.FILE_NAME
        self._descriptor = open_folder(folder)

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)

    def look(self) -> Look:
        """Everything that is there now, within the caps on count and size."""
        look = Look()
        if self.wanted:
            for name in self.wanted:
                self._look_at(name, look)
        else:
            self._walk(look)
        look.leave_out_signatures()
        total = sum(size for _, _, size, _ in look.files.values())
        if total > TOTAL_BYTES_MAX:
            raise self._refused(f"{total} bytes in all", f"at most {TOTAL_BYTES_MAX}")
        return look

    def settled(self, patience: Patience) -> Look:
        """A look at a source that nobody has written to for ``settle_s``. Raises Misconfigured (folder_changed)."""
        look = self.look()
        waited_s = 0.0
        while patience.wall_s() - look.newest_s() < patience.settle_s:
            if waited_s >= patience.limit_s:
                found = f"still being written after {waited_s:g} s"
                raise Misconfigured(Code.FOLDER_CHANGED, (Problem(str(self.folder), "", found, "a finished copy"),))
            patience.pause(patience.settle_s)
            waited_s += patience.settle_s
            before, look = look, self.look()
            if look == before:  # also ends the wait for files dated in the future
                break
        return look

    def copy(self, look: Look, names: Iterable[str], draft: Path) -> dict[str, Entry]:
        """Copy these files, durable when this returns. Raises Misconfigured (folder_changed) if one is not as looked at."""
        entries = {}
        for name in names:
            target = draft / name
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_file(self._descriptor, name)
            try:
                before = identity(os.fstat(descriptor))
                with target.open("xb") as file:
                    sha256, size = sha256_of(descriptor, before[2], file.write)
                    file.flush()
                    os.fsync(file.fileno())
                if not before == look.files[name] == identity(os.fstat(descriptor)) or size != before[2]:
                    raise self.changed(name)
            finally:
                os.close(descriptor)
            target.chmod(0o444)
            entries[name] = Entry(size, sha256)
        return entries

    def measure(self, name: str, look: Look) -> Entry:
        """Size and sha256 of a file; reading stops just past the size it had when looked at."""
        descriptor = open_file(self._descriptor, name)
        try:
            sha256, size = sha256_of(descriptor, look.files[name][2])
        finally:
            os.close(descriptor)
        return Entry(size, sha256)

    def changed(self, name: str = "") -> Misconfigured:
        problem = Problem(str(self.folder / name), "", "changed while it was taken in", "a folder that keeps still")
        return Misconfigured(Code.FOLDER_CHANGED, (problem,))

    def manifest(self) -> Manifest:
        """The manifest that came with the source."""
        return decode(read_bytes(self._descriptor, MANIFEST, MANIFEST_BYTES_MAX), str(self.folder / MANIFEST))

    def signatures(self) -> tuple[signatures.Signature, ...]:
        """What lies beside the source, none of it checked. Raises Misconfigured not_signed for what is no such file."""
        file = str(self.folder / self.signature_file)
        try:
            os.stat(self.signature_file, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return ()
        try:
            data = read_bytes(self._descriptor, self.signature_file, signatures.SIGNATURE_BYTES_MAX)
        except Misconfigured as failure:
            problems = tuple(replace(problem, file=file) for problem in failure.problems)
            raise Misconfigured(Code.NOT_SIGNED, problems, detail=failure.detail) from None
        return signatures.decode(data, file)

    def _walk(self, look: Look) -> None:
        pending: list[tuple[str, ...]] = [()]
        count = 0
        while pending:
            parts = pending.pop()
            descriptor = open_below(self._descriptor, parts)
            try:
                names = os.listdir(descriptor)
                count += len(names)
                if count > FILES_MAX:
                    raise self._refused(f"more than {FILES_MAX} entries", "a folder of one version")
                for entry in names:
                    status = os.stat(entry, dir_fd=descriptor, follow_symlinks=False)
                    inner = (*parts, entry)
                    if not stat.S_ISDIR(status.st_mode):
                        look.add("/".join(inner), status)
                    elif onnx_file.is_onnx(entry):
                        look.refused["/".join(inner)] = "a folder, not a file"
                    elif not entry.startswith(".") and entry != _NOT_TAKEN_IN:
                        if problem := name_problem("/".join(inner)):
                            look.refused["/".join(inner)] = problem
                        else:
                            pending.append(inner)
            finally:
                os.close(descriptor)

    def _look_at(self, name: str, look: Look) -> None:
        *parents, last = name.split("/")
        try:
            descriptor = open_below(self._descriptor, parents)
            try:
                status = os.stat(last, dir_fd=descriptor, follow_symlinks=False)
            finally:
                os.close(descriptor)
        except OSError:
            return  # who wanted it says that it is missing
        look.add(name, status)

    def _refused(self, found: str, allowed: str) -> Misconfigured:
        return Misconfigured(Code.MODEL_INVALID, (Problem(str(self.folder), "", found, allowed),))


def verify(folder: Path, digest: str) -> Manifest:
    """The manifest of a version in the store, after hashing all of its files again (FAULTS D6)."""
    with Source(folder.resolve()) as store:
        look = store.look()
        if not look.has_manifest:
            raise mismatch(Problem(str(folder), "", "the manifest is gone", ""))
        expected = store.manifest()
        if digest_of(expected) != digest:
            raise mismatch(Problem(str(folder), "", "the manifest was changed", f"the one with digest {digest}"))
        compare(expected, {name: store.measure(name, look) for name in look.files}, str(folder))
    return expected


def refusals(look: Look, draft: Path, models: Iterable[str]) -> tuple[Problem, ...]:
    """Why what was looked at cannot be taken in, naming the tensors that lie in files which are missing or refused.

    ``models`` are the ONNX files that were copied to ``draft``. Raises Misconfigured for one that is no ONNX file.
    """
    problems = [
        Problem(show(name), "", why, "regular files with plain names, finished") for name, why in look.refused.items()
    ]
    for model in models:
        problems += onnx_file.check_external(references(draft, model), model, lambda name: _beside(look, name))
    return tuple(problems)


def references(draft: Path, model: str) -> tuple[onnx_file.External, ...]:
    """The external data that an ONNX file in this folder refers to."""
    with (draft / model).open("rb") as file:
        return onnx_file.external_data(file.fileno(), model)


def _beside(look: Look, name: str) -> int | str:
    if name in look.files:
        return look.files[name][2]
    parts = name.split("/")
    above = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((look.refused[part] for part in above if part in look.refused), "missing")
