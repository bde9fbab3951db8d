"""The bodies of V2's model repository requests: what may be asked, and what a client cannot bring along."""

from collections.abc import Mapping

from forwardpass.core.errors import Code, Refused, show
from forwardpass.ingress.strict_json import decode
from forwardpass.pipeline.bounds import refuse, unknown_field

UNLOAD_DEPENDENTS = "unload_dependents"


def only_ready(body: bytes) -> bool:
    """Whether an index of what is ready is asked for. Raises Refused."""
    members = _members(body, ("ready",))
    return _boolean(members["ready"], "/ready") if "ready" in members else False


def check_load(body: bytes) -> None:
    """Raises Refused for any parameter: a configuration or files would be a model that a client sends."""
    for name in _parameters(body):
        if name == "config" or name.startswith("file:"):
            text = "is not supported: models are taken in from the repository, clients cannot send them"
            raise refuse(Code.UNKNOWN_FIELD, "/parameters/config" if name == "config" else "/parameters/file:", text)
        raise refuse(Code.UNKNOWN_FIELD, f"/parameters/{show(name)}", "is unknown; a load has no parameters here")


def check_unload(body: bytes) -> None:
    """Raises Refused for any parameter but ``unload_dependents``, with which nothing changes: nothing depends on a model."""
    for name, value in _parameters(body).items():
        if name != UNLOAD_DEPENDENTS:
            raise unknown_field(name, (UNLOAD_DEPENDENTS,), "/parameters")
        _boolean(value, f"/parameters/{UNLOAD_DEPENDENTS}")


def _parameters(body: bytes) -> Mapping[str, object]:
    parameters = _members(body, ("parameters",)).get("parameters", {})
    if not isinstance(parameters, dict):
        raise refuse(Code.WRONG_TYPE, "/parameters", "expected an object")
    return parameters


def _members(body: bytes, allowed: tuple[str, ...]) -> Mapping[str, object]:
    """Of an object; no body is an empty one."""
    members = decode(body) if body else {}
    if not isinstance(members, dict):
        raise Refused(Code.WRONG_TYPE, "the body: expected an object")
    for name in members:
        if name not in allowed:
            raise unknown_field(name, allowed)
    return members


def _boolean(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise refuse(Code.WRONG_TYPE, where, "expected a boolean")
    return value
