"""How a conversion says no, and how a library that it needs is asked for."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, Problem

SHOWN_MAX = 20


def refused(*problems: tuple[str, str, str], detail: str = "") -> Misconfigured:
    """To be raised: each problem is (where, what was found, what is allowed); of very many the first are shown."""
    shown = [Problem("", *problem) for problem in problems[:SHOWN_MAX]]
    if len(problems) > SHOWN_MAX:
        shown.append(Problem("", "", f"{len(problems) - SHOWN_MAX} more", ""))
    return Misconfigured(Code.MODEL_INVALID, tuple(shown), detail=detail)


def needed(module: str, library: str, extra: str) -> Any:
    """The module of a library that this conversion needs. Raises Misconfigured when it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        text = f"the conversion needs {library}: pip install 'forwardpass[{extra}]'"
        raise Misconfigured(Code.RUNTIME_MISSING, text, detail=str(error)) from error


def listed(names: Iterable[object]) -> str:
    """Names for a text; of very many the first."""
    among = [str(name) for name in names]
    more = f" and {len(among) - SHOWN_MAX} more" if len(among) > SHOWN_MAX else ""
    return ", ".join(among[:SHOWN_MAX]) + more
