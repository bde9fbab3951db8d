"""A ModelInferRequest to a Request, by the rules of V2 over REST: both fill in the same message."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from forwardpass.core.errors import Code, show
from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Parameter, Request
from forwardpass.core.tensor import element_count, pack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialect import Target
from forwardpass.ingress.dialects.v2 import InferMessage, InferOutput, fill
from forwardpass.ingress.dialects.v2_input import InferInput
from forwardpass.ingress.dialects.v2_parameters import refuse_input_parameters
from forwardpass.ingress.grpc import large_fields
from forwardpass.ingress.grpc.messages import Message
from forwardpass.ingress.routes import version_number
from forwardpass.pipeline.bounds import check_bools, element_at, pack_numbers, refuse

FINAL_ASKED = "triton_enable_empty_final_response"
SIZE = "binary_data_size"
RAW_INPUT = 7  # the field of a ModelInferRequest
CUT_BYTES_MIN = 16 * 1024  # the raw inputs of a shorter one are copied sooner than looked for

_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
"""Where a datatype's elements stand when they are no raw bytes; FP16 and BF16 have no such place."""


class InferCall(NamedTuple):
    """A ModelInferRequest; of a large one ``message`` has no raw inputs: they are parts of what came."""

    message: Message
    raw: Sequence[bytes | memoryview]
    size: int  # of the whole


def without_raw(body: bytes | bytearray) -> tuple[bytes | bytearray, Sequence[memoryview] | None]:
    """What protobuf should read of a ModelInferRequest and its raw inputs, None where they stay with the rest."""
    parts = large_fields.cut(body, RAW_INPUT) if len(body) >= CUT_BYTES_MIN else None
    return (body, None) if parts is None else parts


def target_of(name: str, version: str) -> Target:
    """Raises Refused version_not_found; missing_field where no model is named."""
    if not name:
        raise refuse(Code.MISSING_FIELD, "/model_name", "is required")
    return Target(name, version_number(version) if version else None)


def decode_infer(call: InferCall, signature: Signature, id: str, timeline: Timeline) -> Request:
    """The request that an infer call makes. Raises Refused, with the texts and places that REST has.

    Values are raw, one entry for each input, or all in ``contents``. Every answer is raw.
    """
    request = Request(id, [], 0, timeline, binary_default=True)
    message = call.message
    values_of = _raw(message, call.raw) if call.raw else _explicit(message)
    inputs = [InferInput(given.name, list(given.shape), given.datatype) for given in message.inputs]
    outputs = [
        InferOutput(output.name, parameters_of(output.parameters, f"/outputs/{index}/parameters"))
        for index, output in enumerate(message.outputs)
    ]
    parameters = parameters_of(message.parameters, "/parameters")
    parameters.pop(FINAL_ASKED, None)
    fill(request, InferMessage(inputs, message.id, parameters, outputs or UNSET), values_of, signature)
    if not request.binary_default or not all(request.binary.values()):
        raise refuse(
            Code.OUT_OF_RANGE, "/parameters", "outputs are always raw over gRPC; no other form can be asked for"
        )
    return request


def parameters_of(given: Mapping[str, Message], where: str) -> dict[str, Parameter]:
    """A map of parameters as plain values. Raises Refused for one without a value."""
    parameters: dict[str, Parameter] = {}
    for name, parameter in given.items():
        kind = parameter.WhichOneof("choice")
        if kind is None:
            raise refuse(Code.WRONG_TYPE, f"{where}/{show(name)}", "has no value")
        parameters[name] = getattr(parameter, kind)
    return parameters


def final_asked(message: Message) -> bool:
    """Whether the client wants to be told which answer is its last. Raises Refused for what is no boolean."""
    if FINAL_ASKED not in message.parameters:
        return False
    asked = parameters_of(message.parameters, "/parameters")[FINAL_ASKED]
    if type(asked) is not bool:
        raise refuse(Code.WRONG_TYPE, f"/parameters/{FINAL_ASKED}", "expected a boolean")
    return asked


def _raw(message: Message, raw: Sequence[bytes | memoryview]) -> Callable[[InferInput, str], msgspec.Raw | memoryview]:
    inputs = message.inputs
    for index, given in enumerate(inputs):
        if given.parameters:
            _check_size(given, raw[index] if index < len(raw) else b"", f"/inputs/{index}")
        if given.HasField("contents"):
            raise refuse(Code.INVALID_INPUT, f"/inputs/{index}/contents", "cannot go with raw_input_contents")
    if len(raw) != len(inputs):
        text = f"one entry for each of the {len(inputs)} inputs is needed, got {len(raw)}"
        raise refuse(Code.BINARY_SIZE_MISMATCH, "/raw_input_contents", text)
    entries = iter(raw)
    return lambda given, where: memoryview(next(entries))


def _check_size(given: Message, entry: bytes | memoryview, where: str) -> None:
    """KServe's client says of each raw input how large it is, as over REST; no other parameter has a meaning."""
    refuse_input_parameters((name for name in given.parameters if name != SIZE), where)
    size = parameters_of(given.parameters, f"{where}/parameters")[SIZE]
    if size != len(entry):
        text = f"says {show(size)} bytes, its raw entry has {len(entry)}"
        raise refuse(Code.BINARY_SIZE_MISMATCH, f"{where}/parameters/{SIZE}", text)


def _explicit(message: Message) -> Callable[[InferInput, str], msgspec.Raw | memoryview]:
    entries = iter(message.inputs)

    def values_of(given: InferInput, where: str) -> memoryview:
        entry = next(entries)
        refuse_input_parameters(entry.parameters, where)
        return memoryview(_packed(given, entry.contents, where))

    return values_of


def _packed(given: InferInput, contents: Message, place: str) -> bytes:
    """The raw bytes of explicit elements; of an unknown datatype none, as it is refused for its name."""
    where = f"{place}/contents"
    wanted = _CONTENTS.get(given.datatype, "")
    for descriptor, _ in contents.ListFields():
        if descriptor.name == wanted:
            continue
        if not wanted:
            text = f"{show(given.datatype)} has no form here; send it in raw_input_contents"
            raise refuse(Code.DATATYPE_MISMATCH, where, text)
        raise refuse(Code.WRONG_TYPE, f"{where}/{descriptor.name}", f"elements of {given.datatype} go in {wanted}")
    if not wanted:
        return b""
    elements: Sequence[object] = list(getattr(contents, wanted))
    count = element_count(given.shape, f"{place}/shape")
    if count != len(elements):
        raise refuse(Code.SHAPE_MISMATCH, where, f"the shape has {count} elements, the data {len(elements)}")
    return _bytes(given.datatype, elements, where)


def _bytes(datatype: str, elements: Sequence[object], where: str) -> bytes:
    if datatype == "BYTES":
        return pack_bytes(elements)  # type: ignore[arg-type]  # bytes, as the message's own type says
    at = element_at(where, (len(elements),))
    if datatype == "BOOL":
        check_bools(elements, at)  # type: ignore[arg-type]  # likewise booleans
    return pack_numbers(datatype, elements, at)  # type: ignore[arg-type]  # likewise numbers
