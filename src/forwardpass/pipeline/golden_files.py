"""Golden examples with files: ``request = { image = { file = "golden/cat.png" } }`` sends a file of the version's folder."""

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from forwardpass.core.pipeline import ENCODED, Golden, Input, Pipeline
from forwardpass.pipeline.files import file_problem
from forwardpass.pipeline.toml_lines import join

FILE_BYTES_MAX = 4 * 1024 * 1024
_KEY = "file"
_FOLDER = "golden"
_SUFFIXES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg"}
"""How a file begins -> what whoever looks into the folder opens it by; without one it serves as well."""


def problems(pipeline: Pipeline, folder: Path) -> Iterator[tuple[str, str, str]]:
    """What is wrong with the files that golden requests name, as (key, found, allowed)."""
    for place, golden in enumerate(pipeline.golden):
        for name, file in _named(pipeline, golden):
            key = f"{join(f'golden[{place}].request', name)}.{_KEY}"
            problem = file_problem(folder, file)
            if problem:
                yield key, problem, "a plain relative name of a file in the folder"
            elif (folder / file).stat().st_size > FILE_BYTES_MAX:
                yield key, f"{(folder / file).stat().st_size} bytes", f"at most {FILE_BYTES_MAX} bytes"


def resolved(pipeline: Pipeline, folder: Path) -> Pipeline:
    """The pipeline with the files' contents, base64 as in JSON, in place of their names. Their ``problems`` are none."""
    golden = tuple(
        replace(
            each, request={**each.request, **{name: _content(folder / file) for name, file in _named(pipeline, each)}}
        )
        for each in pipeline.golden
    )
    return replace(pipeline, golden=golden)


def in_files(
    examples: Sequence[Golden], inputs: Sequence[Input], taken: Collection[str] = ()
) -> tuple[tuple[Golden, ...], dict[str, bytes]]:
    """The examples with names of files where they hold bytes, and what is in these files, none of them one of ``taken``."""
    names: dict[bytes, str] = {}
    encoded = {given.name for given in inputs if given.type in ENCODED}
    numbers = count(1)

    def written(value: Any) -> Any:
        if not isinstance(value, bytes | bytearray | memoryview):
            return value
        content = bytes(value)
        if content not in names:
            suffix = next((suffix for start, suffix in _SUFFIXES.items() if content.startswith(start)), "")
            candidates = (f"{_FOLDER}/{number}{suffix}" for number in numbers)
            names[content] = next(name for name in candidates if name not in taken)
        return {_KEY: names[content]}

    found = tuple(
        replace(
            each, request={name: written(value) if name in encoded else value for name, value in each.request.items()}
        )
        for each in examples
    )
    return found, {name: content for content, name in names.items()}


def _named(pipeline: Pipeline, golden: Golden) -> Iterator[tuple[str, str]]:
    for given in pipeline.inputs:
        value: Any = golden.request.get(given.name)
        if given.type in ENCODED and isinstance(value, Mapping) and value.keys() == {_KEY}:
            file = value[_KEY]
            if isinstance(file, str):
                yield given.name, file


def _content(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode("ascii")
