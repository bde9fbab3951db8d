"""Versions of pipelines written in Python: checked as a folder would be, written as one, taken in like any other."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from forwardpass.building.functions import Function
from forwardpass.building.source import source_of
from forwardpass.core.clock import random_id
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import Pipeline, Version
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline import definition
from forwardpass.pipeline.intake import Patience
from forwardpass.pipeline.repository import Found, digest_of, scan, take_in
from forwardpass.pipeline.trust import Trust
from forwardpass.steps.own import FILE as OWN_FILE

_UNSAVED = "# These functions are in the process that made them only: they cannot be saved.\n"
_AT_ONCE = Patience(settle_s=0.0)
"""What this process has written itself, or its user asks for now, is finished."""


Contents = Mapping[str, Path | bytes]
"""A folder's files by name: where each is, or what is in it."""


def check(pipeline: Pipeline, files: Contents, own: Sequence[Function]) -> None:
    """Raises Misconfigured with what would be refused of the folder form; what lies elsewhere is not read for this."""
    with tempfile.TemporaryDirectory(prefix="forwardpass-") as folder:
        contents = {**files, **({OWN_FILE: b""} if own else {})}
        for name, content in contents.items():
            definition.put(Path(folder), name, content if isinstance(content, bytes) else b"")
        problems = definition.check(pipeline, file="", folder=Path(folder), kinds=kinds())
    if problems:
        raise Misconfigured(Code.DEFINITION_INVALID, tuple(problems))


def write(pipeline: Pipeline, files: Contents, own: Sequence[Function], folder: Path) -> None:
    """The folder form. Raises Misconfigured, also for functions whose source does not stand by itself."""
    if own:
        source = source_of([function.act for function in own])
        source.prove()
        files = _with_own(files, source.text)
    definition.export(pipeline, folder, files, kinds=kinds())


def staged(name: str, pipeline: Pipeline, files: Contents, own: Sequence[Function], folder: Path) -> Version:
    """The version to be run in this process. Own functions need not have a source: they are here."""
    source = folder / "1"
    try:
        write(pipeline, files, own, source)
    except Misconfigured:
        if not own or source.exists():
            raise
        unsaved = f"{_UNSAVED}# {random_id()}\n"  # the digest of what others do must not be that of these
        definition.export(pipeline, source, _with_own(files, unsaved), kinds=kinds())
    return _taken_in(Found(name, 1, source), folder, trusted=True)


def taken_in(path: Path, folder: Path, *, trusted: bool) -> Version:
    """The only version at a path, copied to ``folder``. Raises Misconfigured."""
    found = scan(path).found
    if len(found) != 1:
        problem = Problem(str(path), "", f"{len(found)} versions are here", "the folder of one, or a model file")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    return _taken_in(found[0], folder, trusted=trusted)


def as_written(version: Version) -> Pipeline:
    """The definition of a version that was taken in, which names the files that its examples send."""
    file = Path(version.folder, definition.FILE_NAME)
    if not file.exists():
        return version.definition
    return definition.parse(file.read_text("utf-8"), file="", folder=file.parent, kinds=kinds())


def _taken_in(found: Found, folder: Path, *, trusted: bool) -> Version:
    store, trust = folder / "store", Trust(folder / "trusted")
    if trusted:
        trust.add(digest_of(found, store, patience=_AT_ONCE), "by the process that runs it")
    return take_in(found, store, kinds=kinds(), trusted=trust, patience=_AT_ONCE)


def _with_own(files: Contents, text: str) -> Contents:
    if OWN_FILE in files:
        problem = Problem("", f"files.{OWN_FILE}", "is written from the functions among the steps", "another name")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    return {**files, OWN_FILE: text.encode()}
