"""Header blocks of HTTP/2: the examples of RFC 7541, and bounds on what a client can make us unpack."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.ingress.grpc.hpack import BadBlock, Decoder, literal

PLENTY = 16 * 1024
PLAIN = (  # Appendix C.3: three requests of one connection
    ("828684410f7777772e6578616d706c652e636f6d", ":method GET :scheme http :path / :authority www.example.com"),
    ("828684be58086e6f2d6361636865",
     ":method GET :scheme http :path / :authority www.example.com cache-control no-cache"),
    ("828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
     ":method GET :scheme https :path /index.html :authority www.example.com custom-key custom-value"),
)  # fmt: skip
HUFFMAN = (  # Appendix C.4: the same with packed texts
    ("828684418cf1e3c2e5f23a6ba0ab90f4ff", PLAIN[0][1]),
    ("828684be5886a8eb10649cbf", PLAIN[1][1]),
    ("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", PLAIN[2][1]),
)


def pairs(text: str) -> list[tuple[bytes, bytes]]:
    words = text.encode().split()
    return list(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize("blocks", [PLAIN, HUFFMAN], ids=["plain", "packed"])
def test_the_examples_of_the_rfc_are_decoded(blocks: tuple[tuple[str, str], ...]) -> None:
    decoder = Decoder()
    for block, expected in (*blocks, blocks[0]):
        assert decoder.decode(bytes.fromhex(block), PLENTY) == pairs(expected)


def test_the_oldest_entries_leave_a_full_table() -> None:
    decoder = Decoder()
    decoder.decode(b"\x3f\xe1\x01" + b"\x40\x01a\x01b", PLENTY)  # the table shrinks to 256
    decoder.decode(b"\x40\x01c" + b"\x7f\x63" + b"d" * 226, PLENTY)  # 259 with what every entry counts: too large
    with pytest.raises(BadBlock):
        decoder.decode(b"\xbe", PLENTY)


BAD = {
    "an index of nothing": b"\x80",
    "an entry that is not there": b"\xbe",
    "a text that is cut off": b"\x40\x05ab",
    "an integer without end": b"\xff" * 10,
    "a table larger than allowed": b"\x3f\xe2\x1f",
    "a table size after a field": b"\x82\x20",
    "a packed text with a whole byte of padding": b"\x00\x82\xff\xff\x01a",
    "a packed text that ends in zeros": b"\x00\x81\x00\x01a",
    "a packed end mark": b"\x00\x84\xff\xff\xff\xff\x01a",
}


@pytest.mark.parametrize("block", BAD.values(), ids=BAD)
def test_what_cannot_be_decoded_is_said_so(block: bytes) -> None:
    with pytest.raises(BadBlock):
        Decoder().decode(block, PLENTY)


def test_fields_beyond_the_limit_are_not_handed_out_and_the_table_stays_right() -> None:
    decoder = Decoder()
    assert decoder.decode(b"\x40\x01a\x0a" + b"b" * 10 + b"\xbe" * 100, 400) is None
    assert decoder.decode(b"\xbe", 400) == [(b"a", b"b" * 10)]


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), max_size=8))
def test_what_we_write_is_read_as_it_was(fields: list[tuple[bytes, bytes]]) -> None:
    block = b"".join(literal(name, value) for name, value in fields)
    assert Decoder().decode(block, 10**6) == fields


@given(st.binary(max_size=64))
def test_no_block_does_more_than_be_refused(block: bytes) -> None:
    with suppress(BadBlock):
        Decoder().decode(block, PLENTY)
