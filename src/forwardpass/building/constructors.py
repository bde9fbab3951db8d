"""What makes a step in Python: a function for each kind, made of the kind's own options, which checks what it is given."""

import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from forwardpass.client_wire import plain
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import Step
from forwardpass.engines.discover import engine_kind, engine_names
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.definition import ENGINE_OF_SUFFIX
from forwardpass.pipeline.files import name_problem
from forwardpass.steps.options import Rule, Trouble, did_you_mean, file_options
from forwardpass.steps.protocol import StepKind


def names() -> list[str]:
    """Every kind that has a constructor, sorted."""
    return sorted(kinds())


@cache
def constructor(name: str) -> Callable[..., Step]:
    """What ``use.NAME`` is. Raises AttributeError when no kind of step has this name."""
    known = kinds()
    if name not in known:
        raise AttributeError(f"no kind of step is named {name!r}{did_you_mean(name, known)}")
    kind = known[name]
    places = _places(kind)

    def construct(*given: object, **options: object) -> Step:
        if len(given) > len(places):
            raise _wrong(kind.name, [("", f"{len(given)} values without a name", f"at most {len(places)}")])
        for place, value in zip(places, given, strict=False):
            if place in options:
                raise _wrong(kind.name, [(place, "is given twice", "once, by place or by name")])
            options[place] = value
        return _checked(kind, options)

    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = _told(kind)
    construct.__module__ = "forwardpass.use"
    construct.__signature__ = _signature(kind)  # type: ignore[attr-defined]  # what inspect.signature looks for
    return construct


def _checked(kind: StepKind, options: dict[str, object]) -> Step:
    """The step with plain options. Raises Misconfigured with everything wrong in them, but for files that are not there."""
    written = {name: plain(value, _path_as_text) for name, value in options.items() if value is not None}
    if kind.name == "model" and "engine" not in written and isinstance(written.get("file"), str):
        suffix = Path(written["file"]).suffix.lower()
        if suffix in ENGINE_OF_SUFFIX:
            written["engine"] = ENGINE_OF_SUFFIX[suffix]
    files = file_options(kind)
    named = {name: _base_name(value) if name in files else value for name, value in written.items()}
    with TemporaryDirectory(prefix="forwardpass-") as folder:
        for name in files:
            if isinstance(named.get(name), str) and not name_problem(named[name]):
                Path(folder, named[name]).touch()  # whoever builds the pipeline says where it is
        troubles = list(kind.check(named, Path(folder)))
    if troubles:
        raise _wrong(kind.name, troubles)
    return Step(kind.name, written)


def _path_as_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _base_name(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) else value


def _wrong(name: str, troubles: list[Trouble]) -> Misconfigured:
    problems = tuple(Problem("", f"{name}.{key}" if key else name, found, allowed) for key, found, allowed in troubles)
    return Misconfigured(Code.DEFINITION_INVALID, problems)


def _declared(kind: StepKind) -> "tuple[Field[Any], ...]":
    options = getattr(kind, "options", None)
    assert isinstance(options, type) and is_dataclass(options), f"the options of {kind.name} are declared"
    return fields(options)


def _rule(each: "Field[Any]") -> Rule:
    rule: Rule = each.metadata["rule"]
    return rule


def _places(kind: StepKind) -> tuple[str, ...]:
    """What may be given without its name: the file the step reads, else its only required option."""
    required = [each.name for each in _declared(kind) if each.default is MISSING]
    files = [name for name in file_options(kind) if name in required or name == "file"]
    return (files[0],) if files else tuple(required) if len(required) == 1 else ()


@dataclass(frozen=True, slots=True)
class _EngineOption:
    name: str
    engine: str
    allowed: str
    default: Any


def _engine_options(kind: StepKind) -> list[_EngineOption]:
    if kind.name != "model":
        return []
    own = {each.name for each in _declared(kind)}
    return [
        _EngineOption(name, engine, option.allowed, option.default)
        for engine in engine_names()
        for name, option in engine_kind(engine).options.items()
        if name not in own
    ]


def _signature(kind: StepKind) -> Signature:
    hints = get_type_hints(getattr(kind, "options"))  # noqa: B009 - no member of the protocol, see _declared
    places = _places(kind)
    parameters = []
    for each in _declared(kind):
        default = Parameter.empty if each.default is MISSING else each.default
        if kind.name == "model" and each.name == "engine":
            default = None  # told by the file's ending
        by_place = each.name in places
        annotation = _accepted(hints[each.name])
        if _rule(each).is_file:
            annotation |= os.PathLike[str]
        if default is None:
            annotation |= None
        parameters.append(
            Parameter(
                each.name,
                Parameter.POSITIONAL_OR_KEYWORD if by_place else Parameter.KEYWORD_ONLY,
                default=default,
                annotation=annotation,
            )
        )
    taken = {parameter.name for parameter in parameters}
    for option in _engine_options(kind):
        if option.name not in taken:
            taken.add(option.name)
            parameters.append(Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default))
    parameters.sort(key=lambda parameter: parameter.kind)
    return Signature(parameters, return_annotation=Step)


def _accepted(hint: Any) -> Any:
    """Any sequence, where the option becomes a tuple."""
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(map(_accepted, get_args(hint)))]  # noqa: UP007 - of a number known here only
    parts = get_args(hint)
    if get_origin(hint) is tuple and parts[-1:] == (Ellipsis,):
        return Sequence[parts[0]]  # type: ignore[valid-type]  # what the annotation says
    return hint


def _told(kind: StepKind) -> str:
    """The kind's contract, then each option with what it may be."""
    contract = (getattr(kind, "options").__doc__ or "").strip()  # noqa: B009 - as in _signature
    lines = [f"        {each.name}: {each.metadata['doc']} ({_rule(each).allowed})" for each in _declared(kind)]
    lines += [f"        {each.name}: of the engine {each.engine} ({each.allowed})" for each in _engine_options(kind)]
    return f"{contract}\n\n    Options:\n\n" + "\n".join(lines)
