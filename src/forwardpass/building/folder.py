"""Where a pipeline's files are on this machine, and what each is called in its folder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.core.pipeline import Step
from forwardpass.pipeline.files import name_problem
from forwardpass.pipeline.onnx_file import external_data, is_onnx
from forwardpass.steps.options import file_options
from forwardpass.steps.protocol import StepKind

Paths = Mapping[str, str | PathLike[str]]


def gathered(
    steps: Sequence[Step], files: Paths, kinds: Mapping[str, StepKind]
) -> tuple[tuple[Step, ...], dict[str, Path]]:
    """The steps with their files' names in the folder, and every file of the folder: its name -> where it is.

    An option names a file of ``files`` or a path; a path goes into the folder under its last part. Weights that an
    ONNX file keeps beside itself come along. Raises Misconfigured.
    """
    found = {name: Path(path).absolute() for name, path in files.items()}
    renamed = []
    for place, step in enumerate(steps):
        options = dict(step.options)
        for option in file_options(kinds[step.use]) if step.use in kinds else ():
            value = options.get(option)
            if isinstance(value, str) and value not in files:
                path = Path(value).absolute()
                if found.setdefault(path.name, path) != path:
                    text = f"two files are called {path.name}: {found[path.name]} and {path}"
                    raise _wrong(f"steps[{place}].{option}", text, 'names for them, as in files={"a.txt": "one/a.txt"}')
                options[option] = path.name
        renamed.append(replace(step, options=options))
    _check(found)
    return tuple(renamed), found | dict(_beside(found))


def _check(found: Mapping[str, Path]) -> None:
    problems = [
        Problem("", f"files.{show(name)}", problem, "a plain relative name")
        for name in found
        if (problem := name_problem(name))
    ]
    problems += [
        Problem("", f"files.{show(name)}", f"there is no file {path}", "a file on this machine")
        for name, path in found.items()
        if not path.is_file()
    ]
    if problems:
        raise Misconfigured(Code.DEFINITION_INVALID, tuple(problems))


def _beside(found: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    for name, path in found.items():
        if is_onnx(name):
            with path.open("rb") as file:
                externals = external_data(file.fileno(), name)
            for external in externals:
                beside = (Path(name).parent / external.location).as_posix()
                place = path.parent / external.location
                if beside not in found and not name_problem(beside) and place.is_file():
                    yield beside, place


def _wrong(key: str, found: str, allowed: str) -> Misconfigured:
    return Misconfigured(Code.DEFINITION_INVALID, (Problem("", key, found, allowed),))
