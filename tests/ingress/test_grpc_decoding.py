"""ModelInferRequest to a request: raw and explicit values, parameters, and the same refusals as over REST."""

import struct
from typing import Any

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Input, Signature
from forwardpass.core.request import Request
from forwardpass.core.tensor import pack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.grpc.decoding import InferCall, decode_infer
from forwardpass.ingress.grpc.messages import Message, classes

OUTPUTS = (Field("y", "FP32", (3,)),)
EXPLICIT: dict[str, tuple[str, list[Any], str]] = {
    "BOOL": ("bool_contents", [True, False], "<2?"),
    "INT8": ("int_contents", [-128, 127], "<2b"),
    "INT16": ("int_contents", [-(2**15), 2**15 - 1], "<2h"),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1], "<2i"),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1], "<2q"),
    "UINT8": ("uint_contents", [0, 255], "<2B"),
    "UINT16": ("uint_contents", [0, 65535], "<2H"),
    "UINT32": ("uint_contents", [0, 2**32 - 1], "<2I"),
    "UINT64": ("uint64_contents", [0, 2**64 - 1], "<2Q"),
    "FP32": ("fp32_contents", [0.5, -1.0], "<2f"),
    "FP64": ("fp64_contents", [0.1, -1.0], "<2d"),
}


def tensor(datatype: str = "FP32", *shape: int) -> Signature:
    return Signature((Input("x", "tensor", datatype=datatype, shape=shape or (2,)),), OUTPUTS)


def message(datatype: str = "FP32", shape: tuple[int, ...] = (1, 2), name: str = "x", **members: Any) -> Message:
    asked = classes()["ModelInferRequest"](model_name="m", **members)
    asked.inputs.add(name=name, datatype=datatype, shape=shape)
    return asked


def raw(*floats: float, **members: Any) -> Message:
    return message(raw_input_contents=[struct.pack(f"<{len(floats)}f", *floats)], **members)


def explicit(datatype: str, **contents: Any) -> Message:
    """``shape`` apart, the contents by their member's name."""
    asked = message(datatype, contents.pop("shape", (1, 2)))
    asked.inputs[0].contents.MergeFrom(classes()["InferTensorContents"](**contents))
    return asked


def decoded(asked: Message, signature: Signature | None = None) -> Request:
    call = InferCall(asked, asked.raw_input_contents, asked.ByteSize())
    return decode_infer(call, signature or tensor(), "id-1", Timeline())


def refused(asked: Message, signature: Signature | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        decoded(asked, signature)
    assert 0 < len(caught.value.text) <= 512
    return caught.value


def test_raw_values_are_the_columns_bytes() -> None:
    request = decoded(raw(1.5, 2.5, id="mine"))
    assert (request.rows, request.client_id, request.columns[0].shape) == (1, "mine", (1, 2))
    assert bytes(request.columns[0].data) == struct.pack("<2f", 1.5, 2.5)


@pytest.mark.parametrize("datatype", EXPLICIT)
def test_explicit_values_of_each_datatype_make_the_same_bytes(datatype: str) -> None:
    member, values, form = EXPLICIT[datatype]
    request = decoded(explicit(datatype, **{member: values}), tensor(datatype))
    assert bytes(request.columns[0].data) == struct.pack(form, *values)


def test_explicit_texts_are_packed_with_their_lengths() -> None:
    signature = Signature((Input("x", "text"),), OUTPUTS)
    request = decoded(explicit("BYTES", shape=(2, 1), bytes_contents=[b"a", "dé".encode()]), signature)
    assert bytes(request.columns[0].data) == b"\1\0\0\0a\3\0\0\0d\xc3\xa9"


def test_raw_texts_must_be_utf_8() -> None:
    signature = Signature((Input("x", "text"),), OUTPUTS)
    refusal = refused(message("BYTES", (1,), raw_input_contents=[pack_bytes([b"\xff"])]), signature)
    assert (refusal.code, refusal.field) == (Code.INVALID_UTF8, "/inputs/0/data/0")


def test_parameters_mean_what_they_mean_over_rest() -> None:
    asked = raw(1, 2)
    asked.parameters["priority"].uint64_param = 3
    asked.parameters["timeout"].int64_param = 1_500_000
    asked.parameters["sequence_id"].string_param = "s"
    asked.parameters["mine"].double_param = 0.5
    asked.parameters["triton_enable_empty_final_response"].bool_param = True
    request = decoded(asked)
    assert (request.priority, request.deadline_s) == (3, 1.5)
    assert request.sequence is not None and request.sequence.id == "s"


def test_the_size_of_a_raw_input_may_be_said_again() -> None:
    assert bytes(decoded(sized(8)).columns[0].data) == struct.pack("<2f", 1, 2)


def with_parameter(name: str, kind: str, value: Any) -> Message:
    asked = raw(1, 2)
    setattr(asked.parameters[name], kind, value)
    return asked


def with_input_parameter(name: str) -> Message:
    asked = raw(1, 2)
    asked.inputs[0].parameters[name].string_param = "r"
    return asked


def sized(size: int) -> Message:
    """As KServe's client sends raw inputs."""
    asked = raw(1, 2)
    asked.inputs[0].parameters["binary_data_size"].int64_param = size
    return asked


def mixed() -> Message:
    asked = raw(1, 2)
    asked.inputs[0].contents.fp32_contents.append(1)
    return asked


def twice(raws: int) -> Message:
    asked = message(raw_input_contents=[bytes(8)] * raws)
    asked.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    return asked


def asking_for(*outputs: str) -> Message:
    asked = raw(1, 2)
    for output in outputs:
        asked.outputs.add(name=output)
    return asked


REFUSED: dict[str, tuple[Message, Code, str]] = {
    "raw and contents mixed": (mixed(), Code.INVALID_INPUT, "/inputs/0/contents"),
    "an entry too few": (twice(1), Code.BINARY_SIZE_MISMATCH, "/raw_input_contents"),
    "an entry too many": (twice(3), Code.BINARY_SIZE_MISMATCH, "/raw_input_contents"),
    "the same input twice": (twice(2), Code.INVALID_INPUT, "/inputs/1/name"),
    "no inputs": (classes()["ModelInferRequest"](model_name="m"), Code.MISSING_FIELD, "/inputs"),
    "bytes that do not fit the shape": (raw(1, 2, 3), Code.BINARY_SIZE_MISMATCH, "/inputs/0/data"),
    "elements that do not fit the shape": (
        explicit("FP32", fp32_contents=[1.0]), Code.SHAPE_MISMATCH, "/inputs/0/contents",
    ),
    "no values": (message(), Code.SHAPE_MISMATCH, "/inputs/0/contents"),
    "elements in another field": (
        explicit("FP32", fp64_contents=[1, 2]), Code.WRONG_TYPE, "/inputs/0/contents/fp64_contents",
    ),
    "elements in two fields": (
        explicit("FP32", fp32_contents=[1, 2], int_contents=[1]), Code.WRONG_TYPE, "/inputs/0/contents/int_contents",
    ),
    "FP16 not raw": (explicit("FP16", fp32_contents=[1, 2]), Code.DATATYPE_MISMATCH, "/inputs/0/contents"),
    "an unknown datatype": (message("FP8", raw_input_contents=[b""]), Code.DATATYPE_MISMATCH, "/inputs/0/datatype"),
    "another datatype": (message("FP64", raw_input_contents=[bytes(16)]), Code.DATATYPE_MISMATCH, "/inputs/0/datatype"),
    "a negative dimension": (message(shape=(1, -2), raw_input_contents=[b""]), Code.SHAPE_MISMATCH, "/inputs/0/shape"),
    "a shape that overflows": (
        message(shape=(2**62, 4), raw_input_contents=[b""]), Code.SHAPE_OVERFLOW, "/inputs/0/shape",
    ),
    "no rows": (message(shape=(0, 2), raw_input_contents=[b"x"]), Code.SHAPE_MISMATCH, "/inputs/0/shape"),
    "an unknown input": (message(name="z", raw_input_contents=[bytes(8)]), Code.UNKNOWN_FIELD, "/inputs/0/z"),
    "shared memory": (
        with_input_parameter("shared_memory_region"), Code.UNKNOWN_FIELD, "/inputs/0/parameters/shared_memory_region",
    ),
    "a size that is not its bytes'": (
        sized(4), Code.BINARY_SIZE_MISMATCH, "/inputs/0/parameters/binary_data_size",
    ),
    "an input's parameter": (with_input_parameter("size"), Code.UNKNOWN_FIELD, "/inputs/0/parameters/size"),
    "an unknown output": (asking_for("z"), Code.UNKNOWN_OUTPUT, "/outputs/0/name"),
    "an output twice": (asking_for("y", "y"), Code.INVALID_INPUT, "/outputs/1/name"),
    "a parameter nearly ours": (
        with_parameter("priorty", "int64_param", 1), Code.UNKNOWN_FIELD, "/parameters/priorty",
    ),
    "a timeout of another kind": (
        with_parameter("timeout", "string_param", "1"), Code.WRONG_TYPE, "/parameters/timeout",
    ),
    "outputs that are not raw": (
        with_parameter("binary_data_output", "bool_param", False), Code.OUT_OF_RANGE, "/parameters",
    ),
    "a name too long": (raw(1, 2, id="a" * 257), Code.OUT_OF_RANGE, "/id"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_with_its_code_and_place(name: str) -> None:
    asked, code, place = REFUSED[name]
    refusal = refused(asked)
    assert (refusal.code, refusal.field) == (code, place), refusal.text


def test_a_name_that_a_client_made_up_is_told_escaped() -> None:
    asked = raw(1, 2)
    asked.parameters["\x1b[31m"].SetInParent()
    assert refused(asked).text == r"/parameters/\x1b[31m: has no value"


@pytest.mark.parametrize(("datatype", "value"), [("INT8", 128), ("INT16", -(2**15) - 1), ("UINT8", 256)])
def test_a_value_that_does_not_fit_its_datatype_is_refused_with_its_place(datatype: str, value: int) -> None:
    member = "uint_contents" if datatype.startswith("U") else "int_contents"
    refusal = refused(explicit(datatype, **{member: [0, value]}), tensor(datatype))
    assert (refusal.code, refusal.field) == (Code.OUT_OF_RANGE, "/inputs/0/contents/1")
