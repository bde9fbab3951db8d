"""Values that functions find in their module: where they come from, and which can be written down."""

import ast
import sys
import sysconfig
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

CONSTANT_CHARACTERS_MAX = 100_000


def home(value: object) -> str | None:
    """The module that a class or function can be imported from; None for a plain value and what no module has."""
    module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualified, str) or "." in qualified or module == "__main__":
        return None
    return module if getattr(sys.modules.get(module), qualified, None) is value else None


def submodules(node: ast.AST, name: str, module: ModuleType) -> set[str]:
    """The modules inside ``module`` that this code reaches through its ``name``: to import it need not import them."""
    found: set[str] = set()
    for part in ast.walk(node):
        path, inner = _path(part), module.__name__
        if path[:1] != [name]:
            continue
        place: object = module
        for attribute in path[1:]:
            inner = f"{inner}.{attribute}"
            if inner not in sys.modules or getattr(place, attribute, None) is not sys.modules[inner]:
                break
            place = sys.modules[inner]
            found.add(inner)
    return found


def _path(node: ast.AST) -> list[str]:
    """["a", "b", "c"] for a.b.c; [] for what is no such name."""
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            before = _path(node.value)
            return [*before, node.attr] if before else []
    return []


def is_own_file(module: str) -> bool:
    """A worker has the interpreter's packages, and no module of the folder that a script or notebook is in."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return False
    try:
        spec = find_spec(top) if top else None
    except ValueError:  # a module that no file was found for: the script itself
        spec = None
    if spec is None:
        return not top or top in sys.modules  # what is not there at all is not there for anybody
    origin = spec.origin or ""
    folders = {sysconfig.get_paths()[key] for key in ("purelib", "platlib", "stdlib")}
    if origin in ("built-in", "frozen") or (origin and any(Path(origin).is_relative_to(each) for each in folders)):
        return False
    return top not in packages_distributions()  # installed from a folder that is elsewhere


def is_constant(value: object) -> bool:
    """Whether its text means the same value."""
    text = repr(value)
    if len(text) > CONSTANT_CHARACTERS_MAX:
        return False
    try:
        again = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return type(again) is type(value) and bool(again == value)


def text_of(constant: Any) -> str:
    """Of equal constants the same: as ``repr``, but a set's elements are sorted, whose order is chance."""
    match constant:
        case set() if constant:
            return "{" + ", ".join(sorted(map(text_of, constant))) + "}"
        case dict():
            return "{" + ", ".join(f"{text_of(key)}: {text_of(each)}" for key, each in constant.items()) + "}"
        case list():
            return "[" + ", ".join(map(text_of, constant)) + "]"
        case tuple():
            return "(" + ", ".join(map(text_of, constant)) + (",)" if len(constant) == 1 else ")")
    return repr(constant)
