"""What scoring platforms ask of a container beside predictions: is it well, which version, which models."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from forwardpass.core.caller import Caller
from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.ingress import strict_json
from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.endpoints.repository import READY, Repository
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer
from forwardpass.pipeline.bounds import refuse, unknown_field

_LOAD_KEYS = ("model_name", "url")


@dataclass(frozen=True, slots=True)
class Platform:
    """MLflow's, SageMaker's and KServe V1's questions. ``why_not_ready`` answers "" when all is well."""

    inference: Inference
    why_not_ready: Callable[[], str]
    product_version: str

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {
            "ping": self._ping,
            "version": self._version,
            "alive": self._alive,
            "container_models": self._models,
            "container_model": self._model,
        }

    async def _ping(self, call: Call) -> HttpAnswer:
        why = self.why_not_ready()
        if why:
            raise Failed(Code.NOT_READY, why, retry_after_s=1.0)
        return HttpAnswer(200, b"\n")

    async def _version(self, call: Call) -> HttpAnswer:
        return HttpAnswer(200, self.product_version.encode(), b"text/plain; charset=utf-8")

    async def _alive(self, call: Call) -> HttpAnswer:
        return HttpAnswer(200, b'{"status":"alive"}')

    async def _models(self, call: Call) -> HttpAnswer:
        return HttpAnswer(200, orjson.dumps({"models": [_described(name) for name in self._loaded(call.caller)]}))

    async def _model(self, call: Call) -> HttpAnswer:
        if call.match.pipeline not in self._loaded(call.caller):
            raise _not_loaded()
        return HttpAnswer(200, orjson.dumps(_described(call.match.pipeline)))

    def _loaded(self, caller: Caller) -> list[str]:
        return sorted({variant.version.pipeline for variant in self.inference.visible(caller)})


@dataclass(frozen=True, slots=True)
class Containers:
    """SageMaker's container of many models: load and unload them. Who may is the route table's business."""

    repository: Repository

    def endpoints(self) -> dict[str, Endpoint]:
        """By the names of the route table."""
        return {"container_load": self._load, "container_unload": self._unload}

    async def _load(self, call: Call) -> HttpAnswer:
        name = _asked(call.http.body)
        if await self._is_ready(name):
            raise Refused(Code.CONFLICT, f'"{name}" is loaded already', field="/model_name")
        await self.repository.load(name)
        return HttpAnswer(200, orjson.dumps(_described(name)))

    async def _unload(self, call: Call) -> HttpAnswer:
        name = call.match.pipeline
        if not await self._is_ready(name):
            raise _not_loaded()
        await self.repository.unload(name)
        return HttpAnswer(200, orjson.dumps(_described(name)))

    async def _is_ready(self, name: str) -> bool:
        return any(entry["name"] == name and entry["state"] == READY for entry in await self.repository.index())


def _not_loaded() -> Refused:
    return Refused(Code.PIPELINE_NOT_FOUND, "no model of this name is loaded")


def _described(name: str) -> dict[str, str]:
    """A model as SageMaker lists it. Its place is the one it has here: where its files are is nobody's business."""
    return {"modelName": name, "modelUrl": f"/models/{name}"}


def _asked(body: bytes) -> str:
    """The model that is to be loaded. Raises Refused, also for a place of files: models come from the repository."""
    value = strict_json.decode(body)
    if not isinstance(value, dict):
        raise Refused(Code.WRONG_TYPE, "the body must be a JSON object with model_name")
    for key in value:
        if key not in _LOAD_KEYS:
            raise unknown_field(key, _LOAD_KEYS)
    name, url = value.get("model_name"), value.get("url", "")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9._-]{1,64}", name):
        raise refuse(Code.WRONG_TYPE, "/model_name", "expected the name of a pipeline in this server's repository")
    if not isinstance(url, str) or (url and not _is_place_of(name, url)):
        text = "must end with /NAME, /NAME.tar.gz or /NAME/model: models come from this server's own repository"
        raise refuse(Code.INVALID_INPUT, "/url", text)
    return name


def _is_place_of(name: str, url: str) -> bool:
    """Whether a place of files may be this model's: SageMaker puts each into a folder ``model`` in one of its name."""
    ends = url.rstrip("/").removesuffix(".tar.gz")
    return any(f"/{ends}".endswith(f"/{name}{folder}") for folder in ("", "/model"))
