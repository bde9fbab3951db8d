"""An Answer to a ModelInferResponse, and what is said outside of messages: the status and trailing metadata."""

from typing import NamedTuple

import orjson

from forwardpass.core.errors import Failure
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialects.v2_answer import notes_text, on_the_wire, outputs_asked
from forwardpass.ingress.grpc import large_fields
from forwardpass.ingress.grpc.large_fields import Buffers
from forwardpass.ingress.grpc.messages import classes
from forwardpass.ingress.message import Headers
from forwardpass.ingress.status import GRPC_STATUSES, error_answer

FINAL = "triton_final_response"
RAW_OUTPUT = 6  # the last field of a ModelInferResponse
INFER_RESPONSE = 2  # of a ModelStreamInferResponse


class GrpcAnswer(NamedTuple):
    """How a call ends: its message when ``status`` is 0 (OK), else a text; ``metadata`` is trailing, in lower case."""

    message: Buffers
    metadata: Headers
    status: int = 0
    text: str = ""


def encode_infer(answer: Answer, request: Request, *, final: bool = False) -> Buffers:
    """A ModelInferResponse, its raw outputs in the order asked for. Raises the first row's failure when one has failed.

    Notes and a receipt are string parameters (JSON); ``final`` says that it is the request's last answer.
    """
    version = answer.version
    response = classes()["ModelInferResponse"](
        model_name=version.pipeline, model_version=str(version.number), id=request.client_id or request.id
    )
    raw: list[bytes | memoryview] = []  # behind the message as they are: protobuf would copy them twice
    for name, tensor, shape in outputs_asked(answer, request):
        response.outputs.add(name=name, datatype=tensor.datatype, shape=shape)
        data = _flat(on_the_wire(tensor))
        raw += (large_fields.head(RAW_OUTPUT, len(data)), data)
    if answer.notes:
        response.parameters["notes"].string_param = notes_text(answer)
    if answer.receipt is not None:
        response.parameters["receipt"].string_param = orjson.dumps(answer.receipt).decode()
    if final:
        response.parameters[FINAL].bool_param = True
    return [response.SerializeToString(), *raw]


def streamed(response: Buffers) -> Buffers:
    """A ModelInferResponse in the message that a stream has."""
    return [large_fields.head(INFER_RESPONSE, size_of(response)), *response]


def stream_error(failure: Failure, id: str) -> Buffers:
    """What a stream says of one request that failed."""
    response = classes()["ModelStreamInferResponse"](error_message=failure.text)
    response.infer_response.id = id
    response.infer_response.parameters["error_code"].string_param = failure.code
    return [response.SerializeToString()]


def size_of(message: Buffers) -> int:
    return sum(map(len, message))


def _flat(data: bytes | memoryview) -> bytes | memoryview:
    """Of single bytes, so that its length is its size; a view without elements cannot be cast."""
    if isinstance(data, bytes):
        return data
    return data.cast("B") if data.nbytes else b""


def failed(failure: Failure, id: str) -> GrpcAnswer:
    """The end of a call that failed."""
    headers = error_answer(failure, "v2", id).headers
    return GrpcAnswer((), trailing(headers), GRPC_STATUSES[failure.code], failure.text)


def trailing(headers: Headers) -> Headers:
    """What HTTP says in headers, as metadata."""
    return [(name.lower(), value) for name, value in headers]
