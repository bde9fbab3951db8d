"""One function's own source, proved to be what runs here, and which names it uses of its module."""

import __future__

import ast
import dis
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.abc import InspectLoader
from inspect import CO_NESTED
from types import CodeType, FunctionType

from forwardpass.core.errors import Code, Misconfigured, Problem

_POSTPONED = "from __future__ import annotations\n"
_FLAG = __future__.annotations.compiler_flag
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """``text`` is the definition without its decorator, as it goes to a file whose annotations mean nothing."""

    name: str
    module: str
    node: ast.FunctionDef
    text: str
    globals: list[str]
    """Names of its module that its code uses, inner functions, classes and defaults included."""
    imported: list[str]
    """Modules that it imports when it runs."""


def read(function: FunctionType) -> FunctionSource:
    """Raises Misconfigured for a function that does not stand by itself, or whose source is not what runs here."""
    name, code = function.__name__, function.__code__
    if changed := set(_names(code, "STORE_GLOBAL", "DELETE_GLOBAL")):
        raise refused(name, f"changes {', '.join(sorted(changed))} of its module", "a function that changes nothing")
    if code.co_freevars:
        used = ", ".join(code.co_freevars)
        raise refused(name, f"uses {used} of the function around it", "parameters, and names of its module")
    node, text = _parsed(function)
    if not any(_has(each, code) for each in ("".join(inspect.findsource(function)[0]), text)):
        found = "its source was changed after this process had read it, or it was changed itself"
        raise refused(name, found, "the function as it stands in its file: read it again")
    used_names = set(_names(InspectLoader.source_to_code(_POSTPONED + text), *_LOADS))
    of_module = sorted(each for each in used_names if each in function.__globals__ and not each.startswith("__"))
    return FunctionSource(name, function.__module__, node, text, of_module, list(_imported(node)))


def refused(name: str, found: str, allowed: str) -> Misconfigured:
    return Misconfigured(Code.DEFINITION_INVALID, (Problem("", name, f"cannot be saved: {found}", allowed),))


def _parsed(function: FunctionType) -> tuple[ast.FunctionDef, str]:
    """The function's definition without the decorator ``@step``, and its text."""
    name = function.__name__
    try:
        text = _dedented(inspect.getsource(function))
        (node,) = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        refusal = refused(name, "its source cannot be read", "a function written in a file or a notebook's cell")
        refusal.detail = str(error)
        raise refusal from None
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        raise refused(name, "is not what stands in its source", "a function made by def, under its own name")
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] != "step":
            raise refused(name, f"is decorated with @{ast.unparse(called)}", "no decorator but @step")
    node.decorator_list = []
    return node, "\n".join(text.splitlines()[node.lineno - 1 :]).rstrip() + "\n"


def _dedented(text: str) -> str:
    """Without the indentation of its first line, but for lines that are within a string: they are its value."""
    lines = text.splitlines(keepends=True)
    margin = len(text) - len(text.lstrip(" \t"))
    if not margin:
        return text
    within = {
        line - 1  # of the line that is put before it here
        for node in ast.walk(ast.parse(f"if True:\n{text}"))
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno is not None
        for line in range(node.lineno + 1, node.end_lineno + 1)
    }
    return "".join(
        line if number in within or line[:margin].strip() else line[margin:] or "\n"
        for number, line in enumerate(lines, start=1)
    )


def _has(text: str, code: CodeType) -> bool:
    """Whether a file or a notebook's cell has a function of this code. Nothing of it is run.

    The whole is compiled as it was: what it imports decides how methods are called.
    """
    try:
        compiled = InspectLoader.source_to_code((_POSTPONED if code.co_flags & _FLAG else "") + text)
    except (SyntaxError, ValueError):  # a cell may await
        return False
    return any(each.co_name == code.co_name and _bare(each) == _bare(code) for each in _codes(compiled))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _bare(code: CodeType) -> CodeType:
    """Without what depends on where it stands. Equal ones have constants of equal types, too."""
    constants = tuple(_bare(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(
        co_filename="",
        co_firstlineno=1,
        co_linetable=b"",
        co_qualname="",
        co_flags=code.co_flags & ~CO_NESTED,
        co_consts=constants,
    )


def _names(code: CodeType, *instructions: str) -> Iterator[str]:
    """The names that these instructions work on."""
    for each in _codes(code):
        for instruction in dis.get_instructions(each):
            if instruction.opname in instructions:
                yield str(instruction.argval)


def _imported(node: ast.FunctionDef) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom):
            yield "." * part.level + (part.module or "")
