"""Answers that servers share as bytes: they come back as they were, and what is damaged comes back as nothing."""

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.cache.kept import Kept
from forwardpass.cache.packed import SUM_BYTES, packed, unpacked
from forwardpass.core.clock import wall_s
from forwardpass.core.request import Note
from forwardpass.core.tensor import Tensor, pack_bytes

KEY = b"k" * 32
AT_S = 1_700_000_000.0
ANSWER = Kept(
    2,
    [
        Tensor("FP32", (2, 1), bytes(8)),
        Tensor("BYTES", (2,), pack_bytes([b"a", None])),
        Tensor("INT8", (2, -1), b"abc", [(1,), (2,)]),
    ],
    [Note(1, "truncated", {"tokens": 300})],
    12,
    95.0,
)


def test_an_answer_comes_back_as_it_was_with_its_age() -> None:
    found = unpacked(KEY, packed(KEY, ANSWER, wall_s() - 5.0), 1000.0)
    assert found is not None
    assert found.made_s == pytest.approx(995.0, abs=0.5)
    found.made_s = ANSWER.made_s
    assert found == ANSWER


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("FP32", (2, 1), bytes(7)),
        Tensor("FP32", (1, 1), bytes(4)),
        Tensor("FP32", (2, -1), b""),
        Tensor("BYTES", (2,), b"\xff"),
        Tensor("NONE", (2,), b""),
        Tensor("INT8", (2, -1), b"abc", [(3,)]),
        Tensor("INT8", (2, -1), b"abc", [(1,), (2, 1)]),
    ],
)
def test_an_output_that_is_not_whole_is_no_answer(tensor: Tensor) -> None:
    assert unpacked(KEY, packed(KEY, Kept(2, [tensor], [], 0, 0.0), AT_S), 0.0) is None


def test_a_note_of_a_row_that_is_not_there_is_no_answer() -> None:
    assert unpacked(KEY, packed(KEY, Kept(1, [], [Note(1, "x", {})], 0, 0.0), AT_S), 0.0) is None


def nested(depth: int) -> list[object]:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize("value", [b"bytes", {1: "a number for a name"}, nested(20), [{"a": b""}]])
def test_a_note_that_no_answer_could_tell_is_no_answer(value: object) -> None:
    assert unpacked(KEY, packed(KEY, Kept(1, [], [Note(0, "x", {"a": value})], 0, 0.0), AT_S), 0.0) is None


def test_what_is_nested_without_end_is_no_answer() -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    note = b"\x83\xa3row\x00\xa4name\xa1x\xa5value\x81\xa1a" + deep
    value = b"\x95\xcb" + bytes(8) + b"\x01\x90\x91" + note + b"\x00"
    assert unpacked(KEY, sha256(KEY + value).digest()[:SUM_BYTES] + value, 0.0) is None


def test_an_answer_of_the_future_was_made_now() -> None:
    early = packed(KEY, Kept(1, [], [], 0, 0.0), wall_s() + 500.0)  # by a server whose clock is 500 s ahead
    found = unpacked(KEY, early, 10.0)
    assert found is not None and found.made_s == 10.0


def test_a_flipped_bit_or_another_key_is_no_answer() -> None:
    whole = packed(KEY, ANSWER, AT_S)
    assert unpacked(b"l" * 32, whole, 100.0) is None
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        assert unpacked(KEY, bytes(damaged), 100.0) is None


@given(st.binary() | st.integers(0, 200).map(lambda cut: packed(KEY, ANSWER, AT_S)[:cut]))
def test_nothing_that_can_stand_there_raises(data: bytes) -> None:
    found = unpacked(KEY, data, 0.0)
    assert found is None or isinstance(found, Kept)
    assert msgspec.msgpack.encode(data)
