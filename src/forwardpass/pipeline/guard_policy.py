"""The operator's guards: a file of ``[[guards]]`` that go around every pipeline, or around those that each names."""

import hashlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import Guard, Version
from forwardpass.pipeline.files import name_problem
from forwardpass.pipeline.guards_section import KEYS, of_one
from forwardpass.pipeline.toml_lines import key_lines, nearest
from forwardpass.pipeline.toml_values import Findings, list_of, short_name, table
from forwardpass.steps.files import read_lines, read_text
from forwardpass.steps.guard.placing import OPERATOR
from forwardpass.steps.guard.schema import FILE_BYTES_MAX, is_text

POLICY_BYTES_MAX = 1024 * 1024
GUARDS_MAX = 64


@dataclass(frozen=True, slots=True)
class _Placed:
    """A guard and the pipelines it goes around; none named is all but those that judge for such a guard."""

    guard: Guard
    pipelines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """``digest`` is the sha256 of the guards with all their files say, hex; empty without a policy."""

    digest: str = ""
    placed: tuple[_Placed, ...] = ()

    def names(self) -> frozenset[str]:
        """The pipelines that it needs: those it is for and those that judge."""
        judges = {each.guard.judge for each in self.placed if each.guard.judge}
        return frozenset(judges.union(*(each.pipelines for each in self.placed)))

    def missing(self, serves: Callable[[str], bool]) -> str:
        """What it needs and is not there, as why the server is not ready; empty if nothing."""
        names = [name for name in sorted(self.names()) if not serves(name)]
        return f'the guards of the operator need the pipeline "{names[0]}", which is not served here' if names else ""

    def around(self, version: Version) -> Version:
        """The version with the operator's guards around its own."""
        judges = {each.guard.judge for each in self.placed if each.guard.judge and not each.pipelines}
        guards = [
            each.guard
            for each in self.placed
            if (
                version.pipeline in each.pipelines
                if each.pipelines
                else not each.guard.judge or version.pipeline not in judges
            )
        ]
        if not guards:
            return version
        definition = replace(version.definition, guards=(*guards, *version.definition.guards))
        return replace(version, definition=definition, policy=self.digest)


def read_policy(file: str) -> Policy:
    """The policy in a file, or none for no file. Raises Misconfigured settings_invalid with every problem and its line."""
    if not file:
        return Policy()
    path = Path(file)
    try:
        text = read_text(path.parent, path.name, POLICY_BYTES_MAX)
        document = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        problem = Problem(file, "", f"cannot be read as TOML: {error}", "a file of [[guards]]")
        raise Misconfigured(Code.SETTINGS_INVALID, (problem,)) from None
    findings = Findings()
    rows: tuple[dict[str, Any], ...] = _POLICY(document, "", findings)["guards"]
    placed = [_placed_of(row) for row in rows]
    problems = list(findings.problems)
    if not problems:
        names = [each.guard.name for each in placed]
        for place, each in enumerate(placed):
            key = f"guards[{place}]"
            if each.guard.name in names[:place]:
                problems.append(
                    (f"{key}.name", f'"{each.guard.name}" is there twice', "guards need names of their own")
                )
            problems += of_one(each.guard, key, path.parent, _file_problem)
    if problems:
        lines = key_lines(text)
        raise Misconfigured(
            Code.SETTINGS_INVALID,
            tuple(Problem(file, key, found, allowed, nearest(lines, key)) for key, found, allowed in problems),
        )
    whole = tuple(replace(each, guard=_complete(each.guard, path.parent)) for each in placed)
    return Policy(hashlib.sha256(repr(whole).encode()).hexdigest(), whole)


def _row(**values: Any) -> dict[str, Any]:
    return values


def _pipelines(value: Any, key: str, findings: Findings) -> Any:
    if value == []:
        return findings.wrong(key, "an empty list", "names of pipelines; without the key the guard goes around all")
    return list_of(short_name, count_max=1000)(value, key, findings)


def _file_problem(folder: Path, name: str) -> str:
    """The operator's files may be links, as those of a mounted ConfigMap are."""
    return name_problem(name) or ("" if (folder / name).is_file() else "no such file in the folder")


_POLICY = table(
    lambda guards=(): {"guards": guards},
    {
        "guards": list_of(
            table(_row, {**KEYS, "pipelines": _pipelines}, name="", on="input"),
            count_max=GUARDS_MAX,
        )
    },
)


def _placed_of(row: dict[str, Any]) -> _Placed:
    return _Placed(
        Guard(**{key: value for key, value in row.items() if key != "pipelines"}), tuple(row.get("pipelines", ()))
    )


def _complete(guard: Guard, folder: Path) -> Guard:
    """The guard with what is in its files, which are nowhere near the pipelines, under the operator's name."""
    schema = guard.schema
    if schema and not is_text(schema):
        schema = read_text(folder, schema, FILE_BYTES_MAX).lstrip()
    listed = tuple(read_lines(folder, guard.words_file, "one word")) if guard.words_file else ()
    return replace(guard, name=f"{OPERATOR}{guard.name}", schema=schema, words=(*guard.words, *listed), words_file="")
