"""What ``forwardpass init`` does: run a bare model once, and write a starting pipeline around what it saw."""

import shutil
from pathlib import Path
from typing import Any

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failure, Misconfigured, Problem
from forwardpass.core.pipeline import Golden, Signature
from forwardpass.execution import synthetic
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.golden import answer_one
from forwardpass.pipeline.repository import is_pipeline_name, scan, take_in
from forwardpass.pipeline.starter import starter
from forwardpass.pipeline.trust import Trust
from forwardpass.settings import Settings
from forwardpass.trial import Trial, trial

GOLDEN_ELEMENTS_MAX = 512
"""Larger inputs or answers make a file nobody wants to read: such a pipeline starts without golden examples."""


async def start_pipeline(name: str, model: Path, output: Path, settings: Settings) -> Path:
    """Writes ``output/name/1/`` and returns it. Raises Misconfigured; an existing folder is never touched."""
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
    async with trial(version, threads=settings.threads) as running:
        signature = running.variant.signature
        golden = [example for record in _records(signature) if (example := await _golden(running, record)) is not None]
        batched = running.variant.batch.enabled
    folder.mkdir(parents=True)
    for file in Path(version.folder).rglob("*"):
        if file.is_file() and file.name != "manifest.json":
            place = folder / file.relative_to(version.folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    (folder / "pipeline.toml").write_text(starter(name, signature, found.model_file, golden, batched), "utf-8")
    return folder


async def _golden(running: Trial, record: dict[str, Any]) -> Golden | None:
    """What the model answers to a made-up record, or None when it is too large or the model refuses it."""
    try:
        found = await answer_one(running.handle, running.variant, record, monotonic_s)
    except Failure:
        return None
    expect = {name: value for name, value in found.items() if _elements(value) and None not in _flat(value)}
    if not expect or _elements(record) > GOLDEN_ELEMENTS_MAX or _elements(expect) > GOLDEN_ELEMENTS_MAX:
        return None
    return Golden(record, expect)


def _records(signature: Signature) -> list[dict[str, Any]]:
    rows = synthetic.arrays(signature.columns, 2)
    return [
        {name: column[row].tolist() if hasattr(column[row], "tolist") else column[row] for name, column in rows.items()}
        for row in range(2)
    ]


def _elements(value: Any) -> int:
    return len(_flat(value))


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _flat(part)]
    if isinstance(value, list):
        return [leaf for part in value for leaf in _flat(part)]
    return [value]
