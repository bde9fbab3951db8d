"""What gRPC says of the server, its models and their repository: the endpoints of REST, asked and answered in messages.

The messages were made to have the members of the JSON bodies, so one endpoint serves both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from forwardpass.core.errors import Code, Failure, Refused, show
from forwardpass.ingress.grpc.messages import Message
from forwardpass.ingress.message import HttpAnswer
from forwardpass.ingress.routes import version_number
from forwardpass.pipeline.bounds import refuse

SERVICE = "inference.GRPCInferenceService"
NOT_READY = frozenset({Code.NOT_READY, Code.PIPELINE_NOT_FOUND, Code.VERSION_NOT_FOUND, Code.MODEL_UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class Described:
    """One method: ``values`` are what REST has in the path, ``body`` its JSON body, ``answer`` the message's members.

    ``failed`` may turn a failure into an answer.
    """

    request: str
    response: str
    values: Callable[[Message], Mapping[str, str]] = lambda message: {}
    body: Callable[[Message], Mapping[str, Any] | None] = lambda message: None
    answer: Callable[[Any], Mapping[str, Any]] = lambda answer: answer
    failed: Callable[[Failure], Mapping[str, Any] | None] = lambda failure: None


def members(answer: HttpAnswer) -> Any:
    """The JSON that an endpoint answered."""
    assert isinstance(answer.body, bytes), "descriptions are short"
    return orjson.loads(answer.body) if answer.body else {}


def _not_ready(failure: Failure) -> Mapping[str, Any] | None:
    return {"ready": False} if failure.code in NOT_READY else None


def _model(message: Message) -> Mapping[str, str]:
    if not message.name:
        raise refuse(Code.MISSING_FIELD, "/name", "is required")
    return _any_model(message)


def _any_model(message: Message) -> Mapping[str, str]:
    values = {"pipeline": message.name} if message.name else {}
    if message.version:
        values["version"] = str(version_number(message.version))
    return values


def _own_repository(message: Message) -> None:
    if message.repository_name:
        raise Refused(Code.NOT_IMPLEMENTED, "there is one repository; repository_name must be empty")


def _index(message: Message) -> Mapping[str, Any]:
    _own_repository(message)
    return {"ready": message.ready}


def _controlled(message: Message) -> Mapping[str, str]:
    _own_repository(message)
    if not message.model_name:
        raise refuse(Code.MISSING_FIELD, "/model_name", "is required")
    return {"pipeline": message.model_name}


def _control(message: Message) -> Mapping[str, Any] | None:
    parameters = {name: _plain(value, f"/parameters/{show(name)}") for name, value in message.parameters.items()}
    return {"parameters": parameters} if parameters else None


def _plain(value: Message, where: str) -> object:
    kind = value.WhichOneof("choice")
    if kind is None or kind == "bytes_param":
        raise refuse(Code.WRONG_TYPE, where, "expected a boolean, an integer or a string")
    return getattr(value, kind)


def _service(message: Message) -> Mapping[str, str]:
    if message.service not in ("", SERVICE):
        raise Refused(Code.ROUTE_NOT_FOUND, f"there is no service '{show(message.service)}' (services: {SERVICE})")
    return {}


def _log(message: Message) -> Mapping[str, Any] | None:
    return {name: _plain(value, f"/settings/{show(name)}") for name, value in message.settings.items()} or None


def _logged(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    kinds = {bool: "bool_param", int: "uint32_param", str: "string_param"}
    return {"settings": {name: {kinds[type(value)]: value} for name, value in settings.items()}}


METHODS: Mapping[str, Described] = {
    "ServerLive": Described("ServerLiveRequest", "ServerLiveResponse"),
    "ServerReady": Described("ServerReadyRequest", "ServerReadyResponse", failed=_not_ready),
    "ModelReady": Described("ModelReadyRequest", "ModelReadyResponse", _model, failed=_not_ready),
    "ServerMetadata": Described("ServerMetadataRequest", "ServerMetadataResponse"),
    "ModelMetadata": Described("ModelMetadataRequest", "ModelMetadataResponse", _model),
    "ModelConfig": Described(
        "ModelConfigRequest", "ModelConfigResponse", _model, answer=lambda config: {"config": config}
    ),
    "ModelStatistics": Described("ModelStatisticsRequest", "ModelStatisticsResponse", _any_model),
    "RepositoryIndex": Described(
        "RepositoryIndexRequest", "RepositoryIndexResponse", body=_index, answer=lambda models: {"models": models}
    ),
    "RepositoryModelLoad": Described(
        "RepositoryModelLoadRequest", "RepositoryModelLoadResponse", _controlled, _control, lambda answer: {}
    ),
    "RepositoryModelUnload": Described(
        "RepositoryModelUnloadRequest", "RepositoryModelUnloadResponse", _controlled, _control, lambda answer: {}
    ),
    "LogSettings": Described("LogSettingsRequest", "LogSettingsResponse", body=_log, answer=_logged),
    "Check": Described(
        "HealthCheckRequest", "HealthCheckResponse", _service, answer=lambda answer: {"status": "SERVING"},
        failed=lambda failure: {"status": "NOT_SERVING"} if failure.code is Code.NOT_READY else None,
    ),
}  # fmt: skip
"""Every method but those of inference, by its short name; the route table says which are served."""
