"""CEL, the Common Expression Language of the rules: compiled once, its mistakes found before any row is seen.

An expression has no loops, no clock and no effect; it ends. Its cost grows with its length and the lists it walks
(``exists``, ``all``, ``map``, ``filter``; inside each other they multiply), and only the author of a pipeline writes one.
A regular expression in it is matched in time linear in the text, whatever its pattern.

What the library does where CEL leaves a choice: numbers of all types compare with each other (``score < 1``), but
arithmetic wants one type (``score * 2.0``); ``1.0 / 0.0`` is infinite; an unknown key, null in a comparison of order, or
an integer over 64 bits is an error.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, show
from forwardpass.steps.options import Wrong

CHARACTERS_MAX = 4096
FIELDS = "fields"  # the name through which a field is reached whose own name is no identifier
ALLOWED = f"a CEL expression of 1 to {CHARACTERS_MAX} characters"
TYPES = frozenset({"bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint"})
FUNCTIONS = frozenset(
    {
        "size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "bytes", "dyn",
        "type", "timestamp", "duration", "getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate",
        "getDayOfWeek", "getHours", "getMinutes", "getSeconds", "getMilliseconds",
    }
)  # fmt: skip
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_TOKEN = re.compile(
    r"//[^\n]*|"
    r'(?P<text>[bBrR]{0,2}(?:"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'))|'
    r"(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<sign>\S)",
    re.DOTALL,
)
_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?(.*)")
_INVALID_PATTERN = "not a valid regex"

Variables = Mapping[str, Any]


class Unanswered(Exception):
    """An expression that has no value for these variables; ``reason`` names no value, ``detail`` may."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class Expression:
    """``names`` are the variables it reads, ``keys`` the fields it reads as ``fields["key"]``; see ``compiled``."""

    names: frozenset[str]
    keys: frozenset[str]
    bound: frozenset[str]  # by a macro, as in list.exists(x, x > 1)
    program: Any

    def value(self, variables: Variables) -> Any:
        """What it is with these variables. Raises Unanswered."""
        try:
            return self.program.execute(variables)
        except TypeError as error:
            raise Unanswered("a value is null or of another type than the expression needs", str(error)) from None
        except ZeroDivisionError as error:
            raise Unanswered("a division by zero", str(error)) from None
        except ArithmeticError as error:
            raise Unanswered("a number is too large", str(error)) from None
        except LookupError as error:
            raise Unanswered("a key or an element is not there", str(error)) from None
        except (RuntimeError, ValueError) as error:
            raise Unanswered("the expression cannot be evaluated", str(error)) from None

    def trial(self, variables: Variables) -> Any:
        """``value`` with made-up variables of the right types, None when that shows nothing. Raises Wrong."""
        try:
            return self.program.execute(variables)
        except TypeError as error:
            raise Wrong(str(error).split(".")[0], "operands of types that fit each other") from None
        except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
            if _INVALID_PATTERN in str(error):
                raise Wrong("an invalid regular expression", "one that the function matches takes") from None
            return None


def compiled(text: str) -> Expression:
    """The expression of this text. Raises Wrong with the place of its mistake, or Misconfigured without the library."""
    if not 0 < len(text) <= CHARACTERS_MAX:
        raise Wrong(f"{len(text)} characters", ALLOWED)
    program = _parsed(text)
    unknown = sorted(name for name in program.functions() if name.isidentifier() and name not in FUNCTIONS)
    if unknown:
        raise Wrong(f"no function is named {show(unknown[0])}", f"functions: {', '.join(sorted(FUNCTIONS))}")
    tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text) if match.lastgroup]
    bound = frozenset(_bound(tokens))
    keys = frozenset(_keys(tokens))
    return Expression(frozenset(program.variables()), keys, bound, program)


def library() -> Any:
    """The CEL library. Raises Misconfigured when it is not installed."""
    try:
        import cel
    except ModuleNotFoundError:
        text = "rules need the CEL library: pip install 'forwardpass[rules]'"
        raise Misconfigured(Code.RUNTIME_MISSING, text) from None
    return cel


def _parsed(text: str) -> Any:
    try:
        return library().compile(text)
    except ValueError as error:
        place = _PLACE.search(str(error))
        found = f"at {place[1]}:{place[2]}: {place[3]}" if place else "no CEL"
        raise Wrong(found[:300], ALLOWED) from None


def _bound(tokens: list[tuple[str, str]]) -> Iterator[str]:
    """The names that macros bind: ``x`` of ``list.exists(x, x > 1)``."""
    for at in range(len(tokens) - 4):
        (_, dot), (_, macro), (_, opened), (kind, name), (_, comma) = tokens[at : at + 5]
        if (dot, opened, comma) == (".", "(", ",") and macro in _MACROS and kind == "name":
            yield name


def _keys(tokens: list[tuple[str, str]]) -> Iterator[str]:
    """The fields read through ``fields``: which ones must be known beforehand, so their names are written out."""
    for at, token in enumerate(tokens):
        if token != ("name", FIELDS) or (at and tokens[at - 1][1] == "."):
            continue
        (_, opened), (kind, name) = (*tokens[at + 1 : at + 3], ("", ""), ("", ""))[:2]
        if opened == "." and kind == "name":
            yield name
        elif opened == "[" and kind == "text" and tokens[at + 3 : at + 4] == [("sign", "]")]:
            yield str(library().compile(name).execute({}))
        else:
            raise Wrong(f"{FIELDS} without a name", f'{FIELDS}["NAME"], with the name written out')
