"""What ``forwardpass init`` does: run a bare model once, and write a starting pipeline around what it saw."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failure, Misconfigured, Problem
from forwardpass.core.pipeline import Golden, Signature
from forwardpass.execution import synthetic
from forwardpass.execution.kinds import kinds
from forwardpass.execution.selftest import untried
from forwardpass.pipeline.golden import answer_one
from forwardpass.pipeline.repository import is_pipeline_name, scan, take_in
from forwardpass.pipeline.starter import GOLDEN_SHOWN_MAX, starter
from forwardpass.pipeline.trust import Trust
from forwardpass.settings import Settings
from forwardpass.trial import Trial, trial

GOLDEN_ELEMENTS_MAX = 512
"""Larger inputs or answers make a file nobody wants to read: such a pipeline starts without golden examples."""
FREE_SIZES = (8, 2)
"""Free dimensions are tried with the first; if examples are too large then, with the second."""


@dataclass(frozen=True, slots=True)
class Started:
    """The folder that was written, how many golden examples are in its definition, and if none, why."""

    folder: Path
    examples: int
    why_none: str


async def start_pipeline(name: str, model: Path, output: Path, settings: Settings) -> Started:
    """Writes ``output/name/1/``. Raises Misconfigured; an existing folder is never touched."""
    folder = output / name / "1"
    if not is_pipeline_name(name):
        problem = Problem("", "NAME", f'found "{name}"', "lower-case letters, digits, '.', '_', '-'; at most 64")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    if folder.exists():
        raise Misconfigured(Code.DEFINITION_INVALID, (Problem(str(folder), "", "exists already", "a new name"),))
    if not model.is_file():
        raise Misconfigured(Code.MODEL_INVALID, (Problem(str(model), "--from", "is not a file", "a model file"),))
    (found,) = scan(model).found
    data = settings.data_folder
    version = take_in(found, data / "store", kinds=kinds(), trusted=Trust(data / "trusted"))
    async with trial(version, threads=settings.threads, deadline_s=settings.limits.deadline_s) as running:
        signature, loaded = running.variant.signature, running.variant.loaded
        assert loaded is not None, "a trial's version has loaded"
        golden, why_none = await _examples(running, signature)
    apart = "" if loaded.independent else loaded.reason
    text = starter(name, signature, found.model_file, golden, apart=apart, proved=not untried(apart))
    folder.mkdir(parents=True)
    for file in Path(version.folder).rglob("*"):
        if file.is_file() and file.name != "manifest.json":
            place = folder / file.relative_to(version.folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    (folder / "pipeline.toml").write_text(text, "utf-8")
    return Started(folder, len(golden), why_none)


async def _examples(running: Trial, signature: Signature) -> tuple[list[Golden], str]:
    """What the model answers to made-up records, or why there is no example: the model's refusal, or the size."""
    why = ""
    for free in FREE_SIZES:
        found: list[Golden] = []
        for record in _records(signature, free):
            one = await _golden(running, record)
            if isinstance(one, Golden):
                found.append(one)
            else:
                why = one
        if found:
            return found, ""
    return [], why


async def _golden(running: Trial, record: dict[str, Any]) -> Golden | str:
    if (size := _elements(record)) > GOLDEN_ELEMENTS_MAX:
        return f"an input has {size} numbers; an example has at most {GOLDEN_ELEMENTS_MAX}"
    try:
        found = await answer_one(running.handle, running.variant, record, monotonic_s)
    except Failure as failure:
        return f"a made-up input failed: {failure.text}" + (f"\n{failure.detail.strip()}" if failure.detail else "")
    return _small(record, found)


def _small(record: Mapping[str, Any], found: Mapping[str, object]) -> Golden | str:
    """An example with the outputs that are small enough to be read, and can be written."""
    expect: dict[str, Any] = {}
    why = "the model has no outputs"
    for name, value in sorted(found.items(), key=lambda output: _elements(output[1])):
        if not _elements(value) or None in _flat(value):
            why = f"output {name} is empty or not a finite number"
        elif _elements(expect) + _elements(value) > GOLDEN_ELEMENTS_MAX:
            why = f"output {name} has {_elements(value)} numbers; an example has at most {GOLDEN_ELEMENTS_MAX}"
        else:
            expect[name] = value
    return Golden(dict(record), expect) if expect else why


def _records(signature: Signature, free: int) -> list[dict[str, Any]]:
    rows = synthetic.arrays(signature.columns, GOLDEN_SHOWN_MAX, free)
    return [
        {name: column[row].tolist() if hasattr(column[row], "tolist") else column[row] for name, column in rows.items()}
        for row in range(GOLDEN_SHOWN_MAX)
    ]


def _elements(value: Any) -> int:
    return len(_flat(value))


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _flat(part)]
    if isinstance(value, list):
        return [leaf for part in value for leaf in _flat(part)]
    return [value]
