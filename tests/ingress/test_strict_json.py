"""FAULTS 3.2: what is no strict JSON is refused with a code, in linear time, and nothing else is."""

import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.strict_json import JsonLimits, decode

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refused(text: bytes, limits: JsonLimits | None = None) -> Code:
    with pytest.raises(Refused) as caught:
        decode(text, limits or JsonLimits())
    assert 0 < len(caught.value.text) <= 512
    return caught.value.code


@given(VALUES, st.booleans())
def test_every_json_value_comes_back_as_it_was(value: object, escaped: bool) -> None:
    assert decode(json.dumps(value, ensure_ascii=escaped).encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        b"", b"  ", b"[1,]", b'{"a":1,}', b"1 2", b"[] []", b"[1] // comment", b"{'a':1}", b"{a:1}", b"[01]", b"[+1]",
        b"[.5]", b"[1.]", b"[1e]", b"[0x1]", b"[NaN]", b"[Infinity]", b"[-Infinity]", b"[1e400]", b"[-1e400]",
        b'["\\ud800"]', b'["\\udc00\\ud800"]', b'["\xed\xa0\x80"]', b'["\xff"]', b"\xef\xbb\xbf[]", b'["\x01"]',
        b'["\\x41"]', b'["\\u00"]', b'["abc', b"[", b"{", b'{"a"', b'{"a":', b"]", b"[1}", b"tru", b"[1]\x00", b"\x0c1",
        "[1]".encode("utf-16"), b'{"a":1 "b":2}', b"[" + b"9" * 5000 + b"]", b'{1:1}',
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(text: bytes) -> None:
    assert refused(text) == Code.JSON_INVALID


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b' {"a" : [ 1 , 2 ] }\r\n', {"a": [1, 2]}),
        (b"18446744073709551616", 2**64),
        (b"[5e-324, -0.0]", [5e-324, -0.0]),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'{"url": "a:b:c", "": {}}', {"url": "a:b:c", "": {}}),
        (b'{"a:": "{[:\\"]", "b": [{"a": 1}, {"a": 2}]}', {"a:": '{[:"]', "b": [{"a": 1}, {"a": 2}]}),
    ],
)
def test_what_looks_odd_but_is_json_is_read(text: bytes, value: object) -> None:
    assert decode(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b'[{"x":{"a":[],"b":1,"a":[]}}]', b'{"a":":","a":"b"}', b'{"":1,"":2}',
        b'{"a":99999999999999999999999,"a":1}',
    ],
)  # fmt: skip
def test_a_repeated_key_is_refused(text: bytes) -> None:
    assert refused(text) == Code.JSON_DUPLICATE_KEY


@given(VALUES)
def test_no_repeated_key_is_ever_overlooked(value: object) -> None:
    inner = json.dumps(value)
    assert refused(f'[{inner}, {{"k": {inner}, "l:": 0, "k": 1}}]'.encode()) == Code.JSON_DUPLICATE_KEY


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_nesting_is_allowed_up_to_the_limit(brackets: tuple[bytes, bytes]) -> None:
    opening, closing = brackets
    most = 64 // sum(map(opening.count, (b"[", b"{")))
    decode(opening * most + b"0" + closing * most)
    assert refused(opening * (most + 1) + b"0" + closing * (most + 1)) == Code.JSON_TOO_DEEP


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[" * 5_000_000, b'{"a":' * 90_000, b"[" * 200_000 + b"]" * 200_000])
def test_absurd_nesting_is_refused_quickly(text: bytes) -> None:
    started = time.perf_counter()
    assert refused(text) == Code.JSON_TOO_DEEP
    assert time.perf_counter() - started < 0.5


def test_brackets_in_strings_and_many_shallow_lists_are_not_deep() -> None:
    assert decode(b'["' + b"[" * 100 + b'"]') == ["[" * 100]
    assert decode(b"[" + b"[1]," * 1000 + b"[1]]") == [[1]] * 1001


@pytest.mark.parametrize("shift", range(-6, 3))
@pytest.mark.parametrize("tail", ["\\", '"', '\\"', '"\\', "\\\\", '\\\\"', "\\\\\\", ""])
def test_a_string_ends_where_it_ends_wherever_that_is(tail: str, shift: int) -> None:
    value = {"a" * (65_536 + shift) + tail: "[" * 100, tail: [tail + "[" * 100, ":" * 20]}
    assert decode(json.dumps(value).encode(), JsonLimits(keys_max=2)) == value


@pytest.mark.parametrize("tail", [b'\\\\"', b'"', b'\\""'])
def test_what_stands_behind_a_long_string_is_counted(tail: bytes) -> None:
    for shift in range(-6, 3):
        string = b'"' + b"a" * (65_536 + shift) + tail
        assert refused(b"[" + string + b"," + b"[" * 64 + b"]" * 65) == Code.JSON_TOO_DEEP
        assert refused(b"{" + string + b":" + string + b',"a":1}', JsonLimits(keys_max=1)) == Code.JSON_TOO_MANY_KEYS


def test_size_and_keys_are_allowed_up_to_the_limit() -> None:
    limits = JsonLimits(text_bytes_max=30, keys_max=2)
    assert decode(b'{"a":":::","b":1}', limits) == {"a": ":::", "b": 1}
    assert refused(b'{"a":1,"b":1,"c":1}', limits) == Code.JSON_TOO_MANY_KEYS
    assert decode(b'"' + b"x" * 28 + b'"', limits) == "x" * 28
    assert refused(b'"' + b"x" * 29 + b'"', limits) == Code.BODY_TOO_LARGE


def test_half_a_million_lists_are_allowed_and_one_more_is_not() -> None:
    assert decode(b"[" + b"[]," * 499_998 + b"[]]") == [[]] * 499_999
    assert refused(b"[" + b"[]," * 499_999 + b"[]]") == Code.JSON_TOO_MANY_KEYS


def test_a_hundred_thousand_and_one_keys_are_too_many() -> None:
    assert refused(json.dumps(dict.fromkeys(map(str, range(100_001)))).encode()) == Code.JSON_TOO_MANY_KEYS


def test_j13_keys_made_to_collide_cost_what_other_keys_do() -> None:
    """``Aa`` and ``BB`` have one sum in every hash that multiplies by 31, and so have all words made of them."""

    def seconds(one: str, other: str) -> float:
        keys = ["".join(word) for word in itertools.product((one, other), repeat=13)]
        text = json.dumps({"a": dict.fromkeys(keys, 0), "b": [{key: 0} for key in keys]}).encode()
        return min(_timed(text) for _ in range(5))

    def _timed(text: bytes) -> float:
        started = time.process_time()
        decode(text)
        return time.process_time() - started

    assert seconds("Aa", "BB") < 5 * max(seconds("Aa", "Cc"), 1e-3)


@pytest.mark.parametrize("unit", [b'"a:b",', b'{"k":"\\":"},', b'"\\"', b"[],"])
def test_time_grows_linearly(unit: bytes) -> None:
    def seconds(count: int) -> float:
        text = b"[" + unit * count
        return min(_timed(text) for _ in range(5))

    def _timed(text: bytes) -> float:
        started = time.process_time()
        with pytest.raises(Refused):
            decode(text)
        return time.process_time() - started

    # Quadratic would be 10,000 times; thirty times linear is left to the machine, whose fresh memory is slow.
    assert seconds(2_000_000) < 3000 * max(seconds(20_000), 1e-4)
