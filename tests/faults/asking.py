"""Bodies of infer calls: a right one of the identity pipeline, and what is changed in it."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.serving import Reply, Server

LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True)
class Call:
    """One infer call."""

    body: bytes
    pipeline: str = "identity"
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, server: Server) -> Reply:
        return server.call("POST", f"/v2/models/{self.pipeline}/infer", self.body, self.headers)


def infer(pipeline: str = "identity", top: dict[str, Any] | None = None, **tensor: Any) -> Call:
    """The right call with these keys of its only input, and of the whole message, changed; ... takes a key out."""
    right = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    message = {"inputs": [_without(right | tensor)]} | (top or {})
    return Call(json.dumps(_without(message)).encode(), pipeline)


def binary(raw: bytes, *sizes: object, length: str | None = None, pipeline: str = "identity", **tensor: Any) -> Call:
    """The same with its values behind the JSON; one input for each announced size."""
    right = {"name": "x", "datatype": "FP32", "shape": [1, 4]} | tensor
    inputs = [right | {"parameters": {"binary_data_size": size}} for size in sizes]
    head = json.dumps({"inputs": inputs}).encode()
    return Call(head + raw, pipeline, {LENGTH: str(len(head)) if length is None else length})


def _without(keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not ...}
