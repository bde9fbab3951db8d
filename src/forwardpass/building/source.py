"""The ``steps.py`` of functions: each one's source, and of its module what it uses.

The rule: a function may use its parameters, built-in names, modules and names imported from installed packages, plain
constants, and other functions of its module, for which the same holds. Whatever else it uses has no source that would
mean the same elsewhere, and is refused.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from forwardpass.building.function_source import FunctionSource, read, refused
from forwardpass.building.module_values import home, is_constant, is_own_file, submodules, text_of
from forwardpass.core.own_code import module_at
from forwardpass.steps.own import FILE

_HEAD = '"""Own steps, written by forwardpass.Pipeline.save."""\n\nfrom __future__ import annotations\n'
_INSTALLED = "an installed package, or the function itself beside this one"


@dataclass(slots=True)
class Source:
    """What the file is made of, in its order; names are keys so that each is there once."""

    names: dict[str, Any] = field(default_factory=dict)
    """What each of the file's names is here."""
    submodules: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Submodules go first: importing one also binds its package's name, which may be something else's here."""
        deepest = [each for each in self.submodules if not any(o.startswith(f"{each}.") for o in self.submodules)]
        bound = {f"import {each.partition('.')[0]}" for each in deepest}
        blocks = [_HEAD]
        if lines := [*sorted(f"import {each}" for each in deepest), *sorted(self.imports - bound)]:
            blocks.append("\n" + "\n".join(lines) + "\n")
        if self.constants:
            blocks.append("\n" + "".join(f"{name} = {text}\n" for name, text in self.constants.items()))
        return "".join([*blocks, *(f"\n\n{text}" for text in self.functions.values())])

    def prove(self) -> None:
        """Run the file and compare: raises Misconfigured where a name of it would be something else than here."""
        with tempfile.TemporaryDirectory(prefix="forwardpass-") as folder:
            path = Path(folder, FILE)
            path.write_text(self.text, "utf-8")
            try:
                module = module_at(path)
            except Exception as error:  # what the author's defaults say is run again
                found = f"a file of these raises {type(error).__name__}"
                raise refused(", ".join(self.functions), found, "defaults that may be made again") from error
        del sys.modules[module.__name__]  # it was only looked at
        for name, here in self.names.items():
            if not _same(vars(module).get(name), here):
                raise refused(name, "it would be something else in a file of its own", "a plain function or constant")


def source_of(functions: Iterable[Callable[..., object]]) -> Source:
    """The ``steps.py`` in which these functions do what they do here. Raises Misconfigured."""
    source = Source()
    for function in functions:
        assert isinstance(function, FunctionType), "it was checked when it became a step"
        _add(function, source)
    return source


def _add(function: FunctionType, source: Source) -> None:
    if not _is_new(function.__name__, function, source):
        return
    own = read(function)
    for module in own.imported:
        if is_own_file(module):
            raise refused(function.__name__, f"imports {module}, which is a file of yours", _INSTALLED)
    for name in own.globals:
        _add_global(own, name, function.__globals__[name], source)
    source.functions[function.__name__] = own.text


def _add_global(own: FunctionSource, name: str, value: Any, source: Source) -> None:
    if isinstance(value, ModuleType):
        _check_installed(own, name, value.__name__)
        source.submodules |= submodules(own.node, name, value)
        if _is_new(name, value, source):
            source.imports.add(_import(name, value.__name__))
    elif isinstance(value, FunctionType) and value.__module__ == own.module:
        if value.__name__ != name:
            raise refused(own.name, f"uses {value.__name__} under the name {name}", "its own name")
        _add(value, source)
    elif (module := home(value)) is not None:
        _check_installed(own, name, module)
        if _is_new(name, value, source):
            known_as = value.__qualname__
            source.imports.add(f"from {module} import {known_as}" + (f" as {name}" if known_as != name else ""))
    elif is_constant(value):
        if _is_new(name, value, source):
            source.constants[name] = text_of(value)
    else:
        allowed = "imports of installed packages, plain constants, functions of its module, or a parameter"
        raise refused(own.name, f"uses {name} ({type(value).__name__}), which has no source of its own", allowed)


def _is_new(name: str, value: object, source: Source) -> bool:
    """Whether the file has no such name yet. Raises Misconfigured when it has it for something else."""
    if name in source.names and not (source.names[name] is value or _same_constant(source.names[name], value)):
        raise refused(name, "two things of this name are used", "names of their own")
    new = name not in source.names
    source.names.setdefault(name, value)
    return new


def _check_installed(own: FunctionSource, name: str, module: str) -> None:
    if is_own_file(module):
        raise refused(own.name, f"uses {name} of {module}, which is a file of yours", _INSTALLED)


def _import(name: str, module: str) -> str:
    if name == module:
        return f"import {module}"
    parent, _, last = module.rpartition(".")
    if not parent:
        return f"import {module} as {name}"
    return f"from {parent} import {last}" + (f" as {name}" if last != name else "")


def _same(there: object, here: object) -> bool:
    """Of functions the code was compared when it was read."""
    if isinstance(here, FunctionType):
        return isinstance(there, FunctionType) and all(
            _same_default(*pair) for pair in zip(_defaults(there), _defaults(here), strict=True)
        )
    return there is here or _same_constant(there, here)


def _defaults(function: FunctionType) -> list[object]:
    return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _same_default(there: object, here: object) -> bool:
    """Of another default than a constant the source is an expression, which the file has too."""
    return not is_constant(here) or _same_constant(there, here)


def _same_constant(there: object, here: object) -> bool:
    return is_constant(here) and is_constant(there) and text_of(there) == text_of(here)
