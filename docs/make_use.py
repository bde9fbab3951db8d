"""Write src/forwardpass/use.pyi, by which editors and mypy know the functions of ``forwardpass.use``. See make_reference."""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from forwardpass.building.constructors import constructor, names

STUB = Path(__file__).parents[1] / "src" / "forwardpass" / "use.pyi"
HEAD = """# Written by `make docs` from the options of every kind of step; do not edit.

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from forwardpass.core.pipeline import Step
"""
_HOMES = re.compile(r"\b(collections\.abc|typing|os)\.")


def stub() -> str:
    return HEAD + "".join("".join(_function(name)) for name in names())


def _function(name: str) -> Iterator[str]:
    made = constructor(name)
    yield f"\ndef {name}(\n"
    marked = False
    for parameter in inspect.signature(made).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not marked:
            marked = True
            yield "    *,\n"
        yield f"    {_parameter(parameter)},\n"
    said = inspect.cleandoc(made.__doc__ or "").replace("\\", "\\\\")
    text = "\n".join(f"    {line}".rstrip() for line in said.splitlines()).strip()
    yield f') -> Step:\n    """{text}"""\n'


def _parameter(parameter: inspect.Parameter) -> str:
    known = parameter.annotation is not parameter.empty
    kind = _HOMES.sub("", _hint(parameter.annotation)).replace("'", '"') if known else "Any"
    default = "" if parameter.default is parameter.empty else f" = {_value(parameter.default)}"
    return f"{parameter.name}: {kind}{default}"


def _hint(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        parts = [_hint(each) for each in get_args(hint) if each is not NoneType]
        return " | ".join([*parts, *(["None"] if NoneType in get_args(hint) else [])])
    return inspect.formatannotation(hint)


def _value(value: object) -> str:
    return repr(value).replace("'", '"')


if __name__ == "__main__":
    sys.stdout.write(f"{STUB.name}: {len(names())} kinds\n")
    STUB.write_text(stub(), "utf-8")
