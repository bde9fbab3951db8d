"""V2's classification: what is asked for, and the texts that come back. Expectations are written by hand."""

import struct

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Signature, Task
from forwardpass.core.tensor import Tensor, unpack_bytes
from forwardpass.ingress.dialects.v2_classification import check_classes, classified, labels_of

SCORES = Field("y", "FP32", (4,))


def texts(tensor: Tensor, count: int, labels: tuple[str, ...] = ()) -> list[list[str]]:
    made = classified(tensor, count, labels)
    rows, each = made.shape
    elements = [(element or b"").decode() for element in unpack_bytes(made.data, rows * each)]
    return [elements[row * each : (row + 1) * each] for row in range(rows)]


def floats(*rows: tuple[float, ...]) -> Tensor:
    values = [value for row in rows for value in row]
    return Tensor("FP32", (len(rows), len(rows[0])), struct.pack(f"<{len(values)}f", *values))


def test_the_highest_come_first_and_equal_ones_in_their_order() -> None:
    assert texts(floats((0.5, 2.0, 0.5, -1.0)), 3) == [["2.0:1", "0.5:0", "0.5:2"]]
    assert texts(floats((1.0, 1.0), (0.0, 3.25)), 2) == [["1.0:0", "1.0:1"], ["3.25:1", "0.0:0"]]


def test_labels_follow_the_index() -> None:
    assert texts(floats((0.25, 0.75)), 2, ("cat", "dög")) == [["0.75:1:dög", "0.25:0:cat"]]


def test_of_fewer_numbers_all_are_given() -> None:
    assert texts(floats((1.0, 2.0)), 1000) == [["2.0:1", "1.0:0"]]


def test_values_have_no_exponent_and_no_more_digits_than_they_need() -> None:
    assert texts(floats((1e-7, 0.1, 16777216.0)), 3) == [["16777216.0:2", "0.1:1", "0.0000001:0"]]


def test_what_is_no_number_comes_last() -> None:
    nan, infinity = float("nan"), float("inf")
    assert texts(floats((nan, -2.0, infinity)), 3) == [["inf:2", "-2.0:1", "nan:0"]]


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    [
        ("INT64", struct.pack("<3q", -(2**63), 2**53 + 1, 2**53), ["9007199254740993:1", "9007199254740992:2"]),
        ("UINT8", bytes([0, 200, 255]), ["255:2", "200:1"]),
        ("FP16", struct.pack("<3e", 0.1, 1.5, -1.0), ["1.5:1", "0.1:0"]),
        ("BF16", bytes.fromhex("803f c03f 00bf"), ["1.5:1", "1.0:0"]),
    ],
)
def test_every_datatype_of_numbers_is_read_as_what_it_is(datatype: str, data: bytes, expected: list[str]) -> None:
    assert texts(Tensor(datatype, (1, 3), data), 2) == [expected]


@pytest.mark.parametrize(
    ("count", "field", "code"),
    [
        (0, SCORES, Code.OUT_OF_RANGE), (-1, SCORES, Code.OUT_OF_RANGE), (True, SCORES, Code.WRONG_TYPE),
        ("3", SCORES, Code.WRONG_TYPE), (1.0, SCORES, Code.WRONG_TYPE),
        (1, Field("t", "BYTES", (4,), "text"), Code.DATATYPE_MISMATCH), (1, Field("b", "BOOL", (4,)), Code.DATATYPE_MISMATCH),
        (1, Field("n", "FP32", ()), Code.SHAPE_MISMATCH), (1, Field("m", "FP32", (2, 2)), Code.SHAPE_MISMATCH),
    ],
)  # fmt: skip
def test_what_has_no_classes_is_refused(count: object, field: Field, code: Code) -> None:
    with pytest.raises(Refused) as refused:
        check_classes(count, field, "/outputs/0/parameters/classification")
    assert refused.value.code is code
    assert refused.value.text.startswith("/outputs/0/parameters/classification: ")


def test_labels_are_those_of_the_output_that_the_task_names() -> None:
    task = Task("classify", "text", output="y", labels=("a", "b"))
    assert labels_of("y", Signature((), (SCORES,), task=task)) == ("a", "b")
    assert labels_of("z", Signature((), (SCORES,), task=task)) == ()
    assert labels_of("y", Signature((), (SCORES,))) == ()
