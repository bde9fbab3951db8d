"""Long lists of numbers: read quickly they are what they are read slowly, and refused they are refused alike."""

import json
import re
import struct
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ingress.test_v2_decode import STRUCT_CODES, elements, infer, tensor

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Input, Signature
from forwardpass.ingress.dialects.number_lists import LONG_BYTES_MIN, read

NUMBERS = sorted(STRUCT_CODES.keys() - {"BOOL"})
ROOT = Path(__file__).parents[2]
SPACES = " " * LONG_BYTES_MIN
MANY = LONG_BYTES_MIN // 2  # at least: "0,"
X = Signature((Input("x", "tensor", datatype="FP32", shape=(2,)), Input("y", "number", missing=True)), ())
RIGHT = '{"id": "a", "inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2.5], [-3e-1, 4]]}]}'
PIECES = (
    '"data"', '"data": [', '"data": [1, 2, 3, 4]', '"d\\u0061ta": []', '"\\"data": [1]', '"id": "data", ', '"parameters": {"data": [1]}, ',
    '{"name": "y", "shape": [2], "datatype": "FP64", "data": [1, null]}, ', '{"name": "y", "shape": [2], "datatype": "FP64", "data": []}, ',
    "[", "]", "{", "}", ",", ":", '"', "\\", "1", "-", ".", "e9", "e400", "01", "true", "null", "[]", " ", "\f", "é", "// ",
)  # fmt: skip


def lengthened(text: str) -> str:
    """The same text, so long that its lists of numbers are read quickly."""
    return text.replace('"data": [', f'"data": [{SPACES}') + SPACES


def listed(values: list[Any], shape: list[int], comma: str) -> str:
    """The values as nested lists, written with this between any two."""
    texts = list(map(json.dumps, values))
    for size in reversed(shape):
        texts = [f"[{comma.join(texts[at : at + size])}]" for at in range(0, len(texts), size)]
    (text,) = texts
    return text


@given(st.data(), st.sampled_from(NUMBERS), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.booleans())
def test_every_element_is_the_one_that_was_sent(data: Any, datatype: str, shape: list[int], nested: bool) -> None:
    count = prod(shape)
    values = data.draw(st.lists(elements(datatype), min_size=count, max_size=count))
    text = listed(values, shape if nested else [count], data.draw(st.sampled_from([",", ", ", "\n ,\t"])))
    packed = read(memoryview(text.encode()), datatype, shape, data.draw(st.integers(1, 40)))
    assert packed is not None
    assert bytes(packed) == struct.pack(f"<{count}{STRUCT_CODES[datatype]}", *values)


@given(st.data(), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 40))
def test_whatever_is_read_is_json_of_that_shape(data: Any, shape: list[int], piece_bytes: int) -> None:
    text = listed(list(range(prod(shape))), shape, ",")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(len(text), at + 2)))
        text = (
            text[:at]
            + data.draw(st.sampled_from(["", "[", "]", "[]", "],[", ",", "1", " ", "-", "e", "_", "Y", "{}", '""']))
            + text[until:]
        )
    packed = read(memoryview(text.encode()), "FP64", shape, piece_bytes)
    if packed is not None:
        value = json.loads(text)
        assert _shape(value) in (shape, [prod(shape)])
        assert list(struct.unpack(f"<{len(packed) // 8}d", packed)) == _flat(value)


@given(st.data())
def test_a_long_text_means_what_the_short_one_does(data: Any) -> None:
    text = RIGHT
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(len(text), at + 8)))
        text = text[:at] + data.draw(st.sampled_from(["", *PIECES])) + text[until:]
    assert outcome(text) == outcome(lengthened(text))


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("before", ['"id"', '"inputs"', '{"name"', '"data"', "[1", "]]", "]}]"])
def test_a_piece_too_many_is_refused_in_a_long_text_as_in_a_short_one(piece: str, before: str) -> None:
    text = RIGHT.replace(before, piece + before)
    assert outcome(text) == outcome(lengthened(text))


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("FP32", 1e39), ("FP16", 65520), ("FP32", -3.5e38), ("INT8", 128), ("UINT8", -1), ("UINT8", 256), ("INT32", 2**31),
        ("UINT32", 2**32), ("INT64", 2**63), ("UINT64", 2**64), ("UINT64", -1),
    ],
)  # fmt: skip
def test_one_of_many_that_does_not_fit_is_named(datatype: str, value: float) -> None:
    body = {"inputs": [{"name": "x", "shape": [1, MANY], "datatype": datatype, "data": [0] * (MANY - 1) + [value]}]}
    with pytest.raises(Refused) as caught:
        infer(body, tensor(datatype, MANY))
    assert (caught.value.code, caught.value.field) == (Code.OUT_OF_RANGE, f"/inputs/0/data/{MANY - 1}")


@pytest.mark.parametrize("value", [True, False, "1", None, [1], {}, {"a": 1}])
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "UINT64"])
def test_one_of_many_that_is_no_number_is_named(datatype: str, value: object) -> None:
    body = {"inputs": [{"name": "x", "shape": [1, MANY], "datatype": datatype, "data": [0] * (MANY - 2) + [value, 0]}]}
    with pytest.raises(Refused) as caught:
        infer(body, tensor(datatype, MANY))
    assert (caught.value.code, caught.value.field) == (Code.WRONG_TYPE, f"/inputs/0/data/{MANY - 2}")


@pytest.mark.parametrize("value", [2**53 + 1, 2**63 - 1, -(2**63) + 1])
def test_integers_beyond_a_double_are_exact(value: int) -> None:
    body = {"inputs": [{"name": "x", "shape": [1, MANY], "datatype": "INT64", "data": [value] * MANY}]}
    assert bytes(infer(body, tensor("INT64", MANY)).columns[0].data) == struct.pack("<q", value) * MANY


def test_a_double_is_rounded_once() -> None:
    values = [0.1, 16777217, 1e-46, 2**-150 * (1 + 2**-52), 3.4028235677973362e38, 5e-324] * MANY
    body = {"inputs": [{"name": "x", "shape": [1, 6 * MANY], "datatype": "FP32", "data": values}]}
    assert bytes(infer(body, tensor("FP32", 6 * MANY)).columns[0].data) == struct.pack(f"<{6 * MANY}f", *values)


def test_all_is_read_alike_where_there_is_no_simdjson() -> None:
    script = (
        "import sys; sys.modules['simdjson'] = None\n"
        "from tests.ingress.test_v2_number_lists import lengthened, outcome, RIGHT\n"
        "print(repr(outcome(lengthened(RIGHT))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == repr(outcome(lengthened(RIGHT)))


def test_nested_values_of_a_model_without_rows_are_nested_as_the_client_says() -> None:
    signature = Signature((Input("x", "tensor", datatype="FP32", shape=(2, 2)),), (), batched=False)
    body = {"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, 4]]}]}
    (column,) = infer(body, signature).columns
    assert (column.shape, bytes(column.data)) == ((1, 2, 2), struct.pack("<4f", 1, 2, 3, 4))


def outcome(text: str) -> object:
    """The columns a body makes, or what it is refused with."""
    try:
        request = infer(text.encode(), X)
    except Refused as refused:
        return refused.code, refused.field, re.sub(r" \(byte \d+\)", "", refused.text)
    return [(column.datatype, column.shape, bytes(column.data)) for column in request.columns], request.client_id


def _shape(value: Any) -> list[int]:
    """Of equally long lists, whatever the first one is; anything else has none."""
    if not isinstance(value, list):
        return []
    (inner,) = {tuple(_shape(item)) for item in value}
    return [len(value), *inner]


def _flat(value: Any) -> list[float]:
    return [number for item in value for number in _flat(item)] if isinstance(value, list) else [value]
