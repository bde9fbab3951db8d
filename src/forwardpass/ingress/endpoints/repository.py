"""V2's model repository: what could be served, and loading and unloading it by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.dialects.v2_repository import check_load, check_unload, only_ready
from forwardpass.ingress.message import HttpAnswer

READY = "READY"


class Repository(Protocol):
    """Pipelines in the server's sources, loaded or not."""

    async def index(self) -> Sequence[dict[str, str]]:
        """name, version, state (a word of Triton's) and reason of every version, by name and number."""

    async def load(self, pipeline: str) -> None:
        """Until it answers; what is loaded stays as it is. Raises Failure."""

    async def unload(self, pipeline: str) -> None:
        """All its versions, once their requests have ended. Raises Failure."""


@dataclass(frozen=True, slots=True)
class ModelControl:
    """Who may ask is the route table's business."""

    repository: Repository

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {
            "repository_index": self._index,
            "repository_load": self._load,
            "repository_unload": self._unload,
            "other_repository": self._other_repository,
        }

    async def _index(self, call: Call) -> HttpAnswer:
        wanted = only_ready(call.http.body)
        entries = [entry for entry in await self.repository.index() if not wanted or entry["state"] == READY]
        return HttpAnswer(200, orjson.dumps(entries))

    async def _load(self, call: Call) -> HttpAnswer:
        check_load(call.http.body)
        await self.repository.load(call.match.pipeline)
        return HttpAnswer(200, orjson.dumps({"name": call.match.pipeline, "load": True}))

    async def _unload(self, call: Call) -> HttpAnswer:
        check_unload(call.http.body)
        await self.repository.unload(call.match.pipeline)
        return HttpAnswer(200, orjson.dumps({"name": call.match.pipeline, "unload": True}))

    async def _other_repository(self, call: Call) -> HttpAnswer:
        raise Refused(Code.NOT_IMPLEMENTED, "repositories have no names here: there is one, at /v2/repository")
