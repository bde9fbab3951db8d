"""Write docs/reference.md from the code: python docs/make_reference.py. A test fails while the page is out of date."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click

from forwardpass.admit.rules import QuotaRule
from forwardpass.cli import main as command_line
from forwardpass.core import pipeline
from forwardpass.engines.discover import engine_kind, engine_names
from forwardpass.ingress.message import HttpLimits
from forwardpass.ingress.route_table import ROUTES
from forwardpass.ingress.routes import Route
from forwardpass.observe.metrics import TABLE
from forwardpass.settings import SECTIONS

PAGE = Path(__file__).with_name("reference.md")
HEAD = """# Reference

Written by `make docs` from the code; do not edit. Steps are in [steps.md](steps.md),
error codes in [errors.md](errors.md).
"""
DEFINITION = {
    "": pipeline.Pipeline,
    "[[inputs]]": pipeline.Input,
    "[[rules]]": pipeline.Rule,
    "[[guards]]": pipeline.Guard,
    "[checks]": pipeline.Checks,
    "[batch]": pipeline.Batch,
    "[batch.padding]": pipeline.Padding,
    "[queue]": pipeline.Queue,
    "[sequence]": pipeline.Sequences,
    "[cache]": pipeline.Cache,
    "[task]": pipeline.Task,
    "[workers]": pipeline.Workers,
    "[price]": pipeline.Price,
    "[[golden]]": pipeline.Golden,
}
_MEMBER = re.compile(r"^    (\w+): .*?(?:  # (.*))?$", re.MULTILINE)


def page() -> str:
    parts = (HEAD, *_commands(), *_settings(), *_definition(), *_engines(), *_routes(), *_metrics())
    return "\n".join(parts) + "\n"


def _commands() -> Iterator[str]:
    yield "## Commands\n"
    context = click.Context(command_line, info_name="forwardpass")
    for name, command in _named(command_line, context):
        usage = command.collect_usage_pieces(click.Context(command, info_name=name, parent=context))
        yield f"### `forwardpass {name} {' '.join(usage)}`\n"
        yield f"{command.help}\n"
        options = [option for option in command.params if isinstance(option, click.Option)]
        if options:
            yield _table(("option", "what it does"), ((_code(_flag(option)), option.help or "") for option in options))


def _named(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Commands by what is typed; those of a group in its place."""
    for name in group.list_commands(context):
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in _named(command, context))
        else:
            yield name, command


def _flag(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    return f"{option.opts[0]}{value}"


def _settings() -> Iterator[str]:
    yield "## Settings of the server\n"
    yield "In a `server.toml` (`--settings`), or one by one (`--set SECTION.KEY=VALUE`).\n"
    for section, kind in SECTIONS.items():
        yield f"### `[{section}]`\n"
        yield " ".join((kind.__doc__ or "").split()) + "\n"
        rows = (
            (_code(each.name), _value(each.default), _bounds(each.metadata), each.metadata["doc"])
            for each in fields(kind)
        )
        yield _table(("key", "default", "allowed", "what it is"), rows)
        if section == "limits":
            yield "Fixed, and no settings: " + ", ".join(_fixed_limits()) + ".\n"
    yield "### `[[quotas]]`\n"
    yield "Rows of a `server.toml` alone. " + " ".join((QuotaRule.__doc__ or "").split()) + "\n"
    said = dict(_MEMBER.findall(inspect.getsource(QuotaRule)))
    yield _table(("key", "what it is"), ((_code(each.name), said.get(each.name, "")) for each in fields(QuotaRule)))


def _fixed_limits() -> Iterator[str]:
    """Those of HTTP that no setting names."""
    named = {option.name for option in fields(SECTIONS["limits"])} | {"hosts"}
    return (f"{_code(each.name)} {each.default}" for each in fields(HttpLimits) if each.name not in named)


def _bounds(metadata: Any) -> str:
    return "" if metadata["low"] is None else f"{metadata['low']:g} to {metadata['high']:g}"


def _definition() -> Iterator[str]:
    yield "## `pipeline.toml`\n"
    for section, kind in DEFINITION.items():
        yield f"### `{section}`\n" if section else "### At the top\n"
        said = {name: text or "" for name, text in _MEMBER.findall(inspect.getsource(kind))}
        rows = ((_code(each.name), _default(each), said.get(each.name, "")) for each in fields(kind))
        yield _table(("key", "default", "what it is"), rows)


def _engines() -> Iterator[str]:
    yield "## Engines\n"
    yield "Options of an engine are written in its `model` step.\n"
    for name in engine_names():
        yield f"### `{name}`\n"
        options = engine_kind(name).options
        yield _table(
            ("option", "default", "allowed"),
            ((_code(key), _value(option.default), option.allowed) for key, option in options.items()),
        )


def _routes() -> Iterator[str]:
    yield "## Routes\n"
    yield _table(
        ("plane", "route", "scope", "body", "what it does"),
        (
            (route.plane, _code(f"{route.method.decode()} {route.pattern}"), route.scope, route.body, _summary(route))
            for route in ROUTES
        ),
    )


def _summary(route: Route) -> str:
    return f"{route.summary} (needs {_code(route.needs)})" if route.needs else route.summary


def _metrics() -> Iterator[str]:
    yield "## Metrics\n"
    yield "`GET /metrics` of the admin plane, in the Prometheus text format.\n"
    yield _table(("name", "type", "what it counts"), ((_code(name), *told) for name, told in TABLE.items()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def _default(each: Any) -> str:
    if each.default is not MISSING:
        return "" if each.default is None else _value(each.default)
    return "" if each.default_factory is not MISSING else "required"


def _value(value: object) -> str:
    return _code(json.dumps(value))


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
