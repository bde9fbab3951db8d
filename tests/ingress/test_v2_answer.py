"""V2 answers: JSON and binary forms, headers, failures, and the bodies that describe the server."""

import json
import math
import struct
from typing import Any

import pytest

from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import Field, Input, Pipeline, Signature, Version
from forwardpass.core.request import Answer, Note, Request
from forwardpass.core.tensor import Tensor, pack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects import v2_metadata
from forwardpass.ingress.dialects.v2_answer import encode_infer
from forwardpass.ingress.message import HttpAnswer

VERSION = Version("reviews", 3, "ab" * 32, "/secret", Pipeline((), description="about"))
OUTPUTS = {
    "score": Tensor("FP32", (2,), struct.pack("<2f", 0.1, 0.25)),
    "label": Tensor("BYTES", (2, 1), pack_bytes([b"good", "schön".encode()])),
}
SIGNATURE = Signature(
    (Input("text", "text"), Input("n", "number"), Input("x", "tensor", datatype="FP32", shape=(3, -1))),
    (Field("score", "FP32"), Field("label", "BYTES", (1,), "text")),
)


def answer(outputs: dict[str, Tensor] | None = None, **changes: Any) -> Answer:
    outputs = OUTPUTS if outputs is None else outputs
    signature = Signature((), tuple(Field(name, t.datatype, t.shape[1:]) for name, t in outputs.items()))
    given: dict[str, Any] = {"failures": {}, "notes": [], "rows": 2, **changes}
    return Answer(VERSION, signature, outputs, given["rows"], given["failures"], given["notes"], given.get("receipt"))


def request(**changes: Any) -> Request:
    return Request("id-1", [], 2, Timeline(), **changes)


def body(http: HttpAnswer) -> Any:
    assert isinstance(http.body, bytes)
    return json.loads(http.body)


def parts(http: HttpAnswer) -> tuple[Any, list[bytes]]:
    assert isinstance(http.body, list)
    text, *buffers = map(bytes, http.body)
    assert dict(http.headers)[b"Inference-Header-Content-Length"] == b"%d" % len(text)
    return json.loads(text), buffers


def test_an_answer_is_json_with_flat_data_and_says_who_answered() -> None:
    http = encode_infer(answer(), request(client_id="42"))
    assert body(http) == {
        "model_name": "reviews",
        "model_version": "3",
        "id": "42",
        "outputs": [
            {"name": "score", "datatype": "FP32", "shape": [2], "data": [0.1, 0.25]},
            {"name": "label", "datatype": "BYTES", "shape": [2, 1], "data": ["good", "schön"]},
        ],
    }
    assert (http.status, http.content_type) == (200, b"application/json")
    assert http.headers == [
        (b"X-Request-Id", b"id-1"),
        (b"X-Pipeline", b"reviews"),
        (b"X-Pipeline-Version", b"3"),
        (b"X-Pipeline-Digest", b"ab" * 32),
    ]


def test_an_answer_without_a_client_id_carries_ours() -> None:
    assert body(encode_infer(answer(), request()))["id"] == "id-1"


def test_only_outputs_asked_for_are_answered_in_the_order_asked() -> None:
    names = [output["name"] for output in body(encode_infer(answer(), request(outputs=("label",))))["outputs"]]
    assert names == ["label"]
    names = [output["name"] for output in body(encode_infer(answer(), request(outputs=("label", "score"))))["outputs"]]
    assert names == ["label", "score"]


def test_binary_outputs_follow_the_json_in_order() -> None:
    http = encode_infer(answer(), request(binary_default=True, binary={"score": False}))
    head, buffers = parts(http)
    packed = OUTPUTS["label"].data
    assert buffers == [packed]
    assert head["outputs"][0]["data"] == [0.1, 0.25]
    assert head["outputs"][1] == {
        "name": "label", "datatype": "BYTES", "shape": [2, 1], "parameters": {"binary_data_size": len(packed)},
    }  # fmt: skip
    assert http.content_type == b"application/octet-stream"


@pytest.mark.parametrize(
    ("datatype", "packed", "values"),
    [
        ("BOOL", b"\0\1", [False, True]), ("INT64", struct.pack("<2q", -(2**63), 2**63 - 1), [-(2**63), 2**63 - 1]),
        ("UINT64", struct.pack("<2Q", 0, 2**64 - 1), [0, 2**64 - 1]), ("FP64", struct.pack("<2d", 5e-324, 0.1), [5e-324, 0.1]),
        ("FP32", struct.pack("<2f", math.nan, math.inf), [None, None]), ("UINT8", b"\0\xff", [0, 255]),
    ],
)  # fmt: skip
def test_numbers_come_out_exactly_and_what_json_has_not_as_null(
    datatype: str, packed: bytes, values: list[Any]
) -> None:
    outputs = {"y": Tensor(datatype, (2,), packed)}
    assert body(encode_infer(answer(outputs), request()))["outputs"][0]["data"] == values
    assert parts(encode_infer(answer(outputs), request(binary_default=True)))[1] == [packed]


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (Tensor("FP16", (1,), b"\0\0"), Code.DATATYPE_MISMATCH), (Tensor("BF16", (1,), b"\0\0"), Code.DATATYPE_MISMATCH),
        (Tensor("BYTES", (1,), pack_bytes([b"\xff"])), Code.INVALID_UTF8),
    ],
)  # fmt: skip
def test_what_json_cannot_carry_is_refused_naming_the_binary_form(tensor: Tensor, code: Code) -> None:
    with pytest.raises(Refused, match="binary_data") as caught:
        encode_infer(answer({"y": tensor}), request())
    assert caught.value.code == code
    assert parts(encode_infer(answer({"y": tensor}), request(binary_default=True)))[1] == [tensor.data]


def test_our_mark_of_a_missing_value_never_leaves() -> None:
    outputs = {"y": Tensor("BYTES", (2,), pack_bytes([None, b"a"]))}
    assert parts(encode_infer(answer(outputs), request(binary_default=True)))[1] == [b"\0\0\0\0\1\0\0\0a"]
    assert body(encode_infer(answer(outputs), request()))["outputs"][0]["data"] == [None, "a"]


def test_notes_are_a_string_parameter_and_a_receipt_a_member() -> None:
    notes = [Note(1, "truncated", {"tokens": 300, "kept": 256})]
    told = body(encode_infer(answer(notes=notes, receipt={"batch": 2}), request()))
    assert json.loads(told["parameters"]["notes"]) == [
        {"row": 1, "name": "truncated", "value": {"tokens": 300, "kept": 256}}
    ]
    assert told["receipt"] == {"batch": 2}


@pytest.mark.parametrize(
    ("failures", "rows", "text"),
    [
        ({3: Refused(Code.INVALID_INPUT, "b"), 1: Refused(Code.INVALID_INPUT, "a", field="f")}, 4, "row 1: a"),
        ({0: Failed(Code.STEP_FAILED, "c", retry_after_s=2.0)}, 1, "c"),
    ],
)
def test_a_failed_row_fails_the_request(failures: dict[int, Failure], rows: int, text: str) -> None:
    with pytest.raises(Failure) as caught:
        encode_infer(answer(failures=failures, rows=rows), request())
    first = failures[min(failures)]
    assert (type(caught.value), caught.value.code, caught.value.text) == (type(first), first.code, text)
    assert (caught.value.field, caught.value.retry_after_s) == (first.field, first.retry_after_s)


def test_health_bodies_serve_every_client() -> None:
    assert body(v2_metadata.live()) == {"live": True}
    assert body(v2_metadata.ready(True)) == {"live": True, "ready": True}
    assert body(v2_metadata.model_ready("m", True)) == {"name": "m", "ready": True}
    for http in (v2_metadata.ready(False), v2_metadata.model_ready("m", False)):
        assert (http.status, body(http)["ready"], http.headers) == (503, False, [(b"Retry-After", b"1")])
        assert isinstance(body(http)["error"], str)
    assert body(v2_metadata.models(["a", "b"])) == {"models": ["a", "b"]}


def test_metadata_lists_only_what_works() -> None:
    extensions = ["binary_tensor_data", "parameters", "schedule_policy", "sequence", "sequence(string_id)"]
    assert body(v2_metadata.server_metadata("1.2", extensions)) == {
        "name": "forwardpass",
        "version": "1.2",
        "extensions": extensions,
    }
    assert body(v2_metadata.model_metadata(VERSION, [1, 3], SIGNATURE, "onnx_onnxv1")) == {
        "name": "reviews",
        "versions": ["1", "3"],
        "platform": "onnx_onnxv1",
        "inputs": [
            {"name": "text", "datatype": "BYTES", "shape": [-1]},
            {"name": "n", "datatype": "FP64", "shape": [-1]},
            {"name": "x", "datatype": "FP32", "shape": [-1, 3, -1]},
        ],
        "outputs": [
            {"name": "score", "datatype": "FP32", "shape": [-1]},
            {"name": "label", "datatype": "BYTES", "shape": [-1, 1]},
        ],
        "properties": {"description": "about", "digest": "ab" * 32},
    }
