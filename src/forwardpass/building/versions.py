"""Versions of pipelines written in Python: checked as a folder would be, written as one, taken in like any other."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from forwardpass.building.functions import Function
from forwardpass.building.source import prove, source_of
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import Pipeline, Version
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline import definition, manifest
from forwardpass.pipeline.intake import Patience
from forwardpass.pipeline.repository import Found, digest_of, scan, take_in
from forwardpass.pipeline.trust import Trust
from forwardpass.steps.own import FILE as OWN_FILE

_UNSAVED = "# These functions are in the process that made them only: they cannot be saved.\n"
_AT_ONCE = Patience(settle_s=0.0)
"""What this process has written itself, or its user asks for now, is finished."""


def check(pipeline: Pipeline, files: Mapping[str, Path], own: Sequence[Function]) -> None:
    """Raises Misconfigured with what would be refused of the folder form, whose files are not read for this."""
    with tempfile.TemporaryDirectory(prefix="forwardpass-") as folder:
        for name in (*files, *([OWN_FILE] if own else [])):
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        problems = definition.check(pipeline, file="", folder=Path(folder), kinds=kinds())
    if problems:
        raise Misconfigured(Code.DEFINITION_INVALID, tuple(problems))


def write(pipeline: Pipeline, files: Mapping[str, Path], own: Sequence[Function], folder: Path) -> None:
    """The folder form. Raises Misconfigured, also for functions whose source does not stand by itself."""
    if not own:
        definition.export(pipeline, folder, files, kinds=kinds())
        return
    functions = [function.act for function in own]
    _write(pipeline, files, source_of(functions), folder, functions)


def staged(name: str, pipeline: Pipeline, files: Mapping[str, Path], own: Sequence[Function], folder: Path) -> Version:
    """The version to be run in this process. Own functions need not have a source: they are here."""
    source = folder / "1"
    try:
        write(pipeline, files, own, source)
    except Misconfigured:
        if not own or source.exists():
            raise
        _write(pipeline, files, _UNSAVED, source, ())
    return _taken_in(Found(name, 1, source), folder, trusted=True)


def taken_in(path: Path, folder: Path, *, trusted: bool) -> Version:
    """The only version at a path, copied to ``folder``. Raises Misconfigured."""
    found = scan(path).found
    if len(found) != 1:
        problem = Problem(str(path), "", f"{len(found)} versions are here", "the folder of one, or a model file")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    return _taken_in(found[0], folder, trusted=trusted)


def files_of(version: Version) -> dict[str, Path]:
    """The files of a version that was taken in, but for those that describe it."""
    root = Path(version.folder)
    described = (definition.FILE_NAME, manifest.FILE_NAME)
    return {
        place.relative_to(root).as_posix(): place
        for place in sorted(root.rglob("*"))
        if place.is_file() and place.relative_to(root).as_posix() not in described
    }


def _taken_in(found: Found, folder: Path, *, trusted: bool) -> Version:
    store, trust = folder / "store", Trust(folder / "trusted")
    if trusted:
        trust.add(digest_of(found, store, patience=_AT_ONCE), "by the process that runs it")
    return take_in(found, store, kinds=kinds(), trusted=trust, patience=_AT_ONCE)


def _write(
    pipeline: Pipeline, files: Mapping[str, Path], source: str, folder: Path, functions: Sequence[Callable[..., object]]
) -> None:
    if OWN_FILE in files:
        problem = Problem("", f"files.{OWN_FILE}", "is written from the functions among the steps", "another name")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    with tempfile.TemporaryDirectory(prefix="forwardpass-") as place:
        written = Path(place, OWN_FILE)
        written.write_text(source, "utf-8")
        prove(written, functions)
        definition.export(pipeline, folder, {**files, OWN_FILE: written}, kinds=kinds())
