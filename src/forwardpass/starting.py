"""What ``forwardpass init`` does: run a model once, and write a starting pipeline around what it is and what it answered."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failure, Misconfigured, Problem
from forwardpass.core.pipeline import Golden, Signature, Version
from forwardpass.execution import synthetic
from forwardpass.execution.kinds import kinds
from forwardpass.execution.media import png
from forwardpass.execution.selftest import untried
from forwardpass.pipeline import definition
from forwardpass.pipeline.golden import answer_one
from forwardpass.pipeline.golden_files import in_files
from forwardpass.pipeline.intake import Patience
from forwardpass.pipeline.recognise import recognise
from forwardpass.pipeline.recognise.recognised import Recognised
from forwardpass.pipeline.recognise.source import chosen, model_file_of
from forwardpass.pipeline.repository import Found, files_of, is_pipeline_name, scan, take_in
from forwardpass.pipeline.starter import GOLDEN_SHOWN_MAX, draft, recognised_starter, starter
from forwardpass.pipeline.trust import Trust
from forwardpass.settings import Settings
from forwardpass.trial import Trial, trial

GOLDEN_ELEMENTS_MAX = 512
"""Larger inputs or answers make a file nobody wants to read: such a pipeline starts without golden examples."""
GOLDEN_DIGITS = 6
FREE_SIZES = (8, 2)
"""Free dimensions are tried with the first; if examples are too large then, with the second."""


@dataclass(frozen=True, slots=True)
class Started:
    """The folder that was written, how many golden examples are in its definition, and if none, why.

    ``family`` is what the model was recognised as, or "", and then ``why_plain`` says why it was not.
    """

    folder: Path
    examples: int
    why_none: str
    family: str = ""
    why_plain: str = ""


@dataclass(frozen=True, slots=True)
class _Tried:
    """A version that was loaded and run: its examples, and whether its rows may share a batch."""

    version: Version
    signature: Signature
    golden: list[Golden]
    why_none: str
    apart: str

    @property
    def proved(self) -> bool:
        return not untried(self.apart)


async def start_pipeline(name: str, path: Path, output: Path, settings: Settings) -> Started:
    """Writes ``output/name/1/``. Raises Misconfigured; an existing folder is never touched."""
    folder = output / name / "1"
    if not is_pipeline_name(name):
        problem = Problem("", "NAME", f'found "{name}"', "lower-case letters, digits, '.', '_', '-'; at most 64")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    if folder.exists():
        raise Misconfigured(Code.DEFINITION_INVALID, (Problem(str(folder), "", "exists already", "a new name"),))
    if not path.exists():
        allowed = "a model file, or a folder with one"
        raise Misconfigured(Code.MODEL_INVALID, (Problem(str(path), "--from", "is not there", allowed),))
    found = recognise(path)
    why_plain = found if isinstance(found, str) else ""
    if isinstance(found, Recognised):
        try:
            return await _start_recognised(name, found, folder, settings)
        except Misconfigured as refusal:
            if refusal.code is Code.RUNTIME_MISSING:
                raise
            why_plain = f"it looks like {found.family}, and does not load as one: {refusal}"
    model = model_file_of(path)
    if model is None:
        raise Misconfigured(Code.MODEL_INVALID, (Problem(str(path), "--from", why_plain, ""),))
    started = await _start_plain(name, model, chosen(path), folder, settings)
    return replace(started, why_plain=why_plain)


async def _start_plain(name: str, model: Path, assumed: str, folder: Path, settings: Settings) -> Started:
    """A model of which nothing is known but its inputs and outputs."""
    (found,) = scan(model).found
    tried = await _tried(found, (), settings)
    text = starter(
        name, tried.signature, found.model_file, tried.golden, apart=tried.apart, proved=tried.proved, assumed=assumed
    )
    definition.export(text, folder, files_of(tried.version), kinds=kinds())
    return Started(folder, len(tried.golden), tried.why_none)


async def _start_recognised(name: str, found: Recognised, folder: Path, settings: Settings) -> Started:
    """Raises Misconfigured when the model does not load with the steps of its family."""
    records = [
        {field: _picture(number) if isinstance(value, bytes) else value for field, value in record.items()}
        for number, record in enumerate(found.examples[:GOLDEN_SHOWN_MAX], start=1)
    ]
    files = {name: content.encode() if isinstance(content, str) else content for name, content in found.files.items()}
    with tempfile.TemporaryDirectory(prefix="forwardpass-") as here:
        source = Path(here, "1")
        definition.export(draft(found), source, files, kinds=kinds())
        tried = await _tried(Found(name, 1, source), records, settings, Patience(settle_s=0.0))
    golden, pictures = in_files(tried.golden, found.inputs, files)
    text = recognised_starter(name, found, golden, apart=tried.apart, proved=tried.proved)
    definition.export(text, folder, {**files_of(tried.version), **pictures}, kinds=kinds())
    return Started(folder, len(golden), tried.why_none, found.family)


async def _tried(
    found: Found, records: Sequence[dict[str, Any]], settings: Settings, patience: Patience | None = None
) -> _Tried:
    data = settings.data_folder
    store, trusted = data / "store", Trust(data / "trusted")
    version = take_in(found, store, kinds=kinds(), trusted=trusted, patience=patience)
    async with trial(version, threads=settings.threads, deadline_s=settings.limits.deadline_s) as running:
        signature, loaded = running.variant.signature, running.variant.loaded
        assert loaded is not None, "a trial's version has loaded"
        golden, why_none = await _examples(running, signature, records)
    return _Tried(version, signature, golden, why_none, "" if loaded.independent else loaded.reason)


async def _examples(
    running: Trial, signature: Signature, records: Sequence[dict[str, Any]]
) -> tuple[list[Golden], str]:
    """What the model answers to these records, or to made-up ones; or why there is no example: a refusal, or the size."""
    why = ""
    for free in FREE_SIZES:
        found: list[Golden] = []
        for record in records or _records(signature, free):
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
    return _small(record, found, running.variant.signature)


def _small(record: Mapping[str, Any], found: Mapping[str, object], signature: Signature) -> Golden | str:
    """An example with the outputs that are small enough to be read, and can be written."""
    lists = {field.name for field in signature.outputs if field.kind in ("json", "texts", "ragged")}  # may be empty
    expect: dict[str, Any] = {}
    why = "the model has no outputs"
    for name, value in sorted(found.items(), key=lambda output: _elements(output[1])):
        if None in _flat(value) or (not _elements(value) and name not in lists):
            why = f"output {name} is empty or not a finite number"
        elif _elements(expect) + _elements(value) > GOLDEN_ELEMENTS_MAX:
            why = f"output {name} has {_elements(value)} numbers; an example has at most {GOLDEN_ELEMENTS_MAX}"
        else:
            expect[name] = _short(value)
    return Golden(dict(record), expect) if expect else why


def _records(signature: Signature, free: int) -> list[dict[str, Any]]:
    rows = synthetic.arrays(signature.columns, GOLDEN_SHOWN_MAX, free)
    return [
        {name: column[row].tolist() if hasattr(column[row], "tolist") else column[row] for name, column in rows.items()}
        for row in range(GOLDEN_SHOWN_MAX)
    ]


def _picture(number: int) -> bytes:
    """A made-up picture: colours that run into each other."""
    down, across = np.mgrid[0:96, 0:128].astype(np.uint8)
    return png(np.dstack([across * 2, down * 2, (across + down) * np.uint8(number)]))


def _short(value: Any) -> Any:
    """Numbers with as many digits as an example's tolerance needs."""
    match value:
        case float():
            return float(f"{value:.{GOLDEN_DIGITS}g}")
        case list():
            return [_short(each) for each in value]
        case dict():
            return {name: _short(each) for name, each in value.items()}
    return value


def _elements(value: Any) -> int:
    return len(_flat(value))


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _flat(part)]
    if isinstance(value, list):
        return [leaf for part in value for leaf in _flat(part)]
    return [value]
