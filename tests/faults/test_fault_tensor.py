"""Tensors that are not what they say, over HTTP: refused by name, with what was expected and what came (group T)."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.faults.asking import Call, binary, infer
from tests.faults.oracle import assert_well_told
from tests.serving import Server

from forwardpass.client import Client

FLOATS = struct.pack("<4f", 1, 2, 3, 4)
INT32_MIN = -(2**31)


@dataclass(frozen=True, slots=True)
class Row:
    """A call, the code it is refused with, and what the text must say."""

    call: Call
    code: str
    said: tuple[str, ...]


def row(call: Call, code: str, *said: str) -> Row:
    return Row(call, code, said)


def both_of_divide(raw: bytes, *sizes: int) -> Call:
    """Two inputs of one number each, which announce these sizes."""
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 1], "parameters": {"binary_data_size": size}}
        for name, size in zip("ab", sizes, strict=True)
    ]
    head = json.dumps({"inputs": inputs}).encode()
    return Call(head + raw, "divide", {"Inference-Header-Content-Length": str(len(head))})


SHAPE, DATA, SIZE = "/inputs/0/shape", "/inputs/0/data", "/inputs/0/parameters/binary_data_size"
PARAMETER = "/parameters/"
HEADER = "Inference-Header-Content-Length"
ROWS = {
    "T1 product over 2^64": row(infer(shape=[2**4, 2**60 + 2]), "shape_overflow", SHAPE, str(2**4 * (2**60 + 2))),
    "T1 product 2^64": row(infer(shape=[2**32, 2**32]), "shape_overflow", SHAPE, str(2**64)),
    "T1 65 dimensions": row(infer(shape=[2] * 65), "shape_overflow", SHAPE, "65", "16"),
    "T1 binary": row(binary(FLOATS, 16, shape=[2**32, 2**32]), "shape_overflow", SHAPE, str(2**64)),
    "T1 beyond 64 bits": row(infer(shape=[2**70, 4]), "shape_overflow", SHAPE),
    "T2 negative": row(infer(shape=[-1, 4]), "shape_mismatch", SHAPE, "0 or more"),
    "T2 negative product": row(infer(shape=[-1, -4]), "shape_mismatch", SHAPE, "0 or more"),
    "T2 float": row(infer(shape=[1.5, 4]), "wrong_type", SHAPE, "integer"),
    "T2 text": row(infer(shape=["1", 4]), "wrong_type", SHAPE, "integer"),
    "T2 bool": row(infer(shape=[True, 4]), "wrong_type", SHAPE, "integer"),
    "T2 null": row(infer(shape=None), "wrong_type", SHAPE),
    "T2 no shape": row(infer(shape=...), "missing_field", "shape"),
    "T2 empty": row(infer(shape=[]), "shape_mismatch", SHAPE),
    "T2 other rank": row(infer(shape=[1, 2, 2]), "shape_mismatch", SHAPE, "[4]", "[2, 2]"),
    "T2 other size": row(infer(shape=[1, 3], data=[1, 2, 3]), "shape_mismatch", SHAPE, "[4]", "[3]"),
    "T3 no rows": row(infer(shape=[0, 4], data=[]), "shape_mismatch", SHAPE, "at least 1"),
    "T3 empty rows": row(infer("unique", shape=[3, 0], data=[]), "shape_mismatch", "x", "[0]", "[-1]"),
    "T5 one short": row(infer(data=[1, 2, 3]), "shape_mismatch", DATA, "4 elements", "3"),
    "T5 one over": row(infer(data=[1, 2, 3, 4, 5]), "shape_mismatch", DATA, "4 elements", "5"),
    "T5 none": row(infer(data=[]), "shape_mismatch", DATA, "4 elements", "0"),
    "T5 left out": row(infer(data=...), "missing_field", DATA),
    "T6 ragged": row(infer(shape=[2, 4], data=[[1, 2, 3, 4], [5, 6, 7]]), "shape_mismatch", DATA, "3", "4"),
    "T6 too deep": row(infer(data=[[[1, 2, 3, 4]]]), "shape_mismatch", DATA, "3 deep", "2 dim"),
    "T6 half nested": row(infer(shape=[2, 4], data=[[1, 2, 3, 4], 5]), "wrong_type", DATA),
    "T7 FP64 for FP32": row(infer(datatype="FP64"), "datatype_mismatch", "/inputs/0/datatype", "FP32", "FP64"),
    "T7 INT32 for INT64": row(
        infer("huge", name="n", datatype="INT32", shape=[1], data=[1]), "datatype_mismatch", "INT64", "INT32"
    ),
    "T7 unknown": row(infer(datatype="FP31"), "datatype_mismatch", "/inputs/0/datatype", "FP31", "FP32"),
    "T7 BF16 for FP32": row(infer(datatype="BF16"), "datatype_mismatch", "/inputs/0/datatype", "FP32", "BF16"),
    "T7 BF16 for FP16": row(
        binary(bytes(4), 4, pipeline="half", datatype="BF16", shape=[1, 2]), "datatype_mismatch", "FP16", "BF16"
    ),
    "T7 case": row(infer(datatype="fp32"), "datatype_mismatch", "/inputs/0/datatype", "fp32", "FP32"),
    "T7 not text": row(infer(datatype=32), "wrong_type", "/inputs/0/datatype"),
    "T9 unknown output": row(infer(top={"outputs": [{"name": "z"}]}), "unknown_output", "/outputs/0/name", "z", "y"),
    "T9 output twice": row(infer(top={"outputs": [{"name": "y"}] * 2}), "invalid_input", "/outputs/1/name", "twice"),
    "T9 unknown input": row(infer(name="z"), "unknown_field", "/inputs/0", "z", "x"),
    "T9 no inputs": row(infer(top={"inputs": []}), "missing_field", "/inputs", "x"),
    "T9 left out": row(infer("divide", name="a", datatype="INT32", shape=[1, 1], data=[1]), "missing_field", "'b'"),
    "T10 negative": row(binary(FLOATS, 16, length="-1"), "bad_request", HEADER),
    "T10 over the body": row(binary(FLOATS, 16, length="9999"), "bad_request", HEADER, "0 to"),
    "T10 enormous": row(binary(FLOATS, 16, length="99999999999"), "bad_request", HEADER),
    "T10 hexadecimal": row(binary(FLOATS, 16, length="0x10"), "bad_request", HEADER),
    "T10 empty": row(binary(FLOATS, 16, length=""), "bad_request", HEADER),
    "T10 one short": row(binary(FLOATS, 16, length="60"), "json_invalid"),
    "T10 missing": row(Call(binary(FLOATS, 16).body), "json_invalid"),
    "T10 0 and not the input": row(binary(FLOATS, 16, length="0"), "binary_size_mismatch"),
    "T11 too small": row(binary(FLOATS, 12), "binary_size_mismatch", DATA, "16", "12"),
    "T11 too large": row(binary(FLOATS, 17), "binary_size_mismatch", SIZE, "17", "16"),
    "T11 negative": row(binary(FLOATS, -16), "out_of_range", SIZE),
    "T11 not whole": row(binary(FLOATS, 16.5), "wrong_type", SIZE),
    "T11 enormous": row(binary(FLOATS, 2**62), "binary_size_mismatch", SIZE, str(2**62), "16"),
    "T11 bytes left": row(binary(FLOATS + b"rest", 16), "binary_size_mismatch", "20", "16"),
    "T11 the same bytes": row(both_of_divide(bytes(4), 4, 4), "binary_size_mismatch", "/inputs/1", "4", "0"),
    "T11 more than both": row(both_of_divide(bytes(12), 4, 4), "binary_size_mismatch", "12", "8"),
    "T11 twice the same": row(binary(FLOATS, 16, 16), "invalid_input", "/inputs/1/name", "twice"),
    "T13 not UTF-8": row(
        binary(b"\2\0\0\0\xc3\x28", 6, pipeline="strings", datatype="BYTES", shape=[1]), "invalid_utf8", DATA, "UTF-8"
    ),
    "T13 length lies": row(
        binary(b"\xff\xff\0\0ab", 6, pipeline="strings", datatype="BYTES", shape=[1]), "binary_size_mismatch", DATA, "6"
    ),
    "T14 a row too many": row(infer(shape=[65_537, 4], data=[]), "batch_too_large", SHAPE, "65536", "65537"),
    "T14 2^31 rows": row(infer(shape=[2**31, 4], data=[]), "batch_too_large", SHAPE, "65536", str(2**31)),
    "T18 FP16 overflow": row(infer("half", datatype="FP16", shape=[1, 2], data=[1, 65536]), "out_of_range", "/data/1"),
    "T18 FP32 overflow": row(infer(data=[1, 2, 3, 1e39]), "out_of_range", "/data/3", "FP32"),
    "T23 timeout -1": row(infer(top={"parameters": {"timeout": -1}}), "out_of_range", PARAMETER + "timeout", "0"),
    "T23 timeout text": row(infer(top={"parameters": {"timeout": "1"}}), "wrong_type", PARAMETER + "timeout"),
    "T23 priority -5": row(infer(top={"parameters": {"priority": -5}}), "out_of_range", PARAMETER + "priority", "0"),
    "T23 sequence": row(infer(top={"parameters": {"sequence_id": 7}}), "unknown_field", "sequence_id"),
    "T23 shared memory": row(
        infer(top={"parameters": {"shared_memory_region": "r"}}), "unknown_field", "shared_memory_region"
    ),
    "T5 many too many": row(infer(data=[1] * 200_000), "shape_mismatch", DATA, "4 elements", "200000"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_tensor_that_does_not_fit_is_refused_and_told_why(server: Server, name: str) -> None:
    answers = [ROWS[name].call.send(server) for _ in range(2)]
    assert [(answer.status, answer.code) for answer in answers] == [(400, ROWS[name].code)] * 2
    assert answers[0].json["error"] == answers[1].json["error"]
    assert_well_told(answers[0], *ROWS[name].said)


@pytest.mark.parametrize(
    "call",
    [
        infer(shape=[2, 4], data=[1, 2, 3, 4, 5, 6, 7, 8]),
        infer(shape=[2, 4], data=[[1, 2, 3, 4], [5, 6, 7, 8]]),
        binary(FLOATS + struct.pack("<4f", 5, 6, 7, 8), 32, shape=[2, 4]),
    ],
    ids=["flat", "nested", "binary"],
)
def test_t6_a_tensor_is_the_same_in_every_form(server: Server, call: Call) -> None:
    assert call.send(server).json["outputs"][0]["data"] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("timeout", [0, 10**12, 10**30])
def test_t23_a_timeout_is_cut_to_the_longest_deadline(server: Server, timeout: int) -> None:
    assert infer(top={"parameters": {"timeout": timeout}}).send(server).status == 200


@pytest.mark.parametrize("form", ["json", "binary"])
def test_t17_extreme_numbers_come_back_bit_for_bit(server: Server, form: str) -> None:
    extremes = np.array([-0.0, 1e-45, 3.4028235e38, 1.1754944e-38], np.float32)
    call = infer(data=extremes.astype(float).tolist()) if form == "json" else binary(extremes.tobytes(), 16)
    message = json.loads(call.body[: int(call.headers.get(HEADER, len(call.body)))])
    head = json.dumps(message | {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    raw = b"" if form == "json" else extremes.tobytes()
    answer = Call(head + raw, headers={HEADER: str(len(head))}).send(server)
    assert answer.body[int(answer.headers[HEADER.lower()]) :] == extremes.tobytes()


RIGHT = np.array([[0.5, -2.25, 3.0e-8, 65504.0]], np.float32)
VIEWS: dict[str, NDArray[np.float32]] = {
    "big-endian": RIGHT.astype(">f4"),
    "strided": np.repeat(RIGHT, 3, axis=1)[:, ::3],
    "backwards": np.ascontiguousarray(RIGHT[:, ::-1])[:, ::-1],
    "column by column": np.asfortranarray(np.vstack([RIGHT, RIGHT]))[:1],
    "unaligned": np.frombuffer(bytes(1) + RIGHT.tobytes(), "<f4", offset=1).reshape(1, 4),
}


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        yield client


@pytest.mark.parametrize("name", VIEWS)
def test_t15_a_view_of_any_layout_is_answered_as_its_contiguous_copy(client: Client, name: str) -> None:
    answer = client.infer("identity", {"x": VIEWS[name]})["y"]
    assert answer.tobytes() == RIGHT.tobytes()
    plain = client.predict("identity", {"x": VIEWS[name][0]}).outputs["y"]
    assert np.array(plain, np.float32).tobytes() == RIGHT.tobytes()


def test_t18_fp16_is_the_same_from_json_and_binary_and_is_answered_in_binary_only(server: Server) -> None:
    halves = np.array([0.1, 65504.0], np.float16)
    numbers = infer("half", datatype="FP16", shape=[1, 2], data=[0.1, 65504])
    told = [{"name": "y", "parameters": {"binary_data": True}}]
    head = json.dumps(json.loads(numbers.body) | {"outputs": told}).encode()
    answer = Call(head, "half", {HEADER: str(len(head))}).send(server)
    assert answer.body[int(answer.headers[HEADER.lower()]) :] == halves.tobytes()
    refused = binary(halves.tobytes(), 4, pipeline="half", datatype="FP16", shape=[1, 2]).send(server)
    assert refused.status == 400
    assert_well_told(refused, "'y'", "FP16", "binary_data")


def test_t19_smallest_integers_are_divided_exactly(server: Server) -> None:
    inputs = [{"name": n, "datatype": "INT32", "shape": [2, 1], "data": d} for n, d in
              (("a", [INT32_MIN, 7]), ("b", [1, -2]))]  # fmt: skip
    answer = Call(json.dumps({"inputs": inputs}).encode(), "divide").send(server)
    assert answer.json["outputs"][0]["data"] == [INT32_MIN, -3]
