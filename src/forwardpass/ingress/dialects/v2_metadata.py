"""The V2 bodies that describe the server and its models. Each satisfies Triton's and KServe's clients alike."""

from collections.abc import Sequence

import orjson

from forwardpass.core.pipeline import Field, Signature, Version
from forwardpass.ingress.message import HttpAnswer

EXTENSIONS = (
    "binary_tensor_data", "classification", "model_configuration", "parameters", "schedule_policy", "sequence",
    "sequence(string_id)", "statistics",
)  # fmt: skip
CONTROL_EXTENSIONS = ("model_repository", "model_repository(unload_dependents)", "logging")
"""Only with the setting data.model_control."""


def live() -> HttpAnswer:
    return _answer({"live": True})


def ready(is_ready: bool) -> HttpAnswer:
    if is_ready:
        return _answer({"live": True, "ready": True})
    return _answer({"error": "the server is not ready", "live": True, "ready": False}, 503)


def model_ready(name: str, is_ready: bool) -> HttpAnswer:
    if is_ready:
        return _answer({"name": name, "ready": True})
    return _answer({"error": f"'{name}' is not ready", "name": name, "ready": False}, 503)


def models(names: Sequence[str]) -> HttpAnswer:
    """KServe's list; not part of the protocol."""
    return _answer({"models": list(names)})


def server_metadata(version: str, extensions: Sequence[str]) -> HttpAnswer:
    return _answer({"name": "forwardpass", "version": version, "extensions": extensions})


def model_metadata(version: Version, numbers: Sequence[int], signature: Signature, platform: str) -> HttpAnswer:
    """Inputs are the columns a request names; the row axis is the first dimension of every shape."""
    return _answer(
        {
            "name": version.pipeline,
            "versions": [str(number) for number in numbers],
            "platform": platform,
            "inputs": [_tensor(field, signature) for field in signature.columns],
            "outputs": [_tensor(field, signature) for field in signature.outputs],
            "properties": {"description": version.definition.description, "digest": version.digest},
        }
    )


def row_shape(field: Field, signature: Signature) -> tuple[int, ...]:
    """The shape of one row as a client sends or gets it."""
    return (-1,) if field.kind == "texts" and field in signature.columns else field.shape


def _tensor(field: Field, signature: Signature) -> dict[str, object]:
    shape = [*signature.leading, *row_shape(field, signature)]
    return {"name": field.name, "datatype": field.datatype, "shape": shape}


def _answer(body: object, status: int = 200) -> HttpAnswer:
    headers = [(b"Retry-After", b"1")] if status == 503 else []
    return HttpAnswer(status, orjson.dumps(body), headers=headers)
