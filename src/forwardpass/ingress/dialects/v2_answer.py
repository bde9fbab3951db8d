"""An Answer to a V2 infer body, JSON or with binary tensors behind it."""

from collections.abc import Iterator
from math import prod

import numpy as np
import orjson

from forwardpass.core.errors import Code, Refused
from forwardpass.core.request import Answer, Request
from forwardpass.core.tensor import NUMPY_NAMES, Tensor, pack_bytes, unpack_bytes
from forwardpass.ingress.dialects.envelope import answer_headers, raise_first
from forwardpass.ingress.dialects.v2_classification import classified, labels_of
from forwardpass.ingress.message import HttpAnswer

_MISSING_MARK = b"\xff\xff\xff\xff"


def encode_infer(answer: Answer, request: Request) -> HttpAnswer:
    """The answer in the form and order asked for. Raises the first row's failure when one has failed.

    NaN and infinities become null in JSON. Notes are the string parameter ``notes`` (JSON), a receipt the member
    ``receipt``. Raises Refused for an output that JSON cannot carry, naming the binary form.
    """
    outputs: list[dict[str, object]] = []
    buffers: list[bytes | memoryview] = []
    for name, tensor, shape in outputs_asked(answer, request):
        output: dict[str, object] = {"name": name, "datatype": tensor.datatype, "shape": shape}
        if request.binary.get(name, request.binary_default):
            buffer = on_the_wire(tensor)
            output["parameters"] = {"binary_data_size": len(buffer)}
            buffers.append(buffer)
        else:
            output["data"] = _json_data(tensor, name)
        outputs.append(output)
    version = answer.version
    body: dict[str, object] = {
        "model_name": version.pipeline,
        "model_version": str(version.number),
        "id": request.client_id or request.id,
        "outputs": outputs,
    }
    if answer.notes:
        body["parameters"] = {"notes": notes_text(answer)}
    if answer.receipt is not None:
        body["receipt"] = answer.receipt
    text = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    headers = answer_headers(request.id, version, request.sequence)
    if not buffers:
        return HttpAnswer(200, text, headers=headers)
    headers.append((b"Inference-Header-Content-Length", b"%d" % len(text)))
    return HttpAnswer(200, [text, *buffers], b"application/octet-stream", headers)


def outputs_asked(answer: Answer, request: Request) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Each output asked for with the shape a client is told. Raises the first row's failure when one has failed."""
    raise_first(answer)
    for name in request.outputs or answer.signature.output_names:
        tensor = answer.outputs[name]
        if tensor.shapes:
            why = f"output '{name}' has rows of different shape, which one tensor has not; send them one by one"
            raise Refused(Code.SHAPE_MISMATCH, why, field=name)
        if name in request.classes:
            tensor = classified(tensor, request.classes[name], labels_of(name, answer.signature))
        yield name, tensor, tensor.shape if answer.signature.leading else tensor.shape[1:]


def notes_text(answer: Answer) -> str:
    """The value of the parameter ``notes``."""
    notes = [{"row": note.row, "name": note.name, "value": note.value} for note in answer.notes]
    return orjson.dumps(notes).decode()


def _json_data(tensor: Tensor, name: str) -> object:
    if tensor.datatype == "BYTES":
        try:
            elements = unpack_bytes(tensor.data, prod(tensor.shape))
            return [None if element is None else element.decode() for element in elements]
        except UnicodeDecodeError:
            text = f"output '{name}' holds bytes that are not UTF-8; ask for it with the parameter binary_data"
            raise Refused(Code.INVALID_UTF8, text, field=name) from None
    numpy_name = NUMPY_NAMES.get(tensor.datatype)
    if numpy_name is None or tensor.datatype == "FP16":
        text = f"output '{name}' is {tensor.datatype}, which JSON has not; ask for it with the parameter binary_data"
        raise Refused(Code.DATATYPE_MISMATCH, text, field=name)
    return np.frombuffer(tensor.data, dtype=numpy_name)


def on_the_wire(tensor: Tensor) -> bytes | memoryview:
    """An output's raw bytes as V2 has them."""
    data = tensor.data
    if tensor.datatype == "BYTES" and _MISSING_MARK in bytes(data):
        # A missing value has no form on the wire but the empty one.
        elements = unpack_bytes(data, prod(tensor.shape))
        return pack_bytes(element or b"" for element in elements)
    return bytes(data) if isinstance(data, bytearray) else data
