"""Records become tensors with strict types and bounds; answers become plain values again."""

import base64
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import Field, Input, Pipeline, Signature, Version
from forwardpass.core.request import Answer
from forwardpass.core.tensor import Tensor, pack_bytes, unpack_bytes
from forwardpass.core.tokens import TokenIds, pack_token_ids
from forwardpass.pipeline.fields import decode, encode

TEXT = Input("text", "text", bytes_max=5, bytes_min=1)
PICTURE = Input("picture", "bytes", bytes_max=4)
AGE = Input("age", "number", min=0, max=120)
SIZE = Input("size", "number", missing=True)
COLOUR = Input("colour", "category", missing=True)
PERSON = Input("person", "record", columns={"height": "number", "town": "category"})


def tensor(datatype: str, *shape: int) -> Input:
    return Input("x", "tensor", datatype=datatype, shape=shape)


def one(given: Input, *values: object) -> Tensor:
    tensors, rows = encode(Signature((given,), ()), [{given.name: value} for value in values])
    assert rows == len(values)
    return tensors[0]


def refused(given: Input, *values: object) -> Refused:
    with pytest.raises(Refused) as caught:
        one(given, *values)
    return caught.value


def test_each_type_becomes_its_column_in_order() -> None:
    record = {"person": {"height": 1.5, "town": "Ulm"}, "colour": "red", "age": 3, "picture": "AAE=", "text": "hé"}
    tensors, rows = encode(Signature((TEXT, PICTURE, AGE, COLOUR, PERSON), ()), [record])
    assert rows == 1
    assert tensors == [
        Tensor("BYTES", (1,), pack_bytes(["hé".encode()])),
        Tensor("BYTES", (1,), pack_bytes([b"\0\1"])),
        Tensor("FP64", (1,), struct.pack("<d", 3)),
        Tensor("BYTES", (1,), pack_bytes([b"red"])),
        Tensor("FP64", (1,), struct.pack("<d", 1.5)),
        Tensor("BYTES", (1,), pack_bytes([b"Ulm"])),
    ]


def ids_or_text(given: Input, *values: object) -> Tensor:
    records = [{given.name: value} for value in values]
    tensors, _ = encode(Signature((given,), (), token_inputs=frozenset({given.name})), records)
    return tensors[0]


def test_a_text_may_be_token_ids_where_the_signature_says_so() -> None:
    packed = pack_bytes([b"hi", pack_token_ids([7, 8], "")])
    assert ids_or_text(Input("text", "text"), "hi", TokenIds((7, 8))) == Tensor("BYTES", (2,), packed)
    assert refused(Input("text", "text"), TokenIds((7, 8))).text == "/text: expected a string, got token ids"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((TokenIds((1, 2, 3)),), "/text: has 3 token ids; at most 2 are allowed"),
        ((TokenIds((1,)),), "/text: has 1 token ids; at least 2 are needed"),
        (("hello", TokenIds((1, -2))), "/1/text/1: a token id is an integer from 0 to 2147483647, got -2"),
        ((TokenIds((1, 2)), "too long a text"), "/1/text: has 15 bytes; at most 8 are allowed"),
        ((TokenIds((1, 2)), None), "/1/text: a value is required, got null"),
        ((TokenIds((1, 2)), [1]), "/1/text: expected a string, got a list"),
    ],
)
def test_token_ids_keep_the_bounds_of_their_text_each_counted_as_four_bytes(values: Any, text: str) -> None:
    with pytest.raises(Refused) as caught:
        ids_or_text(Input("text", "text", bytes_min=5, bytes_max=8), *values)
    assert caught.value.text == text


@pytest.mark.parametrize("record", [{}, {"size": None, "colour": None}, {"size": math.nan}])
def test_what_may_be_missing_becomes_nan_and_none(record: dict[str, object]) -> None:
    (size, colour), _ = encode(Signature((SIZE, COLOUR), ()), [record])
    assert math.isnan(struct.unpack("<d", size.data)[0])
    assert unpack_bytes(colour.data, 1) == [None]


def test_any_column_of_a_record_may_be_missing() -> None:
    (height, town), _ = encode(Signature((PERSON,), ()), [{"person": {"town": None}}, {"person": {"height": 2}}])
    assert np.isnan(np.frombuffer(height.data)).tolist() == [True, False]
    assert unpack_bytes(town.data, 2) == [None, None]


@pytest.mark.parametrize(
    ("given", "value", "code"),
    [
        (TEXT, 1, Code.WRONG_TYPE), (TEXT, None, Code.WRONG_TYPE), (TEXT, b"x", Code.WRONG_TYPE),
        (TEXT, "", Code.OUT_OF_RANGE), (TEXT, "ééé", Code.INPUT_TOO_LARGE), (TEXT, "\ud800", Code.INVALID_UTF8),
        (PICTURE, "AAE", Code.INVALID_INPUT), (PICTURE, "AA E=", Code.INVALID_INPUT), (PICTURE, "-_8=", Code.INVALID_INPUT),
        (PICTURE, "AAF=", Code.INVALID_INPUT), (PICTURE, "é", Code.INVALID_INPUT), (PICTURE, 1, Code.WRONG_TYPE),
        (PICTURE, "data:image/png;base64,AAE=", Code.INVALID_INPUT), (PICTURE, bytes(5), Code.INPUT_TOO_LARGE),
        (AGE, "1", Code.WRONG_TYPE), (AGE, True, Code.WRONG_TYPE), (AGE, None, Code.WRONG_TYPE), (AGE, [1], Code.WRONG_TYPE),
        (AGE, -0.5, Code.OUT_OF_RANGE), (AGE, 121, Code.OUT_OF_RANGE), (AGE, math.nan, Code.OUT_OF_RANGE),
        (AGE, 10**400, Code.OUT_OF_RANGE), (AGE, np.bool_(True), Code.WRONG_TYPE),
        (COLOUR, 1, Code.WRONG_TYPE), (PERSON, 1, Code.WRONG_TYPE), (PERSON, None, Code.WRONG_TYPE),
        (PERSON, {"hight": 1}, Code.UNKNOWN_FIELD), (PERSON, {"height": "1"}, Code.WRONG_TYPE),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(given: Input, value: object, code: Code) -> None:
    failure = refused(given, value)
    assert failure.code == code
    assert failure.field.startswith(f"/{given.name}")
    assert failure.text.startswith(failure.field)


@pytest.mark.parametrize(
    ("datatype", "shape", "value", "code"),
    [
        ("FP32", (2,), [1, True], Code.WRONG_TYPE), ("FP32", (2,), [1, "1"], Code.WRONG_TYPE),
        ("FP32", (2,), [1, None], Code.WRONG_TYPE), ("FP32", (1,), [1e39], Code.OUT_OF_RANGE),
        ("FP16", (1,), [65520.0], Code.OUT_OF_RANGE), ("FP32", (1,), [10**400], Code.OUT_OF_RANGE),
        ("INT8", (1,), [128], Code.OUT_OF_RANGE), ("UINT8", (1,), [-1], Code.OUT_OF_RANGE),
        ("INT64", (1,), [2**63], Code.OUT_OF_RANGE), ("INT64", (1,), [1.0], Code.WRONG_TYPE),
        ("INT32", (1,), [True], Code.WRONG_TYPE), ("BOOL", (1,), [2], Code.OUT_OF_RANGE),
        ("BOOL", (1,), [1.0], Code.WRONG_TYPE), ("BYTES", (1,), [1], Code.WRONG_TYPE),
        ("BYTES", (1,), ["\ud800"], Code.INVALID_UTF8), ("BF16", (1,), [1.0], Code.DATATYPE_MISMATCH),
        ("FP32", (2,), [1], Code.SHAPE_MISMATCH), ("FP32", (2, 2), [1, 2, 3], Code.SHAPE_MISMATCH),
        ("FP32", (2, 2), [[1, 2], [3]], Code.SHAPE_MISMATCH), ("FP32", (2, -1), [1, 2], Code.SHAPE_MISMATCH),
        ("FP32", (2, 2), [[1, 2], 3], Code.SHAPE_MISMATCH), ("FP32", (2,), [[1], [2]], Code.WRONG_TYPE),
        ("FP32", (), [1], Code.WRONG_TYPE), ("FP32", (1,), 1, Code.WRONG_TYPE),
        ("FP32", (1,), np.zeros(1), Code.DATATYPE_MISMATCH), ("FP32", (2,), np.zeros(3, "f4"), Code.SHAPE_MISMATCH),
    ],
)  # fmt: skip
def test_a_tensor_that_does_not_fit_is_refused(
    datatype: str, shape: tuple[int, ...], value: object, code: Code
) -> None:
    assert refused(tensor(datatype, *shape), value).code == code


def test_a_refusal_names_the_element() -> None:
    assert refused(tensor("INT8", 2, 3), [[1, 2, 3], [4, 5, 600]]).field == "/x/1/2"
    assert refused(tensor("INT8", 2, 3), [1, 2, 3, 4, "5", 6]).field == "/x/4"


def test_a_refusal_names_the_row_when_there_are_many() -> None:
    assert refused(AGE, 1, 2, "3").field == "/2/age"
    with pytest.raises(Refused, match=r"^/instances/0/age: ") as caught:
        encode(Signature((AGE,), ()), [{"age": -1}], root="/instances")
    assert caught.value.field == "/instances/0/age"


def test_an_unknown_field_says_what_was_probably_meant() -> None:
    with pytest.raises(Refused, match=r"/txet is unknown; did you mean 'text'\? \(allowed: age, text\)") as caught:
        encode(Signature((TEXT, AGE), ()), [{"txet": "a", "age": 1}])
    assert caught.value.code == Code.UNKNOWN_FIELD


def test_a_missing_field_is_named() -> None:
    with pytest.raises(Refused, match="/1/text is required") as caught:
        encode(Signature((TEXT, AGE), ()), [{"text": "a", "age": 1}, {"age": 1}])
    assert caught.value.code == Code.MISSING_FIELD


@pytest.mark.parametrize("records", [[], [1], [None]])
def test_what_is_no_record_is_refused(records: list[Any]) -> None:
    with pytest.raises(Refused):
        encode(Signature((TEXT,), ()), records)


def test_nested_and_flat_lists_and_arrays_are_equal() -> None:
    values = np.arange(6, dtype="f4").reshape(2, 3)
    wanted = Tensor("FP32", (1, 2, 3), values.tobytes())
    views = [values, values.astype(">f4"), np.asfortranarray(values), np.flip(np.flip(values, 1).copy(), 1)]
    for value in [values.tolist(), values.ravel().tolist(), *views]:
        assert one(tensor("FP32", 2, 3), value) == wanted


def test_free_dimensions_are_free_but_equal_across_rows() -> None:
    assert one(tensor("FP32", -1, 2), [[1, 2]], [[3, 4]]).shape == (2, 1, 2)
    assert one(tensor("FP32", -1), []).shape == (1, 0)
    assert refused(tensor("FP32", -1), [1], [1, 2]).code == Code.SHAPE_MISMATCH


def test_text_arrays_and_scalars_are_tensors_too() -> None:
    assert unpack_bytes(one(tensor("BYTES", 2), np.array(["a", "é"])).data, 2) == [b"a", "é".encode()]
    assert one(tensor("INT8"), 5, 6) == Tensor("INT8", (2,), b"\x05\x06")
    assert one(tensor("BOOL", 3), [True, 0, 1]).data == b"\1\0\1"


@given(st.lists(st.floats(width=32), min_size=1))
def test_floats_come_through_bit_for_bit(values: list[float]) -> None:
    assert one(tensor("FP32", -1), values).data == struct.pack(f"<{len(values)}f", *values)


@given(st.binary(max_size=50))
def test_bytes_come_through_base64(value: bytes) -> None:
    encoded = one(Input("x", "bytes"), base64.b64encode(value).decode())
    assert encoded == one(Input("x", "bytes"), value)
    assert unpack_bytes(encoded.data, 1) == [value]


def answered(
    outputs: dict[str, Tensor], fields: tuple[Field, ...] = (), failures: dict[int, Failure] | None = None
) -> Answer:
    rows = next(iter(outputs.values())).shape[0] + len(failures or {})
    return Answer(Version("p", 1, "d", "/", Pipeline(())), Signature((), fields), outputs, rows, failures or {}, [])


def test_an_answer_becomes_plain_rows_with_failures_in_their_place() -> None:
    failure = Failed(Code.STEP_FAILED, "no")
    outputs = {
        "label": Tensor("BYTES", (2,), pack_bytes([b"good", None])),
        "mask": Tensor("BYTES", (2,), pack_bytes([b"\xff", b""])),
        "scores": Tensor("FP32", (2, 2), struct.pack("<4f", 0.5, math.nan, -math.inf, 2)),
        "n": Tensor("INT64", (2,), struct.pack("<2q", 2**62, -1)),
    }
    fields = (Field("label", "BYTES", (), "text"), Field("mask", "BYTES", (), "bytes"))
    assert decode(answered(outputs, fields, {1: failure})) == [
        {"label": "good", "mask": "/w==", "scores": [0.5, None], "n": 2**62},
        failure,
        {"label": None, "mask": "", "scores": [None, 2.0], "n": -1},
    ]


def test_every_datatype_becomes_plain() -> None:
    outputs = {"b": Tensor("BF16", (1, 2), b"\x80\x3f\x20\xc0"), "h": Tensor("FP16", (1,), struct.pack("<e", 0.5))}
    outputs |= {"y": Tensor("BOOL", (1,), b"\1"), "t": Tensor("BYTES", (1, 2), pack_bytes([b"a", b"b"]))}
    assert decode(answered(outputs)) == [{"b": [1.0, -2.5], "h": 0.5, "y": True, "t": ["a", "b"]}]


def test_text_that_is_not_utf8_never_leaves_as_damaged_text() -> None:
    with pytest.raises(Failed) as caught:
        decode(answered({"t": Tensor("BYTES", (1,), pack_bytes([b"\xff"]))}))
    assert caught.value.code == Code.STEP_FAILED
