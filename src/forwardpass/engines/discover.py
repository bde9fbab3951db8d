"""Engines by name. A package offers one as an EngineKind under the entry-point group ``forwardpass.engines``.

Looking an engine up imports its small module, never its runtime: that happens in ``load``, inside a worker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.engines.protocol import Engine

GROUP = "forwardpass.engines"


@dataclass(frozen=True, slots=True)
class EngineOption:
    """One engine option: what is allowed in words and as a test, and what it is when not written.

    A default that is not allowed: it must be written.
    """

    allowed: str
    test: Callable[[Any], bool]
    default: Any


@dataclass(frozen=True, slots=True)
class EngineKind:
    """What is known of an engine before it is loaded."""

    make: Callable[[], Engine]
    options: Mapping[str, EngineOption] = field(default_factory=dict)
    platform: str = ""  # as V2 metadata names it
    own_code: bool = False  # the model file is code: trusted versions only, it declares its inputs and outputs itself
    apart: bool = False  # it tells state and constants from rows, see ModelSignature
    plain: Mapping[str, Any] = field(default_factory=dict)  # options that switch off what could change answers
    safe: Mapping[str, Any] = field(default_factory=dict)  # options to fall back to when it does
    candidates: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # engines to choose from, the first being the reference

    def settings(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's options in effect."""
        return {name: written.get(name, option.default) for name, option in self.options.items()}


def engine_names() -> list[str]:
    """The engines installed, sorted."""
    return sorted({entry.name for entry in _entries()})


def engine_kind(name: str) -> EngineKind:
    """The engine of this name. Raises Misconfigured when none is installed or what is installed is no EngineKind."""
    for entry in _entries().select(name=name):
        kind = entry.load()
        if isinstance(kind, EngineKind):
            return kind
        raise Misconfigured(Code.RUNTIME_MISSING, f"engine {name!r}: its package offers no EngineKind")
    raise Misconfigured(
        Code.DEFINITION_INVALID, f"no engine {name!r}; installed: {', '.join(engine_names()) or 'none'}"
    )


@cache
def _entries() -> EntryPoints:
    """Read once: looking through all installed packages takes 10 ms, and a process keeps what it has imported of them."""
    return entry_points(group=GROUP)
