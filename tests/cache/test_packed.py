"""Answers that servers share as bytes: they come back as they were, and what is damaged comes back as nothing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.cache.kept import Kept
from forwardpass.cache.packed import packed, unpacked
from forwardpass.core.request import Note
from forwardpass.core.tensor import Tensor, pack_bytes

KEY = b"k" * 32
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
    found = unpacked(KEY, packed(KEY, ANSWER, 100.0), 1000.0)
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
    ],
)
def test_an_output_that_is_not_whole_is_no_answer(tensor: Tensor) -> None:
    assert unpacked(KEY, packed(KEY, Kept(2, [tensor], [], 0, 0.0), 0.0), 0.0) is None


def test_a_note_of_a_row_that_is_not_there_is_no_answer() -> None:
    assert unpacked(KEY, packed(KEY, Kept(1, [], [Note(1, "x", {})], 0, 0.0), 0.0), 0.0) is None


def test_an_answer_of_the_future_was_made_now() -> None:
    early = packed(KEY, Kept(1, [], [], 0, 500.0), 0.0)  # by a server whose clock is 500 s ahead
    found = unpacked(KEY, early, 10.0)
    assert found is not None and found.made_s == 10.0


def test_a_flipped_bit_or_another_key_is_no_answer() -> None:
    whole = packed(KEY, ANSWER, 100.0)
    assert unpacked(b"l" * 32, whole, 100.0) is None
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        assert unpacked(KEY, bytes(damaged), 100.0) is None


@given(st.binary() | st.integers(0, 200).map(lambda cut: packed(KEY, ANSWER, 100.0)[:cut]))
def test_nothing_that_can_stand_there_raises(data: bytes) -> None:
    found = unpacked(KEY, data, 0.0)
    assert found is None or isinstance(found, Kept)
    assert msgspec.msgpack.encode(data)
