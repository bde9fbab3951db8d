"""The OpenAPI document, made anew when other versions are served, and the page that tries what it describes."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer
from forwardpass.ingress.openapi import page
from forwardpass.ingress.routes import Route
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.variant import Variant

if TYPE_CHECKING:
    from forwardpass.ingress.openapi.served import Served

DOCUMENTS_MAX = 16
"""Kept: one for each set of pipelines that callers may ask."""


class Documentation:
    """Of the data plane's routes over HTTP; those that need a setting which is not ``enabled`` are left out.

    Each caller is told of the pipelines that it may ask. ``secured``: callers say who they are.
    """

    def __init__(
        self,
        inference: Inference,
        routes: Sequence[Route],
        enabled: frozenset[str],
        product_version: str,
        *,
        secured: bool = False,
    ) -> None:
        self._inference = inference
        self._routes = [route for route in routes if not route.needs or route.needs in enabled]
        self._product_version = product_version
        self._files = page.read()
        self._making = asyncio.Lock()
        self._secured = secured
        self._documents: dict[tuple[tuple[str, int, str], ...], bytes] = {}  # by the versions that they describe

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {"openapi": self._openapi, "try_page": self._page, "try_page_asset": self._asset}

    async def _openapi(self, call: Call) -> HttpAnswer:
        async with self._making:
            ready = [each for each in self._inference.visible(call.caller) if each.stage is Stage.READY]
            versions = tuple((each.version.pipeline, each.version.number, each.version.digest) for each in ready)
            document = self._documents.get(versions)
            if document is None:
                document = self._documents[versions] = await asyncio.to_thread(self._made, _served(ready))
                if len(self._documents) > DOCUMENTS_MAX:
                    del self._documents[next(iter(self._documents))]
            return HttpAnswer(200, document, headers=[(b"Cache-Control", b"no-cache")])

    async def _page(self, call: Call) -> HttpAnswer:
        return HttpAnswer(200, self._files[page.PAGE], b"text/html; charset=utf-8", list(page.HEADERS))

    async def _asset(self, call: Call) -> HttpAnswer:
        name = call.match.values["asset"]
        if name not in page.ASSETS:
            raise Refused(Code.ROUTE_NOT_FOUND, "there is nothing at this path")
        return HttpAnswer(200, self._files[name], page.ASSETS[name], list(page.HEADERS))

    def _made(self, served: Sequence["Served"]) -> bytes:
        from forwardpass.ingress.openapi.document import document  # many modules, which most servers never need

        return orjson.dumps(document(self._routes, served, self._product_version, secured=self._secured))


def _served(variants: Sequence[Variant]) -> "list[Served]":
    """Of variants by pipeline and number: the last of a pipeline is the one that answers for it."""
    from forwardpass.ingress.openapi.served import Served

    newest = {each.version.pipeline: each.version.number for each in variants}
    return [
        Served(
            each.version.pipeline,
            each.version.number,
            each.version.definition,
            each.signature,
            newest[each.version.pipeline] == each.version.number,
        )
        for each in variants
    ]
