"""What the commands share: how failures are told, where settings come from, what is at a path."""

import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from forwardpass.core.errors import Code, Failure, Misconfigured, Problem

if TYPE_CHECKING:
    from forwardpass.pipeline.repository import Found
    from forwardpass.settings import Settings

MISCONFIGURED_EXIT = 2
FAILED_EXIT = 1
P = ParamSpec("P")
T = TypeVar("T")


def clearly(command: Callable[P, T]) -> Callable[P, T]:
    """Failures as lines for people and an exit status: 2 what you gave us, 1 what we could not do."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except Failure as failure:
            sys.exit(told(failure))

    return run


def told(failure: Failure) -> int:
    """Say it; returns the exit status it deserves."""
    from forwardpass.observe.redaction import Redaction

    problems = failure.problems if isinstance(failure, Misconfigured) else (f"{failure.code}: {failure.text}",)
    lines = [f"error: {problem}" for problem in problems]
    lines += [f"detail: {failure.detail.strip()}"] if failure.detail else []
    for line in lines:
        click.echo(Redaction().text(line), err=True)
    return MISCONFIGURED_EXIT if isinstance(failure, Misconfigured) else FAILED_EXIT


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the settings come from, the same for every command that needs them."""
    command = click.option("--set", "values", multiple=True, metavar="SECTION.KEY=VALUE", help="One setting.")(command)
    return click.option("--settings", "file", type=click.Path(path_type=Path), help="A server.toml.")(command)


def key_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Who asks a server, the same for every command that asks one. Never the key itself: command lines can be read."""
    text = "A file with the key to ask with; else FORWARDPASS_KEY."
    return click.option("--key-file", type=click.Path(path_type=Path), help=text)(command)


def settings_from(file: Path | None, values: Sequence[str], flags: dict[str, Any] | None = None) -> "Settings":
    from forwardpass.settings import read

    overrides: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or "." not in key:
            raise click.UsageError(f"--set {value}: expected SECTION.KEY=VALUE")
        try:
            overrides[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            overrides[key] = text  # a plain word is a string
    return read(file, {**overrides, **(flags or {})}, os.environ)


def settings_told(file: Path | None, values: Sequence[str]) -> "Settings":
    """Settings for a command that runs a version: what its worker prints and suffers is told on standard error."""
    from forwardpass.observe import log

    settings = settings_from(file, values)
    log.start("text")
    return settings


def found_at(path: Path) -> "tuple[Found, ...]":
    from forwardpass.pipeline.repository import scan

    result = scan(path)
    for problem in result.ignored:
        click.echo(f"ignored: {problem}", err=True)
    if not result.found:
        problem = Problem(
            str(path), "", "no pipeline was found here", "a model file, a pipeline folder or a repository"
        )
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    return result.found
