"""What the document tells of one loaded version, apart from how it runs."""

import re
from dataclasses import dataclass
from typing import Any

from forwardpass.core.pipeline import Pipeline, Signature

Schema = dict[str, Any]
"""A JSON Schema, or another object of the document."""
Content = dict[str, Schema]
"""By media type what a body is: its schema, perhaps with examples."""


@dataclass(frozen=True, slots=True)
class Served:
    """A version that takes requests; ``current`` is the one that answers those which name no version."""

    pipeline: str
    number: int
    definition: Pipeline
    signature: Signature
    current: bool

    def part(self, name: str) -> str:
        """Where one of its schemas stands among the document's components."""
        return f"{self.pipeline}.{self.number}.{name}"

    @property
    def names(self) -> tuple[str, str]:
        """What requests that name a model call it: without its number whichever version is current."""
        return self.pipeline, f"{self.pipeline}:{self.number}"

    @property
    def identifier(self) -> str:
        """The pipeline's name as languages write names."""
        return re.sub(r"\W", "_", self.pipeline)


def reference(part: str, kind: str = "schemas") -> Schema:
    """A reference to one of the document's components."""
    return {"$ref": f"#/components/{kind}/{part}"}


def object_of(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """An object of these and no other members, all of them required but the ``optional`` ones."""
    required = [name for name in properties if name not in optional]
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def list_of(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}
