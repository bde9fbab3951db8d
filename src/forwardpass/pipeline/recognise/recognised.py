"""What a recogniser says of a model: the steps around it, by what it knows each, and what it only assumes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forwardpass.core.pipeline import Input, Step

Record = dict[str, Any]
MADE_UP = "the examples' pictures are made up: put real ones in their place"


@dataclass(frozen=True, slots=True)
class Placed:
    """A step, and why it is there."""

    step: Step
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recognised:
    """``files`` are those of the folder by name: where each is, or its text. ``examples`` are made-up requests, with
    bytes for pictures; empty means that any made-up tensors do."""

    family: str
    known: tuple[str, ...]  # what it was recognised by: file, key and value
    assumed: tuple[str, ...]
    inputs: tuple[Input, ...]
    steps: tuple[Placed, ...]
    outputs: tuple[str, ...]
    files: Mapping[str, Path | str]
    examples: tuple[Record, ...] = ()


@dataclass(slots=True)
class Notes:
    """Collects what is known and what is assumed while a family is looked at."""

    known: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)

    def know(self, text: str) -> None:
        self.known.append(text)

    def assume(self, text: str) -> None:
        self.assumed.append(text)
