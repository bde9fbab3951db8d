"""The messages of V2 over gRPC: the right numbers on the wire, and no quarrel with a client's own in one process."""

import subprocess
import sys

import pytest

from forwardpass.ingress.grpc.messages import classes, parse_error

# Written by hand after the field numbers of the protocol: tag = number << 3 | kind (0 varint, 1 and 5 fixed, 2 bytes).
REQUEST = (
    b"\x0a\x01m\x12\x012\x1a\x02id"  # model_name, model_version, id
    b"\x22\x09\x0a\x03low\x12\x02\x08\x01"  # parameters: low = bool_param true
    b"\x22\x0f\x0a\x08priority\x12\x03\x28\xac\x02"  # priority = uint64_param 300
    b"\x2a\x0d\x0a\x01x\x12\x04FP32\x1a\x02\x01\x03"  # inputs: name, datatype, shape [1, 3]
    b"\x32\x03\x0a\x01y"  # outputs: name
    b"\x3a\x03abc"  # raw_input_contents
)
RESPONSE = b"\x0a\x01m\x12\x011\x1a\x02id\x2a\x0d\x0a\x01y\x12\x04FP64\x1a\x02\x01\x02\x32\x02zz"

SIDE_BY_SIDE = """
from google.protobuf import descriptor_pb2, descriptor_pool
def client():
    file = descriptor_pb2.FileDescriptorProto(name="grpc_service.proto", package="inference", syntax="proto3")
    file.message_type.add(name="ServerLiveRequest")
    descriptor_pool.Default().Add(file)
    assert descriptor_pool.Default().FindMessageTypeByName("inference.ServerLiveRequest")
def ours():
    from forwardpass.ingress.grpc.messages import classes
    assert classes()["ServerLiveRequest"]().SerializeToString() == b""
{order}
"""


def test_a_request_written_by_hand_is_read_member_for_member() -> None:
    request = classes()["ModelInferRequest"].FromString(REQUEST)
    assert (request.model_name, request.model_version, request.id) == ("m", "2", "id")
    assert request.parameters["low"].bool_param is True
    assert request.parameters["priority"].uint64_param == 300
    assert [(given.name, given.datatype, list(given.shape)) for given in request.inputs] == [("x", "FP32", [1, 3])]
    assert request.outputs[0].name == "y"
    assert list(request.raw_input_contents) == [b"abc"]


def test_an_answer_is_written_as_by_hand() -> None:
    answer = classes()["ModelInferResponse"](model_name="m", model_version="1", id="id", raw_output_contents=[b"zz"])
    answer.outputs.add(name="y", datatype="FP64", shape=[1, 2])
    assert answer.SerializeToString() == RESPONSE


@pytest.mark.parametrize(
    ("member", "value", "wire"),
    [
        ("bool_contents", [True], b"\x0a\x01\x01"),
        ("int_contents", [-1], b"\x12\x0a" + b"\xff" * 9 + b"\x01"),
        ("int64_contents", [2], b"\x1a\x01\x02"),
        ("uint_contents", [3], b"\x22\x01\x03"),
        ("uint64_contents", [4], b"\x2a\x01\x04"),
        ("fp32_contents", [1.0], b"\x32\x04\x00\x00\x80\x3f"),
        ("fp64_contents", [1.0], b"\x3a\x08\x00\x00\x00\x00\x00\x00\xf0\x3f"),
        ("bytes_contents", [b"a"], b"\x42\x01a"),
    ],
)
def test_each_kind_of_contents_has_its_number(member: str, value: object, wire: bytes) -> None:
    assert classes()["InferTensorContents"](**{member: value}).SerializeToString() == wire


def test_the_numbers_of_a_model_configuration_are_tritons() -> None:
    config = classes()["ModelConfig"](name="m", max_batch_size=8, backend="b")
    config.input.add(name="x", data_type="TYPE_FP32", dims=[4])
    config.model_transaction_policy.decoupled = True
    assert config.SerializeToString() == (
        b"\x0a\x01m\x20\x08\x2a\x08\x0a\x01x\x10\x0b\x22\x01\x04\x8a\x01\x01b\x9a\x01\x02\x08\x01"
    )


@pytest.mark.parametrize("order", ["client(); ours()", "ours(); client()"])
def test_they_live_beside_a_clients_generated_code_in_one_process(order: str) -> None:
    subprocess.run([sys.executable, "-c", SIDE_BY_SIDE.format(order=order)], check=True)


def test_bytes_that_are_no_message_raise_what_parse_error_says() -> None:
    for wire in (b"\xff" * 12, b"\x0a\xff", b"\x0a\x02\xff\xfe"):  # nonsense, cut off, no UTF-8
        with pytest.raises(parse_error()):
            classes()["ModelInferRequest"].FromString(wire)
