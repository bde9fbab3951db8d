"""The ``steps.py`` of functions: each one's source, and of its module what it uses.

The rule: a function may use its parameters, built-in names, modules and names imported from installed packages, plain
constants, and other functions of its module, for which the same holds. Whatever else it uses has no source that would
mean the same elsewhere, and is refused.
"""

import ast
import dis
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.own_code import module_at

_HEAD = '"""Own steps, written by forwardpass.Pipeline.save."""\n\nfrom __future__ import annotations\n'
CONSTANT_CHARACTERS_MAX = 100_000


@dataclass(slots=True)
class _Parts:
    """What the file is made of, in its order; names are keys so that each is there once."""

    imports: dict[str, None] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, FunctionType] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def source_of(functions: Iterable[Callable[..., object]]) -> str:
    """The text of a ``steps.py`` in which these functions do what they do here. Raises Misconfigured."""
    parts = _Parts()
    for function in functions:
        assert isinstance(function, FunctionType), "it was checked when it became a step"
        _add(function, parts)
    blocks = [_HEAD]
    if parts.imports:
        blocks.append("\n" + "\n".join(sorted(parts.imports)) + "\n")
    if parts.constants:
        blocks.append("\n" + "".join(f"{name} = {value!r}\n" for name, value in parts.constants.items()))
    blocks += [f"\n\n{source}" for source in parts.sources.values()]
    return "".join(blocks)


def prove(path: Path, functions: Iterable[Callable[..., object]]) -> None:
    """Run the file and compare: raises Misconfigured for a function whose source is not what runs here any more."""
    module = module_at(path)
    for function in functions:
        assert isinstance(function, FunctionType), "it was checked when it became a step"
        if not _same(getattr(module, function.__name__).__code__, function.__code__):
            found = "its source was changed after this process had read it"
            raise _refused(function.__name__, found, "the function as it stands in its file: read it again")


def _same(one: CodeType, other: CodeType) -> bool:
    if (one.co_code, one.co_names, one.co_varnames) != (other.co_code, other.co_names, other.co_varnames):
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=False)
    return len(one.co_consts) == len(other.co_consts) and all(
        _same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else bool(a == b) for a, b in pairs
    )


def _add(function: FunctionType, parts: _Parts) -> None:
    name = function.__name__
    known = parts.functions.get(name)
    if known is function:
        return
    if known is not None or name in parts.constants:
        raise _refused(name, "two things of this name", "names of their own")
    parts.functions[name] = function
    if changed := set(_code_names(function.__code__, "STORE_GLOBAL", "DELETE_GLOBAL")):
        raise _refused(name, f"changes {', '.join(sorted(changed))} of its module", "a function that changes nothing")
    if function.__code__.co_freevars:
        used = ", ".join(function.__code__.co_freevars)
        raise _refused(name, f"uses {used} of the function around it", "parameters, and names of its module")
    node, source = _parsed(function)
    for each in _globals(node, function):
        _add_global(function, each, function.__globals__[each], parts)
    parts.sources[name] = source


def _parsed(function: FunctionType) -> tuple[ast.FunctionDef, str]:
    """The function's own source without the decorator ``@step``."""
    name = function.__name__
    try:
        text = textwrap.dedent(inspect.getsource(function))
        (node,) = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        detail = str(error)
        refusal = _refused(name, "its source cannot be read", "a function written in a file or a notebook's cell")
        refusal.detail = detail
        raise refusal from None
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        raise _refused(name, "is not what stands in its source", "a function made by def, under its own name")
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] != "step":
            raise _refused(name, f"is decorated with @{ast.unparse(called)}", "no decorator but @step")
    source = "\n".join(text.splitlines()[node.lineno - 1 :]).rstrip() + "\n"
    node.decorator_list = []
    return node, source


def _globals(node: ast.FunctionDef, function: FunctionType) -> list[str]:
    """Names of its module that its code uses, inner functions included; annotations mean nothing when it runs."""
    used = set(_code_names(function.__code__, "LOAD_GLOBAL")) | _default_names(node)
    return sorted(name for name in used if name in function.__globals__)


def _code_names(code: CodeType, *instructions: str) -> Iterator[str]:
    """The names that these instructions work on."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in instructions:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_names(constant, *instructions)


def _default_names(node: ast.FunctionDef) -> set[str]:
    defaults = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
    return {part.id for default in defaults for part in ast.walk(default) if isinstance(part, ast.Name)}


def _add_global(function: FunctionType, name: str, value: object, parts: _Parts) -> None:
    if isinstance(value, ModuleType):
        _installed(function, name, value.__name__)
        parent, _, last = value.__name__.rpartition(".")
        same = value.__name__ == name
        form = f"import {name}" if same else f"from {parent} import {last} as {name}" if parent else ""
        parts.imports[form or f"import {value.__name__} as {name}"] = None
    elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
        if value.__name__ != name:
            raise _refused(function.__name__, f"uses {value.__name__} under the name {name}", "its own name")
        _add(value, parts)
    elif (module := _home(name, value)) is not None:
        _installed(function, name, module)
        parts.imports[f"from {module} import {_attribute(value, name)}"] = None
    elif _is_constant(value):
        if name in parts.constants and parts.constants[name] != value:
            raise _refused(function.__name__, f"uses {name}, which is another value in another module", "one value")
        parts.constants[name] = value
    else:
        allowed = "imports of installed packages, plain constants, functions of its module, or a parameter"
        raise _refused(
            function.__name__, f"uses {name} ({type(value).__name__}), which has no source of its own", allowed
        )


def _home(name: str, value: object) -> str | None:
    """The module that a class or function can be imported from; None for a plain value and what no module has."""
    module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualified, str) or "." in qualified or module == "__main__":
        return None
    return module if getattr(sys.modules.get(module), qualified, None) is value else None


def _attribute(value: object, name: str) -> str:
    own: str = getattr(value, "__qualname__")  # noqa: B009 - of what _home found
    return own if own == name else f"{own} as {name}"


def _installed(function: FunctionType, name: str, module: str) -> None:
    """A worker has the interpreter's packages, and no module of the folder that a script or notebook is in."""
    top = module.partition(".")[0]
    spec = getattr(sys.modules.get(top), "__spec__", None)
    origin = getattr(spec, "origin", None) or ""
    if top in sys.stdlib_module_names or origin in ("built-in", "frozen"):
        return
    folders = {sysconfig.get_paths()[key] for key in ("purelib", "platlib", "stdlib")}
    if origin and any(Path(origin).is_relative_to(folder) for folder in folders):
        return
    if top in packages_distributions():  # installed from a folder that is elsewhere
        return
    allowed = "an installed package, or the function itself beside this one"
    raise _refused(function.__name__, f"uses {name} of {module}, which is a file of yours", allowed)


def _is_constant(value: object) -> bool:
    """Whether its text means the same value."""
    text = repr(value)
    if len(text) > CONSTANT_CHARACTERS_MAX:
        return False
    try:
        again = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return type(again) is type(value) and bool(again == value)


def _refused(name: str, found: str, allowed: str) -> Misconfigured:
    return Misconfigured(Code.DEFINITION_INVALID, (Problem("", name, f"cannot be saved: {found}", allowed),))
