"""An Answer to a ModelInferResponse, and what is said outside of messages: the status and trailing metadata."""

from typing import NamedTuple

import orjson

from forwardpass.core.errors import Failure
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialects.v2_answer import notes_text, on_the_wire, outputs_asked
from forwardpass.ingress.grpc.messages import Message, classes
from forwardpass.ingress.message import Headers
from forwardpass.ingress.status import GRPC_STATUSES, error_answer

FINAL = "triton_final_response"


class GrpcAnswer(NamedTuple):
    """How a call ends: its message when ``status`` is 0 (OK), else a text; ``metadata`` is trailing, in lower case."""

    message: bytes
    metadata: Headers
    status: int = 0
    text: str = ""


def encode_infer(answer: Answer, request: Request, *, final: bool = False) -> Message:
    """The answer with raw outputs in the order asked for. Raises the first row's failure when one has failed.

    Notes and a receipt are string parameters (JSON); ``final`` says that it is the request's last answer.
    """
    version = answer.version
    response = classes()["ModelInferResponse"](
        model_name=version.pipeline, model_version=str(version.number), id=request.client_id or request.id
    )
    for name, tensor, shape in outputs_asked(answer, request):
        response.outputs.add(name=name, datatype=tensor.datatype, shape=shape)
        response.raw_output_contents.append(bytes(on_the_wire(tensor)))
    if answer.notes:
        response.parameters["notes"].string_param = notes_text(answer)
    if answer.receipt is not None:
        response.parameters["receipt"].string_param = orjson.dumps(answer.receipt).decode()
    if final:
        response.parameters[FINAL].bool_param = True
    return response


def failed(failure: Failure, id: str) -> GrpcAnswer:
    """The end of a call that failed."""
    headers = error_answer(failure, "v2", id).headers
    return GrpcAnswer(b"", trailing(headers), GRPC_STATUSES[failure.code], failure.text)


def trailing(headers: Headers) -> Headers:
    """What HTTP says in headers, as metadata."""
    return [(name.lower(), value) for name, value in headers]
