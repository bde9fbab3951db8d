"""Kept answers, for the operator: how many there are, how old, and away with them."""

from dataclasses import dataclass
from typing import Any

import orjson

from forwardpass.cache.shelf import Shelves
from forwardpass.core.errors import Code, Refused, show
from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.message import HttpAnswer
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant


@dataclass(frozen=True, slots=True)
class CacheControl:
    """Who may ask is the route table's business."""

    routes: Routes
    shelves: Shelves

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {"cache_show": self._show, "cache_purge": self._purge}

    async def _show(self, call: Call) -> HttpAnswer:
        tier = self.shelves.tier
        told = {
            "bytes": self.shelves.bytes,
            "bytes_max": self.shelves.bytes_max,
            "redis": tier.status() if tier is not None else None,
            "versions": [_told(variant) for variant in self.routes.variants()],
        }
        return HttpAnswer(200, orjson.dumps(told))

    async def _purge(self, call: Call) -> HttpAnswer:
        """Of a pipeline that is not served here the shared ones may still go. Raises Refused pipeline_not_found."""
        name, tier = call.match.pipeline, self.shelves.tier
        if name and tier is None and not self.routes.serves(name):
            raise Refused(Code.PIPELINE_NOT_FOUND, f'pipeline "{show(name)}" is not served here')
        told: dict[str, Any] = {"purged": self._forget(name)}
        if tier is not None:
            told["purged_in_redis"] = await tier.purge(name)  # null: it did not answer
            self._forget(name)  # what was found there meanwhile
        return HttpAnswer(200, orjson.dumps(told))

    def _forget(self, name: str) -> int:
        """What is kept in memory."""
        caches = [each.cache for each in self.routes.variants() if name in ("", each.version.pipeline)]
        return sum([cache.purge() for cache in caches if cache is not None])


def _told(variant: Variant) -> dict[str, Any]:
    told: dict[str, Any] = {
        "pipeline": variant.version.pipeline,
        "version": variant.version.number,
        "cache": variant.cache_reason,
    }
    return told if variant.cache is None else {**told, **variant.cache.status()}
