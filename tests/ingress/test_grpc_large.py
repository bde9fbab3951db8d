"""Messages out of data in pieces, and raw tensors that protobuf does not see: its own classes say what is right."""

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.grpc import large_fields
from forwardpass.ingress.grpc.decoding import RAW_INPUT, without_raw
from forwardpass.ingress.grpc.messages import Message, classes
from forwardpass.ingress.grpc.splitter import Splitter

RAW = (bytes(range(256)) * 100, b"", b"x" * 200)
DATA = b"\0\0\0\0\2ab" + b"\0\0\0\0\0" + b"\1\0\0\0\3cde"


def request() -> Message:
    message = classes()["ModelInferRequest"](model_name="m", id="é", raw_input_contents=RAW)
    message.parameters["priority"].int64_param = 7
    message.inputs.add(name="x", datatype="FP32", shape=[1, 2**40])
    return message


@pytest.mark.parametrize("size", range(1, len(DATA) + 1))
def test_messages_are_the_same_however_their_data_is_cut(size: int) -> None:
    splitter = Splitter(3)
    got = [each for start in range(0, len(DATA), size) for each in splitter.feed(DATA[start : start + size])]
    assert [(bytes(each.body), each.packed) for each in got] == [(b"ab", False), (b"", False), (b"cde", True)]
    assert splitter.partial_bytes == 0


@pytest.mark.parametrize(("prefix", "code"), [(b"\0\0\0\0\4", Code.BODY_TOO_LARGE), (b"\2\0\0\0\1", Code.BAD_ENCODING)])
def test_a_message_is_refused_as_soon_as_its_prefix_is_here(prefix: bytes, code: Code) -> None:
    splitter = Splitter(3)
    assert splitter.feed(prefix[:4]) == []
    with pytest.raises(Refused) as caught:
        splitter.feed(prefix[4:])
    assert caught.value.code is code


def test_raw_inputs_are_cut_out_and_the_rest_is_the_same_message() -> None:
    message = request()
    rest, raw = without_raw(message.SerializeToString())
    message.ClearField("raw_input_contents")
    assert classes()["ModelInferRequest"].FromString(rest) == message
    assert raw is not None
    assert tuple(map(bytes, raw)) == RAW


def test_raw_inputs_among_other_fields_are_found_too() -> None:
    head = classes()["ModelInferRequest"](model_name="m").SerializeToString()
    raw = classes()["ModelInferRequest"](raw_input_contents=[b"r" * 300]).SerializeToString()
    unknown = b"\xf8\x3f\x05" + b"\xf9\x3f" + bytes(8) + b"\xfd\x3f" + bytes(4)  # field 1023 as three kinds of numbers
    found = large_fields.cut(raw + head + raw + unknown, RAW_INPUT)
    assert found is not None
    assert found[0] == head + unknown
    assert [bytes(each) for each in found[1]] == [b"r" * 300] * 2


@pytest.mark.parametrize("cut_off", [1, 2, 5, 300])
def test_what_is_not_well_formed_is_left_to_protobuf(cut_off: int) -> None:
    assert large_fields.cut(request().SerializeToString()[:-cut_off], RAW_INPUT) is None


@pytest.mark.parametrize("body", [b"\x0b", b"\x3a" + b"\xff" * 11, b"\x80" * 10, b"\x08" * 2 * large_fields.FIELDS_MAX])
def test_groups_endless_numbers_and_very_many_fields_are_left_to_protobuf(body: bytes) -> None:
    assert large_fields.cut(body, RAW_INPUT) is None


@pytest.mark.parametrize("size", [0, 127, 128, 16383, 16384, 3_000_000])
def test_a_field_put_behind_a_message_is_what_protobuf_writes(size: int) -> None:
    data = bytes(size)
    assert large_fields.head(RAW_INPUT, size) + data == (
        classes()["ModelInferRequest"](raw_input_contents=[data]).SerializeToString()
    )
