"""``pipeline.toml`` and the frozen ``Pipeline``: the one way from each to the other, with everything checked.

A definition is read in two halves: ``document.py`` knows what each key may be, ``rules.py`` what the whole must satisfy.
A pipeline built in Python goes through the same two, so both forms are refused for the same reasons.
"""

import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from forwardpass.core.clock import random_id
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import Pipeline, Step
from forwardpass.pipeline import onnx_file
from forwardpass.pipeline.document import read, to_document
from forwardpass.pipeline.files import name_problem, open_file, open_folder, sha256_of, write_file
from forwardpass.pipeline.rules import findings
from forwardpass.pipeline.toml_lines import join, key_lines, nearest
from forwardpass.pipeline.toml_text import toml_text
from forwardpass.pipeline.toml_values import closest
from forwardpass.steps.protocol import StepKind

FILE_NAME = "pipeline.toml"
DEFINITION_BYTES_MAX = 1024 * 1024
PROBLEMS_MAX = 100
ENGINE_OF_SUFFIX = {onnx_file.SUFFIX: "onnxruntime"}
_PLACE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)


def parse(text: str, *, file: str, folder: Path, kinds: Mapping[str, StepKind]) -> Pipeline:
    """The pipeline a TOML text defines, whose files are in ``folder``. ``file`` is what problems call the text.

    Raises Misconfigured with every problem and its line: definition_invalid, or digest_mismatch when only that is wrong.
    """
    pipeline, problems = _examine(_load(text, file), file, folder, kinds)
    code = Code.DEFINITION_INVALID
    if not problems:
        problems = _digest_problems(pipeline, file, folder)
        code = Code.DIGEST_MISMATCH
    if problems:
        raise Misconfigured(code, _placed(problems, text, file))
    return pipeline


def check(pipeline: Pipeline, *, file: str, folder: Path, kinds: Mapping[str, StepKind]) -> list[Problem]:
    """What ``parse`` would refuse this pipeline for, had it been written as TOML; [] = nothing."""
    problems = [
        Problem(file, f"steps[{place}].use", "an option of this name", "use names the kind of step, not an option")
        for place, step in enumerate(pipeline.steps)
        if "use" in step.options
    ]
    understood, more = _examine(to_document(pipeline), file, folder, kinds)
    return problems + more or _size_problems(pipeline, file) or _digest_problems(understood, file, folder)


def bare(model_file: str) -> Pipeline:
    """The pipeline of a model file that comes without one: the model and nothing around it."""
    name = Path(model_file).name
    suffix = Path(model_file).suffix
    if suffix.lower() not in ENGINE_OF_SUFFIX:
        problem = Problem(name, "", f'no engine is known for "{suffix}"', closest(suffix, ENGINE_OF_SUFFIX))
        raise Misconfigured(Code.MODEL_INVALID, (problem,))
    return Pipeline(steps=(Step("model", {"engine": ENGINE_OF_SUFFIX[suffix.lower()], "file": name}),))


def is_model_file(name: str) -> bool:
    """Whether ``bare`` knows an engine for a file of this name."""
    return Path(name).suffix.lower() in ENGINE_OF_SUFFIX


def to_toml(pipeline: Pipeline) -> str:
    """The TOML text that ``parse`` makes an equal pipeline of; what equals its default is left out."""
    return toml_text(to_document(pipeline))


def export(
    pipeline: Pipeline | str, folder: Path, files: Mapping[str, Path | bytes], *, kinds: Mapping[str, StepKind]
) -> None:
    """Write the folder form of a pipeline, given as such or as the text of its ``pipeline.toml``, and its ``files``.

    These are by name in it where each is, or what is in it. The folder must not exist and appears whole or not at all.
    Raises Misconfigured with what ``check`` or ``parse`` says of it.
    """
    if folder.exists():
        raise Misconfigured(Code.DEFINITION_INVALID, (Problem(str(folder), "", "is there already", "a new folder"),))
    unsafe = [Problem(name, "", name_problem(name), "a plain relative name") for name in files if name_problem(name)]
    if unsafe:
        raise Misconfigured(Code.DEFINITION_INVALID, tuple(unsafe))
    draft = folder.parent / f".tmp-{random_id()}"
    draft.mkdir(parents=True)
    try:
        for name, content in files.items():
            put(draft, name, content)
        text = _checked_text(pipeline, str(folder / FILE_NAME), draft, kinds)
        write_file(draft / FILE_NAME, text.encode())
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def put(folder: Path, name: str, content: Path | bytes) -> None:
    """Write a file of a folder, by its plain relative name."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        place.write_bytes(content)
    else:
        shutil.copyfile(content, place)


def _checked_text(pipeline: Pipeline | str, file: str, folder: Path, kinds: Mapping[str, StepKind]) -> str:
    if isinstance(pipeline, str):
        parse(pipeline, file=file, folder=folder, kinds=kinds)
        return pipeline
    problems = check(pipeline, file=file, folder=folder, kinds=kinds)
    if problems:
        raise Misconfigured(Code.DEFINITION_INVALID, tuple(problems))
    return to_toml(pipeline)


def _load(text: str, file: str) -> dict[str, Any]:
    line: int | None = None
    if len(text) > DEFINITION_BYTES_MAX:
        reason = f"longer than {DEFINITION_BYTES_MAX} characters"
    else:
        try:
            return tomllib.loads(text)
        except RecursionError:
            reason = "nested too deeply"
        except ValueError as error:  # also what Python says of an integer of thousands of digits
            reason = str(error)
            placed = _PLACE.fullmatch(reason)
            if placed:
                reason, line = placed[1], int(placed[2])
            elif reason.endswith("(at end of document)"):
                line = text.rstrip().count("\n") + 1
    raise Misconfigured(Code.DEFINITION_INVALID, (Problem(file, "", f"not valid TOML: {reason}", "", line),))


def _examine(
    document: dict[str, Any], file: str, folder: Path, kinds: Mapping[str, StepKind]
) -> tuple[Pipeline, list[Problem]]:
    """The pipeline a document describes, and what is wrong with its keys and by the rules."""
    pipeline, reading = read(document)
    found = list(reading.problems)
    reported = {key for key, _, _ in found}
    for key, what, allowed in findings(pipeline, document, folder, kinds):
        within_broken = any(key == table or key.startswith(f"{table}.") for table in reading.broken)
        if key not in reported and not within_broken:  # else it only echoes what is already said
            found.append((key, what, allowed))
    return pipeline, [Problem(file, key, what, allowed) for key, what, allowed in found]


def _placed(problems: list[Problem], text: str, file: str) -> tuple[Problem, ...]:
    """Problems with their lines, in the order of these; of very many only the first."""
    lines = key_lines(text)
    placed = [replace(problem, line=nearest(lines, problem.key)) for problem in problems]
    placed.sort(key=lambda problem: problem.line or 0)
    more = len(placed) - PROBLEMS_MAX
    if more > 0:
        placed[PROBLEMS_MAX:] = [Problem(file, "", f"{more} more problems", "")]
    return tuple(placed)


def _size_problems(pipeline: Pipeline, file: str) -> list[Problem]:
    size = len(to_toml(pipeline).encode())
    if size <= DEFINITION_BYTES_MAX:
        return []
    return [Problem(file, "", f"{size} bytes as {FILE_NAME}", f"at most {DEFINITION_BYTES_MAX} bytes")]


def _digest_problems(pipeline: Pipeline, file: str, folder: Path) -> list[Problem]:
    problems = []
    for name, pinned in pipeline.files.items():
        found = f"sha256:{_sha256(folder, name)}"
        if found != pinned:
            problems.append(Problem(file, join("files", name), f"the file has {found}", f"pinned: {pinned}"))
    return problems


def _sha256(folder: Path, name: str) -> str:
    beneath = open_folder(folder.resolve())
    try:
        descriptor = open_file(beneath, name)
    finally:
        os.close(beneath)
    try:
        return sha256_of(descriptor, os.fstat(descriptor).st_size)[0]
    finally:
        os.close(descriptor)
