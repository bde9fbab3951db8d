"""tritonclient: what only gRPC has. Streams, deadlines, cancellation, explicit contents, the standard health check."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from queue import Queue
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc as client_module
import tritonclient.grpc.aio as client_module_aio
from tests.clients.checks import Served, Suite, near, refused, run, same, says
from tests.clients.suites.triton_clients import WAYS, Array, Asking, asking, sixteen
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

SYNCHRONOUS = next(way for way in WAYS if way.module is client_module)
ANSWER_LIMIT_S = 30.0
SLOW = np.array([[3000.0, 0.0]])
"""Two seconds of the slow model."""

stream = Suite("tritonclient.grpc", "stream")
stream_aio = Suite("tritonclient.grpc.aio", "stream")
limits = Suite("tritonclient.grpc", "deadline and cancellation")
contents = Suite("tritonclient.grpc", "explicit contents")
health = Suite("grpc.health.v1", "health")


class Stream:
    """A stream of the client and what it has answered so far."""

    def __init__(self, client: Asking) -> None:
        self.client = client
        self.answers: Queue[tuple[Any, Any]] = Queue()
        client.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def ask(self, model: str, inputs: dict[str, Array], **named: Any) -> None:
        given = [self.client.input(name, array) for name, array in inputs.items()]
        self.client.client.async_stream_infer(model, given, **named)

    def answer(self) -> Any:
        result, error = self.answers.get(timeout=ANSWER_LIMIT_S)
        if error is not None:
            raise error
        return result


@stream("200 requests of one stream, each answered by its id")
def _(served: Served) -> None:
    with asking(SYNCHRONOUS, served) as client:
        asked = Stream(client)
        for number in range(200):
            asked.ask("simple", {**sixteen(), "INPUT0": np.full((1, 16), number, np.int32)}, request_id=f"n{number}")
        found = {}
        for _ in range(200):
            answer = asked.answer()
            found[answer.get_response().id] = int(answer.as_numpy("OUTPUT0")[0, 0])
        same(found, {f"n{number}": number + 1 for number in range(200)})


@stream("one bad request is answered with its error, and the stream goes on")
def _(served: Served) -> None:
    with asking(SYNCHRONOUS, served) as client:
        asked = Stream(client)
        asked.ask("simpel", sixteen(), request_id="bad")
        says(refused(InferenceServerException, asked.answer).message(), "simpel")
        asked.ask("simple", sixteen(), request_id="good")
        same(asked.answer().get_response().id, "good")


@stream("a sequence, part by part")
def _(served: Served) -> None:
    with asking(SYNCHRONOUS, served) as client:
        asked = Stream(client)
        for part in range(5):
            given = {"x": np.array([[part + 1.0, 0.0]], np.float32)}
            asked.ask("simple_sequence", given, sequence_id=4711, sequence_start=part == 0, sequence_end=part == 4)
        near([float(asked.answer().as_numpy("y")[0, 0]) for _ in range(5)], [1, 3, 6, 10, 15])


@stream("the final answer is marked where the client asks for it")
def _(served: Served) -> None:
    with asking(SYNCHRONOUS, served) as client:
        asked = Stream(client)
        asked.ask("simple", sixteen(), enable_empty_final_response=True)
        answer = asked.answer().get_response()
        same(answer.parameters["triton_final_response"].bool_param, True)


@stream("a stream that is given up leaves the server well")
def _(served: Served) -> None:
    with asking(SYNCHRONOUS, served) as client:
        asked = Stream(client)
        for _ in range(4):
            asked.ask("slow", {"x": SLOW})
        client.client.stop_stream(cancel_requests=True)
        same(client.infer("simple", sixteen()).as_numpy("OUTPUT0").shape, (1, 16))


@stream_aio("50 requests of one stream")
def _(served: Served) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(50):
            array = np.array([[f"{number}".encode()]], np.object_)
            given = client_module_aio.InferInput("INPUT0", [1, 1], "BYTES")
            given.set_data_from_numpy(array)
            yield {"model_name": "simple_identity", "inputs": [given], "request_id": f"{number}"}

    async def ask() -> dict[str, bytes]:
        async with client_module_aio.InferenceServerClient(served.grpc) as client:
            found = {}
            async for result, error in client.stream_infer(requests()):
                if error is not None:
                    raise error
                found[result.get_response().id] = result.as_numpy("OUTPUT0")[0, 0]
            return found

    same(asyncio.run(ask()), {f"{number}": f"{number}".encode() for number in range(50)})


@limits("the client's own deadline ends a request that takes longer")
def _(served: Served) -> None:
    with asking(SYNCHRONOUS, served) as client:
        error = refused(InferenceServerException, lambda: client.infer("slow", {"x": SLOW}, client_timeout=0.2))
        same(error.status(), "StatusCode.DEADLINE_EXCEEDED")
        same(client.infer("simple", sixteen()).as_numpy("OUTPUT0").shape, (1, 16))


@limits("a cancelled request ends as cancelled, and the server serves on")
def _(served: Served) -> None:
    ended: Queue[Any] = Queue()
    with asking(SYNCHRONOUS, served) as client:
        given = [client.input("x", SLOW)]
        call = client.client.async_infer("slow", given, lambda result, error: ended.put(error))
        call.cancel()
        same(ended.get(timeout=ANSWER_LIMIT_S).status(), "StatusCode.CANCELLED")
        same(client.infer("simple", sixteen()).as_numpy("OUTPUT0").shape, (1, 16))


FIELDS = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-32768, 32767]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "FP32": ("fp32_contents", [0.5, -2.25]),
    "FP64": ("fp64_contents", [0.1, -1e300]),
}
NUMPY = {"BOOL": "?", "FP32": "<f4", "FP64": "<f8"} | {
    f"{kind}INT{bits}": f"<{code}{bits // 8}" for kind, code in (("", "i"), ("U", "u")) for bits in (8, 16, 32, 64)
}


def typed_request(half_raw: bool = False) -> Any:
    """Every datatype that has a typed field, which is all but FP16; perhaps with raw bytes beside them, which is wrong."""
    request = service_pb2.ModelInferRequest(model_name="typed")
    for name, (field, values) in FIELDS.items():
        given = request.inputs.add(name=f"x_{name}", datatype=name, shape=[1, 2])
        getattr(given.contents, field).extend(values)
    if half_raw:
        request.raw_input_contents.append(b"\0" * 8)
    return request


def output(answer: Any, place: int) -> list[Any]:
    """The values of an output, raw or typed, as clients read them."""
    about = answer.outputs[place]
    if answer.raw_output_contents:
        return list(np.frombuffer(answer.raw_output_contents[place], NUMPY[about.datatype]))
    return list(getattr(about.contents, FIELDS[about.datatype][0]))


@contents("every datatype in its typed field")
def _(served: Served) -> None:
    with grpc.insecure_channel(served.grpc) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(typed_request())
        for place, about in enumerate(answer.outputs):
            same(output(answer, place), FIELDS[about.datatype][1])
        same(len(answer.outputs), len(FIELDS))


@contents("bytes in their typed field")
def _(served: Served) -> None:
    request = service_pb2.ModelInferRequest(model_name="simple_identity")
    given = request.inputs.add(name="INPUT0", datatype="BYTES", shape=[1, 2])
    given.contents.bytes_contents.extend([b"abc", b""])
    with grpc.insecure_channel(served.grpc) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    found = client_module.InferResult(answer).as_numpy("OUTPUT0")
    same(found.tolist(), [[b"abc", b""]])


@contents("a value that its datatype cannot hold, a wrong field, raw beside typed: refused")
def _(served: Served) -> None:
    too_large, wrong_field = typed_request(), typed_request()
    too_large.inputs[1].contents.int_contents[0] = 1000
    wrong_field.inputs[1].contents.CopyFrom(service_pb2.InferTensorContents(fp32_contents=[1, 2]))
    with grpc.insecure_channel(served.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        bad = [(too_large, "1000"), (wrong_field, "int_contents"), (typed_request(half_raw=True), "raw")]
        for request, word in bad:
            error = refused(grpc.RpcError, partial(stub.ModelInfer, request))
            same(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
            says(error.details(), word)


def checked(served: Served, service: bytes) -> bytes:
    """By the wire: the message is one text, field 1; so is the answer one number, field 1, and 1 is SERVING."""
    with grpc.insecure_channel(served.grpc) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        return bytes(call(b"\x0a" + bytes([len(service)]) + service if service else b""))


@health("the server is SERVING")
def _(served: Served) -> None:
    same(checked(served, b""), b"\x08\x01")


@health("the inference service is SERVING, one that is not there NOT_FOUND")
def _(served: Served) -> None:
    same(checked(served, b"inference.GRPCInferenceService"), b"\x08\x01")
    same(refused(grpc.RpcError, lambda: checked(served, b"nothing")).code(), grpc.StatusCode.NOT_FOUND)


if __name__ == "__main__":
    run(stream, stream_aio, limits, contents, health)
