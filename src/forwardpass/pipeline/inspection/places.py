"""What is at a path, a file or a folder: what each file is, and whether each version would be taken in."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.pipeline import signatures
from forwardpass.pipeline.definition import is_model_file
from forwardpass.pipeline.files import DEPTH_MAX
from forwardpass.pipeline.inspection.files import inspect_file
from forwardpass.pipeline.inspection.reading import Report
from forwardpass.pipeline.repository import Found, examine, scan
from forwardpass.pipeline.rules import has_own_code
from forwardpass.steps.protocol import StepKind

FILES_MAX = 1000
TIME_MAX_S = 120.0
_TOO_LATE = f"not looked into: the {TIME_MAX_S:g} s for all of it are over"


@dataclass(slots=True)
class Inspection:
    """``reports`` by file, ``refused`` by version (or by file, where there is no version): why it is not taken in."""

    reports: dict[str, Report] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def taken_in(self) -> bool:
        """There is a version, and every one of them would be taken in."""
        return bool(self.versions) and not self.refused

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "taken_in": self.taken_in,
            "versions": self.versions,
            "refused": self.refused,
            "notes": self.notes,
            "files": {
                name: {"kind": report.kind, **report.facts, "problem": report.problem, "unfit": report.unfit}
                for name, report in self.reports.items()
            },
        }


def inspect_place(path: Path, kinds: Mapping[str, StepKind], clock: Clock = monotonic_s) -> Inspection:
    """Raises Misconfigured when the path cannot be read; what is wrong with what is there, the inspection says.

    After ``TIME_MAX_S`` no further file is begun, and what was not looked into is not said to be taken in; raises too
    when not even the folders could be listed by then.
    """
    found = Inspection()
    end_s = clock() + TIME_MAX_S

    def go_on() -> None:
        if clock() > end_s:
            raise Misconfigured(Code.LOAD_FAILED, _TOO_LATE)

    try:
        place = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _unreadable(path, str(error)) from error
    if place.is_file():
        report = inspect_file(place)
        found.reports[path.name] = report
        if not report.fits:
            found.refused[path.name] = report.problem or report.unfit
            return found
    else:
        _look_into(place, found, go_on)
    try:
        scanned = scan(path)
    except Misconfigured as failure:
        found.refused[path.name] = failure.text
        return found
    found.notes += [f"ignored: {problem}" for problem in scanned.ignored]
    for each in scanned.found:
        _judge(each, found, kinds, place if place.is_dir() else place.parent, go_on)
    if not scanned.found:
        found.refused[path.name] = "no pipeline is here: no model file, pipeline folder or repository"
    return found


def _judge(
    one: Found, found: Inspection, kinds: Mapping[str, StepKind], folder: Path, go_on: Callable[[], None]
) -> None:
    label = f"{one.pipeline} version {one.number}"
    try:
        go_on()
        pipeline = examine(one, kinds=kinds, go_on=go_on)
    except Misconfigured as failure:
        found.refused[label] = failure.text
        return
    for name, report in found.reports.items():
        if is_model_file(name) and not report.fits and (folder / name).is_relative_to(one.folder):
            found.refused[label] = f"{name}: {report.problem or report.unfit}"
            return
    found.versions.append(label)
    if has_own_code(pipeline):
        found.notes.append(f"{label} has code of its own: it is taken in only once that is trusted (forwardpass trust)")


def _look_into(folder: Path, found: Inspection, go_on: Callable[[], None]) -> None:
    """Every file below a folder, within a bound; links are named and not followed."""
    try:
        walked = _files_below(folder, go_on)
    except OSError as error:
        raise _unreadable(folder, str(error)) from error
    for place in walked[:FILES_MAX]:
        name = place.relative_to(folder).as_posix()
        if name.endswith(signatures.SUFFIX):
            found.reports[name] = Report("signatures")
            continue
        try:
            go_on()
            found.reports[name] = inspect_file(place)
        except Misconfigured as failure:
            found.reports[name] = Report("unreadable", problem=failure.problems[0].found)
    if len(walked) > FILES_MAX:
        found.notes.append(f"more than {FILES_MAX} files: the others were not looked into")


def _unreadable(path: Path, detail: str) -> Misconfigured:
    problem = Problem(str(path), "", "cannot be read", "a model file or a folder")
    return Misconfigured(Code.LOAD_FAILED, (problem,), detail=detail)


def _files_below(folder: Path, go_on: Callable[[], None]) -> list[Path]:
    """At most one more than ``FILES_MAX``, by name."""
    files: list[Path] = []
    pending = [(folder, 0)]
    while pending:
        go_on()
        place, depth = pending.pop()
        for entry in sorted(os.listdir(place)):
            if len(files) > FILES_MAX:
                return files
            inner = place / entry
            if entry.startswith(".") or entry == "__pycache__":
                continue
            if inner.is_dir() and not inner.is_symlink():
                if depth < DEPTH_MAX:
                    pending.append((inner, depth + 1))
            else:
                files.append(inner)
    return files
