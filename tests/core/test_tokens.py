"""Token ids as an element of a text column: told from every text, refused where no vocabulary has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.core.errors import Code, Refused
from forwardpass.core.tokens import ID_MAX, TokenIds, holds_token_ids, pack_token_ids, unpack_token_ids


def test_ids_are_little_endian_behind_a_byte_that_no_text_has() -> None:
    assert pack_token_ids([1, 258, ID_MAX], "/input").hex() == "ff" + "01000000" + "02010000" + "ffffff7f"
    assert pack_token_ids([], "/input").hex() == "ff"


@given(st.lists(st.integers(0, ID_MAX)))
def test_what_is_packed_is_unpacked(ids: list[int]) -> None:
    assert unpack_token_ids(pack_token_ids(ids, "/input")) == TokenIds(tuple(ids))


@given(st.text())
def test_no_text_is_taken_for_ids(text: str) -> None:
    assert not holds_token_ids(text.encode())


@pytest.mark.parametrize("wrong", [-1, ID_MAX + 1, 10**30, -(10**30)])
def test_an_id_that_no_vocabulary_has_is_refused_at_its_place(wrong: int) -> None:
    with pytest.raises(Refused) as refused:
        pack_token_ids([5, wrong, 6], "/input/0")
    assert (refused.value.code, refused.value.field) == (Code.OUT_OF_RANGE, "/input/0/1")
    assert refused.value.text == f"/input/0/1: a token id is an integer from 0 to 2147483647, got {wrong}"


@pytest.mark.parametrize("element", [b"", b"text", b"\xff\1\0\0", b"\xff\1\0\0\0\0"])
def test_other_bytes_are_no_ids(element: bytes) -> None:
    with pytest.raises(ValueError, match="no token ids"):
        unpack_token_ids(element)
