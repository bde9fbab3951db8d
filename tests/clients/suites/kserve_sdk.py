"""KServe's own SDK: V2 over REST in JSON and binary, V1, and V2 over gRPC."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from tests.clients.checks import Served, Suite, near, refused, run, same, says
from tests.clients.expected import table

rest = Suite("kserve.InferenceRESTClient", "V2")
first_version = Suite("kserve.InferenceRESTClient", "V1")
remote = Suite("kserve.InferenceGRPCClient", "V2")

Ask = Callable[[Any], Awaitable[Any]]


def asked(protocol: str, ask: Ask) -> Any:
    async def with_client() -> Any:
        async with InferenceRESTClient(RESTConfig(protocol=protocol)) as client:
            return await ask(client)

    return asyncio.run(with_client())


def asked_remotely(served: Served, ask: Ask) -> Any:
    async def with_client() -> Any:
        async with InferenceGRPCClient(served.grpc, retries=0) as client:
            return await ask(client)

    return asyncio.run(with_client())


def request(model: str, arrays: dict[str, Any], *, binary: bool, **named: Any) -> InferRequest:
    inputs = []
    for name, array in arrays.items():
        datatype = {"i4": "INT32", "f2": "FP16", "f4": "FP32", "O": "BYTES"}[array.dtype.str.lstrip("<|")]
        given = InferInput(name, list(array.shape), datatype)
        given.set_data_from_numpy(array, binary_data=binary)
        inputs.append(given)
    return InferRequest(model, inputs, **named)


def sixteen() -> dict[str, Any]:
    return {"INPUT0": np.arange(16, dtype=np.int32).reshape(1, 16), "INPUT1": np.ones((1, 16), np.int32)}


def infer(*given: Any) -> Ask:
    """To ask just this of a client."""
    return lambda client: client.infer(*given)


def sums(answer: Any) -> Any:
    return next(each for each in answer.outputs if each.name == "OUTPUT0").as_numpy().tolist()


WANTED = [list(range(1, 17))]


@rest("live, ready, the model ready; one that is not there is not")
def _(served: Served) -> None:
    async def ask(client: Any) -> list[Any]:
        states = [await client.is_server_live(served.url), await client.is_server_ready(served.url)]
        return [*states, *[await client.is_model_ready(served.url, name) for name in ("simple", "simpel")]]

    same(asked("v2", ask), [True, True, True, False])


@rest("JSON in and out")
def _(served: Served) -> None:
    given = request("simple", sixteen(), binary=False, request_id="k1")
    answer = asked("v2", infer(served.url, given, "simple"))
    same((sums(answer), answer.id, answer.model_name), (WANTED, "k1", "simple"))


@rest("binary in and out")
def _(served: Served) -> None:
    given = request("simple", sixteen(), binary=True, parameters={"binary_data_output": True})
    answer = asked("v2", infer(served.url, given, "simple"))
    same(sums(answer), WANTED)


@rest("binary in, JSON out, no id given")
def _(served: Served) -> None:
    answer = asked("v2", infer(served.url, request("simple", sixteen(), binary=True), "simple"))
    same((sums(answer), bool(answer.id)), (WANTED, True))


@rest("a plain dictionary")
def _(served: Served) -> None:
    tensor = {"shape": [1, 16], "datatype": "INT32"}
    given = {"inputs": [{"name": name, **tensor, "data": array.tolist()} for name, array in sixteen().items()]}
    same(sums(asked("v2", infer(served.url, given, "simple"))), WANTED)


@rest("text, and a tensor of 4.8 MB")
def _(served: Served) -> None:
    texts = request("simple_identity", {"INPUT0": np.array([[b"abc", "déjà".encode()]], np.object_)}, binary=True)
    answer = asked("v2", infer(served.url, texts, "simple_identity"))
    same(
        [getattr(text, "decode", lambda text=text: text)() for text in answer.outputs[0].as_numpy().ravel()],
        ["abc", "déjà"],
    )
    big = np.random.default_rng(0).normal(size=(8, 3, 224, 224)).astype(np.float32)
    given = request("wide", {"x": big}, binary=True, parameters={"binary_data_output": True})
    found = asked("v2", infer(served.url, given, "wide")).outputs[0].as_numpy()
    same(bool((found == big).all()), True)


@rest("a model that is not there, and a wrong shape: the client's own exception, readable")
def _(served: Served) -> None:
    given = request("simple", sixteen(), binary=False)
    error = refused(httpx.HTTPStatusError, lambda: asked("v2", infer(served.url, given, "simpel")))
    same(error.response.status_code, 404)
    says(error, "simpel", "404")
    short = request("simple", {name: array[:, :3] for name, array in sixteen().items()}, binary=False)
    error = refused(httpx.HTTPStatusError, lambda: asked("v2", infer(served.url, short, "simple")))
    same(error.response.status_code, 400)
    says(error, "/inputs/0", "16")


@first_version("predict, of rows by name and of columns")
def _(served: Served) -> None:
    rows = [{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0.5, "b": 0.0, "c": 1.0}]
    answer = asked("v1", infer(served.url, {"instances": rows}, "table"))
    near(answer["predictions"], [table(list(row.values())) for row in rows])
    columns = {name: [row[name] for row in rows] for name in "abc"}
    answer = asked("v1", infer(served.url, {"inputs": columns}, "table"))
    near(answer["predictions"], [table(list(row.values())) for row in rows])


@first_version("the model is ready; the server is alive")
def _(served: Served) -> None:
    same(asked("v1", lambda client: client.is_model_ready(served.url, "table")), True)
    same(asked("v1", lambda client: client.is_server_live(served.url)), True)


@first_version("a model that is not there, and a bad row: the client's own exception, readable")
def _(served: Served) -> None:
    bad = [("tabel", {}, 404, "tabel"), ("table", {"a": "x", "b": 1, "c": 1}, 400, "/a")]
    for model, row, status, word in bad:
        given = {"instances": [row]}
        error = refused(httpx.HTTPStatusError, partial(asked, "v1", infer(served.url, given, model)))
        same(error.response.status_code, status)
        says(error, word)


@remote("live, ready, the model ready")
def _(served: Served) -> None:
    async def ask(client: Any) -> list[Any]:
        return [await client.is_server_live(), await client.is_server_ready(), await client.is_model_ready("simple")]

    same(asked_remotely(served, ask), [True, True, True])


@remote("typed contents, raw contents, text")
def _(served: Served) -> None:
    for binary in (False, True):
        same(sums(asked_remotely(served, infer(request("simple", sixteen(), binary=binary)))), WANTED)
    texts = request("simple_identity", {"INPUT0": np.array([[b"abc", b""]], np.object_)}, binary=False)
    answer = asked_remotely(served, infer(texts))
    same(
        [getattr(text, "encode", lambda text=text: text)() for text in answer.outputs[0].as_numpy().ravel()],
        [b"abc", b""],
    )


@remote("a model that is not there: the client's own exception, readable")
def _(served: Served) -> None:
    given = request("simpel", sixteen(), binary=True)
    error = refused(grpc.RpcError, lambda: asked_remotely(served, infer(given)))
    same(error.code(), grpc.StatusCode.NOT_FOUND)
    says(error.details(), "simpel")


if __name__ == "__main__":
    run(rest, first_version, remote)
