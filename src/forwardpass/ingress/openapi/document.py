"""The OpenAPI 3.1 document of the data plane: every route of the table, with the pipelines that are served now.

A path that stands for one pipeline and depends on its signature is written out for each; other paths with placeholders
list what these may be. Left out are routes of a task, or of sequences, that no pipeline has: all they can do is refuse.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forwardpass.ingress.openapi import answers, infer_bodies, parameters
from forwardpass.ingress.openapi.operations import OPERATIONS, Operation
from forwardpass.ingress.openapi.page import ASSETS
from forwardpass.ingress.openapi.served import Schema, Served
from forwardpass.ingress.routes import Family, Route

SERVER_TAG = "The server"
_TAGS: dict[Family, tuple[str, str]] = {
    "v2": ("Open Inference Protocol", "V2, and what else has its form of errors"),
    "openai": ("OpenAI", "for clients of OpenAI's API"),
    "cohere": ("Reranking", "for clients of Cohere's and Jina's APIs"),
    "tei": ("Text Embeddings Inference", "for clients of TEI"),
    "mlflow": ("Scoring platforms", "MLflow, SageMaker and Vertex AI"),
}
_SECURITY: Schema = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "a key, or an issuer's token"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_WHO = ("X-Pipeline", "X-Pipeline-Version", "X-Pipeline-Digest", "X-Sequence-Id", "Idempotency-Replayed")


@dataclass(frozen=True, slots=True)
class _Place:
    """A path of the document and who may be asked there; ``apart`` by the one pipeline or version of the path."""

    path: str
    route: Route
    subjects: Sequence[Served]
    apart: bool = False

    @property
    def name(self) -> str:
        """The operation's identifier, which another place may have too."""
        number = "{version}" in self.route.pattern
        if not self.apart:
            return f"{self.route.endpoint}_version" if number else self.route.endpoint
        (served,) = self.subjects
        return f"{self.route.endpoint}_{served.identifier}" + (f"_{served.number}" if number else "")


def document(
    routes: Sequence[Route], served: Sequence[Served], product_version: str, *, secured: bool = False
) -> Schema:
    """Of these routes, over these versions; ``secured``: every request says who asks, but for the server's health.

    Pure; its time is a fraction of a millisecond a pipeline.
    """
    paths: dict[str, Schema] = {}
    names: set[str] = set()
    known = {
        "pipeline": sorted({each.pipeline for each in served}),
        "version": [str(number) for number in sorted({each.number for each in served})],
        "model": sorted({name for each in served for name in each.names}),
        "asset": list(ASSETS),
    }
    shown = [place for route in routes for place in _places(route, OPERATIONS[route.endpoint], served)]
    for place in shown:
        described = _operation(place, OPERATIONS[place.route.endpoint], known)
        described["operationId"] = _unused(place.name, names)
        if secured and place.route.scope == "open":
            described["security"] = []
        paths.setdefault(place.path, {}).setdefault(place.route.method.decode().lower(), described)
    families = {place.route.family for place in shown}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "forwardpass",
            "version": product_version,
            "description": "Pipelines: models with the exact steps around them. Made from what is served now.",
        },
        "servers": [{"url": "/"}],
        "tags": list(_tags(families, served)),
        "paths": paths,
        "components": _components([place.route for place in shown], families, served)
        | ({"securitySchemes": _SECURITY} if secured else {}),
        **({"security": [{name: []} for name in _SECURITY]} if secured else {}),
    }


def _places(route: Route, operation: Operation, served: Sequence[Served]) -> Iterator[_Place]:
    asked = [each for each in served if operation.asks(each)]
    current = [each for each in asked if each.current]
    if operation.apart and "{pipeline}" in route.pattern:
        for each in asked if "{version}" in route.pattern else current:
            path = route.pattern.replace("{pipeline}", each.pipeline).replace("{version}", str(each.number))
            yield _Place(path, route, (each,), apart=True)
    elif current or not operation.tasks:
        yield _Place(route.pattern, route, current)


def _operation(place: _Place, operation: Operation, known: Mapping[str, Sequence[str]]) -> Schema:
    route = place.route
    described: Schema = {"summary": route.summary, "tags": [_tag(place)]}
    if place.apart and (text := place.subjects[0].definition.description):
        described["description"] = text
    if place.apart and "{version}" in route.pattern:
        described["x-version"] = place.subjects[0].number
    given = parameters.in_the_path(_PLACEHOLDER.findall(place.path), known)
    given += parameters.beside_the_body(operation.parameters, place.subjects)
    described["parameters"] = given
    if operation.body is not None and route.method != b"GET":
        content = operation.body(place.subjects)
        described["requestBody"] = {"required": operation.body_required, "content": content}
    who = _WHO if route.scope == "infer" else ()
    described["responses"] = answers.responses(route)
    if operation.answer is not None:
        success: Schema = {
            "description": route.summary,
            "headers": answers.header_references("X-Request-Id", "X-Client-Request-Id", "traceparent", *who),
        }
        if content := operation.answer(place.subjects):
            success["content"] = content
        described["responses"] = {"200": success, **described["responses"]}
    return described


def _tag(place: _Place) -> str:
    if place.apart:
        return place.subjects[0].pipeline
    return _TAGS.get(place.route.family, (SERVER_TAG, ""))[0]


def _tags(families: Iterable[Family], served: Sequence[Served]) -> Iterator[dict[str, Any]]:
    for each in served:
        if each.current:
            yield {"name": each.pipeline, "description": each.definition.description or "a pipeline"}
    for family, (name, text) in _TAGS.items():
        if family in families:
            yield {"name": name, "description": text}


def _unused(name: str, names: set[str]) -> str:
    """The name, or with a number after it the first that is free; it is taken from now on."""
    found, number = name, 1
    while found in names:
        number += 1
        found = f"{name}_{number}"
    names.add(found)
    return found


def _components(routes: Sequence[Route], families: Iterable[Family], served: Sequence[Served]) -> Schema:
    schemas = infer_bodies.shared() | answers.schema_components(families)
    for each in served:
        schemas |= infer_bodies.components(each)
    return {
        "schemas": schemas,
        "responses": answers.response_components(routes),
        "parameters": parameters.COMPONENTS,
        "headers": answers.header_components(),
    }
