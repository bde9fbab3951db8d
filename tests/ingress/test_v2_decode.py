"""V2 infer requests: every form decodes to the same request; every fault of FAULTS 3.2 and 3.3 is refused with its code."""

import json
import math
import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Input, Signature
from forwardpass.core.request import Request
from forwardpass.core.tensor import pack_bytes, unpack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.v2 import decode_infer
from forwardpass.ingress.message import HttpRequest

OUTPUTS = (Field("y", "FP32", (3,)), Field("label", "BYTES", (), "text"))
X = Signature((Input("x", "tensor", datatype="FP32", shape=(2,)),), OUTPUTS)
STRUCT_CODES = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
    "FP16": "e", "FP32": "f", "FP64": "d", "BOOL": "?",
}  # fmt: skip


def infer(
    body: Any, signature: Signature = X, raw: bytes = b"", query: str = "", length: bytes | None = None
) -> Request:
    """``body`` is JSON text or a value to write as such; ``raw`` follows it as the binary part."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {b"inference-header-content-length": length or b"%d" % len(text)} if raw or length else {}
    http = HttpRequest(b"POST", "/v2/models/m/infer", query, headers, text + raw, 0.0)
    return decode_infer(http, signature, "id-1", Timeline())


def refused(*arguments: Any, **named: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        infer(*arguments, **named)
    assert 0 < len(caught.value.text) <= 512
    return caught.value


def x(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2], **changes}
    return {name: value for name, value in given.items() if value is not None}


def binary(size: Any, **changes: Any) -> dict[str, Any]:
    return x(data=None, parameters={"binary_data_size": size}, **changes)


def tensor(datatype: str, *shape: int) -> Signature:
    return Signature((Input("x", "tensor", datatype=datatype, shape=shape),), OUTPUTS)


def elements(datatype: str) -> st.SearchStrategy[Any]:
    if datatype == "BOOL":
        return st.booleans()
    if datatype.startswith("FP"):
        return st.floats(width=int(datatype[2:]), allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]  # 16, 32 or 64
    bits = int(datatype.lstrip("UINT"))
    return (
        st.integers(0, 2**bits - 1)
        if datatype.startswith("U")
        else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )


@given(st.data(), st.sampled_from(sorted(STRUCT_CODES)), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_flat_nested_and_binary_data_are_the_same_tensor(data: st.DataObject, datatype: str, shape: list[int]) -> None:
    count = math.prod(shape)
    values = data.draw(st.lists(elements(datatype), min_size=count, max_size=count))
    oracle = struct.pack(f"<{count}{STRUCT_CODES[datatype]}", *values)
    nested: Any = values
    for size in reversed(shape[1:]):
        nested = [nested[i : i + size] for i in range(0, len(nested), size)]
    signature = tensor(datatype, *shape[1:])
    given_ = {"name": "x", "shape": shape, "datatype": datatype}
    forms = [
        infer({"inputs": [{**given_, "data": values}]}, signature),
        infer({"inputs": [{**given_, "data": nested}]}, signature),
        infer({"inputs": [{**given_, "parameters": {"binary_data_size": len(oracle)}}]}, signature, oracle),
    ]
    for request in forms:
        (column,) = request.columns
        assert (column.datatype, column.shape, bytes(column.data), request.rows) == (
            datatype,
            tuple(shape),
            oracle,
            shape[0],
        )


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5))
def test_texts_are_the_same_in_json_and_binary(texts: list[str]) -> None:
    signature = Signature((Input("t", "text"),), ())
    given_ = {"name": "t", "shape": [len(texts), 1], "datatype": "BYTES"}
    oracle = pack_bytes([text.encode() for text in texts])
    for request in (
        infer({"inputs": [{**given_, "data": texts}]}, signature),
        infer({"inputs": [{**given_, "data": [[text] for text in texts]}]}, signature),
        infer({"inputs": [{**given_, "parameters": {"binary_data_size": len(oracle)}}]}, signature, oracle),
    ):
        assert (request.columns[0].shape, bytes(request.columns[0].data)) == ((len(texts),), oracle)


MANY = Signature(
    (
        Input("text", "text", bytes_max=4, bytes_min=1),
        Input("n", "number", min=0, max=9),
        Input("r", "record", columns={"height": "number", "town": "category"}),
        Input("raw", "bytes", bytes_max=4),
    ),
    OUTPUTS,
)
PLAIN = {
    "text": ("BYTES", ["a", "b"]), "n": ("INT64", [1, 2]), "height": ("FP32", [0.1, None]), "town": ("BYTES", ["Ulm", None]),
    "raw": ("BYTES", ["x", "y"]),
}  # fmt: skip


def many(**changes: Any) -> dict[str, Any]:
    inputs = [
        {"name": name, "shape": [2, 1], "datatype": datatype, "data": data}
        for name, (datatype, data) in (PLAIN | changes).items()
        if data is not None
    ]
    return {"inputs": inputs[::-1]}


def test_inputs_come_in_any_order_and_numbers_in_any_datatype() -> None:
    text, n, height, town, raw = infer(many(), MANY).columns
    assert unpack_bytes(text.data, 2) == [b"a", b"b"]
    assert struct.unpack("<2d", n.data) == (1.0, 2.0)
    first, second = struct.unpack("<2d", height.data)
    assert first == struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert math.isnan(second)
    assert (unpack_bytes(town.data, 2), unpack_bytes(raw.data, 2)) == ([b"Ulm", None], [b"x", b"y"])


def test_columns_of_a_record_may_be_left_out() -> None:
    columns = infer(many(height=("", None), town=("", None)), MANY).columns
    assert all(math.isnan(value) for value in struct.unpack("<2d", columns[2].data))
    assert unpack_bytes(columns[3].data, 2) == [None, None]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"text": ("BYTES", ["a", ""])}, Code.OUT_OF_RANGE), ({"text": ("BYTES", ["a", "fünf!"])}, Code.INPUT_TOO_LARGE),
        ({"text": ("BYTES", ["a", None])}, Code.WRONG_TYPE), ({"text": ("BYTES", ["a", 1])}, Code.WRONG_TYPE),
        ({"text": ("FP32", [1, 2])}, Code.DATATYPE_MISMATCH), ({"n": ("BOOL", [True, True])}, Code.DATATYPE_MISMATCH),
        ({"n": ("INT64", [1, 10])}, Code.OUT_OF_RANGE), ({"n": ("FP32", [-0.5, 1])}, Code.OUT_OF_RANGE),
        ({"n": ("INT8", [1, 300])}, Code.OUT_OF_RANGE), ({"n": ("INT64", [1, None])}, Code.WRONG_TYPE),
        ({"n": ("BYTES", ["1", "2"])}, Code.DATATYPE_MISMATCH), ({"n": ("", None)}, Code.MISSING_FIELD),
        ({"raw": ("BYTES", ["x", "12345"])}, Code.INPUT_TOO_LARGE),
    ],
)  # fmt: skip
def test_the_bounds_of_an_input_hold_here_too(change: dict[str, Any], code: Code) -> None:
    assert refused(many(**change), MANY).code == code


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"\xff", Code.INVALID_UTF8), (b"12345", Code.INPUT_TOO_LARGE), (b"", Code.OUT_OF_RANGE)],
)
def test_binary_text_keeps_its_bounds_too(raw: bytes, code: Code) -> None:
    signature, packed = Signature(MANY.inputs[:1], ()), pack_bytes([raw])
    given_ = {"name": "text", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(packed)}}
    assert refused({"inputs": [given_]}, signature, packed).code == code


@pytest.mark.parametrize(
    ("given_", "code", "field"),
    [
        (x(shape=[2**4, 2**60 + 2]), Code.SHAPE_OVERFLOW, "/inputs/0/shape"),
        (x(shape=[2**32, 2**32]), Code.SHAPE_OVERFLOW, "/inputs/0/shape"),
        (x(shape=[2] * 65), Code.SHAPE_OVERFLOW, "/inputs/0/shape"),
        (x(shape=[2**70, 2]), Code.SHAPE_OVERFLOW, "/inputs/0/shape"),
        (x(shape=[-1, 2]), Code.SHAPE_MISMATCH, "/inputs/0/shape"),
        (x(shape=[1.0, 2]), Code.WRONG_TYPE, "/inputs/0/shape/0"),
        (x(shape=["1", 2]), Code.WRONG_TYPE, "/inputs/0/shape/0"),
        (x(shape=[True, 2]), Code.WRONG_TYPE, "/inputs/0/shape/0"),
        (x(shape=[0, 2], data=[]), Code.SHAPE_MISMATCH, "/inputs/0/shape"),
        (x(shape=[], data=[]), Code.SHAPE_MISMATCH, "/inputs/0/shape"),
        (x(shape=[1, 3], data=[1, 2, 3]), Code.SHAPE_MISMATCH, "/inputs/0/shape"),
        (x(shape=[2]), Code.SHAPE_MISMATCH, "/inputs/0/shape"),
        (x(data=[1]), Code.SHAPE_MISMATCH, "/inputs/0/data"),
        (x(data=[1, 2, 3]), Code.SHAPE_MISMATCH, "/inputs/0/data"),
        (x(data=[]), Code.SHAPE_MISMATCH, "/inputs/0/data"),
        (x(shape=[2, 2], data=[[1, 2], [3]]), Code.SHAPE_MISMATCH, "/inputs/0/data"),
        (x(data=[[[1, 2]]]), Code.SHAPE_MISMATCH, "/inputs/0/data"),
        (x(data=[[1], 2]), Code.WRONG_TYPE, "/inputs/0/data/1"),
        (x(data=[1, [2]]), Code.WRONG_TYPE, "/inputs/0/data/1"),
        (x(datatype="FP64"), Code.DATATYPE_MISMATCH, "/inputs/0/datatype"),
        (x(datatype="fp32"), Code.DATATYPE_MISMATCH, "/inputs/0/datatype"),
        (x(datatype="STRING"), Code.DATATYPE_MISMATCH, "/inputs/0/datatype"),
        (x(data=[1, True]), Code.WRONG_TYPE, "/inputs/0/data/1"),
        (x(data=[1, "2"]), Code.WRONG_TYPE, "/inputs/0/data/1"),
        (x(data=[1, {}]), Code.WRONG_TYPE, "/inputs/0/data/1"),
        (x(data=1), Code.WRONG_TYPE, "/inputs/0/data"),
        (x(data=[1, 1e39]), Code.OUT_OF_RANGE, "/inputs/0/data/1"),
        (x(data=None), Code.MISSING_FIELD, "/inputs/0/data"),
        (x(shape=None), Code.MISSING_FIELD, "/inputs/0/shape"),
        (x(name="y"), Code.UNKNOWN_FIELD, "/inputs/0/y"),
        (x(dtype="FP32"), Code.UNKNOWN_FIELD, "/inputs/0/dtype"),
        (x(parameters={"binary_data_size": 8}), Code.INVALID_INPUT, "/inputs/0/data"),
        (x(parameters={"shared_memory_region": "r"}), Code.UNKNOWN_FIELD, "/inputs/0/parameters/shared_memory_region"),
        (x(parameters={"content_type": "np"}), Code.UNKNOWN_FIELD, "/inputs/0/parameters/content_type"),
        (x(parameters=None, data=[None, 1]), Code.WRONG_TYPE, "/inputs/0/data/0"),
    ],
)  # fmt: skip
def test_an_input_that_does_not_fit_is_refused_by_name(given_: dict[str, Any], code: Code, field: str) -> None:
    failure = refused({"inputs": [given_]})
    assert (failure.code, failure.field) == (code, field)
    assert failure.text.startswith(field)


def test_counts_that_differ_are_both_named() -> None:
    assert "the shape has 2 elements, the data 3" in refused({"inputs": [x(data=[1, 2, 3])]}).text


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", Code.JSON_INVALID), (b"  ", Code.JSON_INVALID), (b"null", Code.WRONG_TYPE), (b"[]", Code.WRONG_TYPE),
        (b'"x"', Code.WRONG_TYPE), (b"1", Code.WRONG_TYPE), ({"inputs": []}, Code.MISSING_FIELD), ({}, Code.MISSING_FIELD),
        ({"inputs": [x(), x()]}, Code.INVALID_INPUT), ({"inputs": [x()], "inptus": 1}, Code.UNKNOWN_FIELD),
        ({"inputs": [x()], "id": 1}, Code.WRONG_TYPE), ({"inputs": [x()], "parameters": {"a": None}}, Code.WRONG_TYPE),
        ({"inputs": [x()], "parameters": {"a": [1]}}, Code.WRONG_TYPE), ({"inputs": [x()], "parameters": {"timeout": -1}}, Code.OUT_OF_RANGE),
        ({"inputs": [x()], "id": "i" * 257}, Code.OUT_OF_RANGE),
        ({"inputs": [x()], "outputs": [{"name": "z"}]}, Code.UNKNOWN_OUTPUT),
        ({"inputs": [x()], "outputs": [{"name": "y"}, {"name": "y"}]}, Code.INVALID_INPUT),
        ({"inputs": [x()], "outputs": [{"name": "y", "parameters": {"clasification": 3}}]}, Code.UNKNOWN_FIELD),
        ({"inputs": [x()], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, Code.WRONG_TYPE),
        (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,NaN]}]}', Code.JSON_INVALID),
        (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,1e400]}]}', Code.JSON_INVALID),
        (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]} x', Code.JSON_INVALID),
        (b'{"inputs":[{"name":"x","name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}', Code.JSON_DUPLICATE_KEY),
        (b'{"inputs":[{"name":"x","n\\u0061me":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}', Code.JSON_DUPLICATE_KEY),
        (b'{"inputs":[],"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}', Code.JSON_DUPLICATE_KEY),
        (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":' + b"[" * 65 + b"]" * 65 + b"}]}", Code.JSON_TOO_DEEP),
        (b'{"inputs":' + b"[" * 5_000_000, Code.JSON_TOO_DEEP), (b"\xef\xbb\xbf{}", Code.JSON_INVALID),
        (b'{"inputs":[{"name":"\\ud800","shape":[1,2],"datatype":"FP32","data":[1,2]}]}', Code.JSON_INVALID),
    ],
)  # fmt: skip
def test_a_body_that_is_no_infer_request_is_refused(body: Any, code: Code) -> None:
    assert refused(body).code == code


def test_a_misspelt_key_is_told_what_was_meant() -> None:
    failure = refused({"inputs": [x()], "outptus": []})
    assert "/outptus is unknown; did you mean 'outputs'?" in failure.text
    assert "did you mean 'datatype'?" in refused({"inputs": [x(datatpye="FP32")]}).text


def test_the_body_may_name_the_model_of_the_path_again_and_no_other() -> None:
    def named(name: str) -> Request:
        text = json.dumps({"model_name": name, "inputs": [x()]}).encode()
        http = HttpRequest(b"POST", "/v2/models/m/infer", "", {}, text, 0.0)
        return decode_infer(http, X, "id-1", Timeline(), pipeline="m")

    assert named("m").columns == infer({"inputs": [x()]}).columns
    with pytest.raises(Refused, match=r'^/model_name: the path names "m"$'):
        named("n")


def test_the_id_and_the_parameters_of_a_request_are_kept() -> None:
    request = infer({"inputs": [x()], "id": "42", "parameters": {"mine": "x", "priority": 2}})
    assert (request.id, request.client_id, request.priority) == ("id-1", "42", 2)


def test_the_query_asks_for_a_receipt_and_nothing_else() -> None:
    assert infer({"inputs": [x()]}, query="receipt=full").receipt
    for query in ("receipt=yes", "recipt=full", "receipt", "a=b&" * 40):
        assert refused({"inputs": [x()]}, query=query).code in (Code.OUT_OF_RANGE, Code.UNKNOWN_FIELD, Code.BAD_REQUEST)


def test_outputs_are_kept_in_the_order_asked_with_their_form() -> None:
    outputs = [{"name": "label"}, {"name": "y", "parameters": {"binary_data": False}}]
    request = infer({"inputs": [x()], "outputs": outputs, "parameters": {"binary_data_output": True}})
    assert (request.outputs, request.binary, request.binary_default) == (("label", "y"), {"y": False}, True)
    assert (
        infer({"inputs": [x()], "id": "", "outputs": []}).outputs,
        infer({"inputs": [x()], "id": ""}).client_id,
    ) == ((), None)


@pytest.mark.parametrize(
    "length", [b"-1", b"99999999999", b"0x10", b"9999", b"1.5", b"", b"1, 1", b"\xb2", b"+5", b" 5"]
)
def test_a_head_length_outside_the_body_is_refused(length: bytes) -> None:
    http = HttpRequest(b"POST", "/", "", {b"inference-header-content-length": length}, b"{}", 0.0)
    with pytest.raises(Refused) as caught:
        decode_infer(http, X, "id", Timeline())
    assert caught.value.code == Code.BAD_REQUEST


@pytest.mark.parametrize(
    ("inputs", "raw", "code"),
    [
        ([binary(4)], bytes(8), Code.BINARY_SIZE_MISMATCH), ([binary(8)], bytes(7), Code.BINARY_SIZE_MISMATCH),
        ([binary(8)], bytes(9), Code.BINARY_SIZE_MISMATCH), ([binary(2**70)], bytes(8), Code.BINARY_SIZE_MISMATCH),
        ([binary(-8)], bytes(8), Code.OUT_OF_RANGE), ([binary("8")], bytes(8), Code.WRONG_TYPE),
        ([binary(8.0)], bytes(8), Code.WRONG_TYPE), ([binary(True)], bytes(8), Code.WRONG_TYPE),
        ([binary(8, shape=[2, 2])], bytes(8), Code.BINARY_SIZE_MISMATCH), ([x()], bytes(8), Code.BINARY_SIZE_MISMATCH),
        ([binary(8), binary(8)], bytes(8), Code.INVALID_INPUT), ([binary(0)], b"", Code.BINARY_SIZE_MISMATCH),
    ],
)  # fmt: skip
def test_binary_sizes_that_do_not_add_up_are_refused(inputs: list[Any], raw: bytes, code: Code) -> None:
    assert refused({"inputs": inputs}, raw=raw).code == code


def test_binary_sizes_without_the_head_length_are_refused() -> None:
    assert refused({"inputs": [binary(8)]}).code == Code.BINARY_SIZE_MISMATCH
    assert refused(json.dumps({"inputs": [binary(8)]}).encode() + bytes(8)).code == Code.JSON_INVALID


@pytest.mark.parametrize(
    "raw",
    [b"\x02\0\0\0a", b"\x01\0\0\0ab", b"\x01\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\0", b"\xfe\xff\xff\xffa", b""],
)
def test_binary_strings_that_do_not_add_up_are_refused(raw: bytes) -> None:
    given_ = x(data=None, shape=[1], datatype="BYTES", parameters={"binary_data_size": len(raw)})
    assert refused({"inputs": [given_]}, tensor("BYTES"), raw).code == Code.BINARY_SIZE_MISMATCH


def test_a_binary_bool_is_0_or_1() -> None:
    given_ = x(data=None, datatype="BOOL", parameters={"binary_data_size": 2})
    assert infer({"inputs": [given_]}, tensor("BOOL", 2), b"\0\1").rows == 1
    assert refused({"inputs": [given_]}, tensor("BOOL", 2), b"\0\2").code == Code.OUT_OF_RANGE


def test_binary_and_json_inputs_go_together_and_rows_must_be_equal() -> None:
    a, b = (Input(name, "tensor", datatype="INT8", shape=(-1,)) for name in "ab")
    given_a = {"name": "a", "shape": [2, 1], "datatype": "INT8", "parameters": {"binary_data_size": 2}}
    given_b = {"name": "b", "shape": [2, 2], "datatype": "INT8", "data": [1, 2, 3, 4]}
    request = infer({"inputs": [given_b, given_a]}, Signature((a, b), ()), b"\x08\x09")
    assert [bytes(column.data) for column in request.columns] == [b"\x08\x09", b"\1\2\3\4"]
    failure = refused({"inputs": [{**given_b, "shape": [1, 4]}, given_a]}, Signature((a, b), ()), b"\x08\x09")
    assert (failure.code, failure.field) == (Code.SHAPE_MISMATCH, "/inputs/1/shape")


@pytest.mark.parametrize(
    ("signature", "body", "shape", "data"),
    [
        (tensor("FP32", -1), bytes(12), (1, 3), bytes(12)),
        (tensor("FP32", 2, 3), bytes(24), (1, 2, 3), bytes(24)),
        (tensor("BYTES"), b"abc", (1,), b"\3\0\0\0abc"),
        (Signature((Input("t", "text"),), ()), b"abc", (1,), b"\3\0\0\0abc"),
    ],
)
def test_a_raw_body_is_one_row_of_the_only_input(
    signature: Signature, body: bytes, shape: tuple[int, ...], data: bytes
) -> None:
    request = infer(b"", signature, body, length=b"0")
    assert (request.columns[0].shape, bytes(request.columns[0].data)) == (shape, data)
    assert (request.rows, request.binary_default) == (1, True)


@pytest.mark.parametrize(
    ("signature", "body", "code"),
    [
        (MANY, b"x", Code.BAD_REQUEST), (tensor("FP32", -1, -1), bytes(8), Code.BAD_REQUEST),
        (tensor("FP32", 2), bytes(7), Code.BINARY_SIZE_MISMATCH), (tensor("FP32", -1), bytes(7), Code.BINARY_SIZE_MISMATCH),
        (Signature((Input("t", "text"),), ()), b"\xff", Code.INVALID_UTF8),
    ],
)  # fmt: skip
def test_a_raw_body_that_does_not_fit_is_refused(signature: Signature, body: bytes, code: Code) -> None:
    assert refused(b"", signature, body, length=b"0").code == code


def test_fp16_may_be_json_but_bf16_must_be_binary() -> None:
    given_ = {"name": "x", "shape": [1, 1], "datatype": "FP16", "data": [0.1]}
    assert infer({"inputs": [given_]}, tensor("FP16", 1)).columns[0].data == struct.pack("<e", 0.1)
    assert refused({"inputs": [{**given_, "data": [1e6]}]}, tensor("FP16", 1)).code == Code.OUT_OF_RANGE
    failure = refused({"inputs": [{**given_, "datatype": "BF16"}]}, tensor("BF16", 1))
    assert (failure.code, "binary" in failure.text) == (Code.DATATYPE_MISMATCH, True)


def test_rounding_is_to_nearest_and_extremes_are_exact() -> None:
    assert infer({"inputs": [x(data=[16777217, 1e-45])]}).columns[0].data == struct.pack("<2f", 16777216, 1e-45)
    assert infer({"inputs": [x(data=[-0.0, 5e-324])]}).columns[0].data == struct.pack("<2f", -0.0, 0)


def test_a_zero_dimension_is_allowed_where_the_signature_leaves_it_open() -> None:
    assert refused({"inputs": [x(shape=[2**31, 0], data=[])]}, tensor("FP32", -1)).code == Code.BATCH_TOO_LARGE
    assert infer({"inputs": [x(shape=[3, 0], data=[])]}, tensor("FP32", -1)).columns[0].shape == (3, 0)


def test_the_rows_of_one_request_are_bounded() -> None:
    assert infer({"inputs": [x(shape=[65_536, 0], data=[])]}, tensor("FP32", -1)).rows == 65_536
    given_ = {"name": "t", "shape": [65_537], "datatype": "BYTES", "data": ["a"] * 65_537}
    failure = refused({"inputs": [given_]}, Signature((Input("t", "text"),), ()))
    assert (failure.code, "65536" in failure.text) == (Code.BATCH_TOO_LARGE, True)


def test_strings_cost_the_same_each() -> None:
    def seconds(count: int) -> float:
        given_ = {"name": "t", "shape": [count], "datatype": "BYTES", "data": ["a: b"] * count}
        text = json.dumps({"inputs": [given_]}).encode()
        started = time.perf_counter()
        infer(text, Signature((Input("t", "text"),), ()))
        return time.perf_counter() - started

    # Quadratic would be 10,000 times; ten times linear is left to the machine.
    assert min(seconds(10_000) for _ in range(3)) < 1000 * min(seconds(100) for _ in range(3))
