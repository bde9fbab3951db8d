"""Where a key may stand in a request, and whom a certificate names."""

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.identity.credentials import credential


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({b"authorization": b"Bearer k"}, b"k"),
        ({b"authorization": b"bearer k"}, b"k"),  # RFC 9110 11.1: the scheme's case does not count
        ({b"authorization": b"BEARER   k  "}, b"k"),
        ({b"x-api-key": b"k"}, b"k"),
        ({b"api-key": b"k"}, b"k"),
        ({b"authorization": b"Bearer k", b"api-key": b"k"}, b"k"),
        ({b"authorization": b"Bearer"}, b""),
        ({b"authorization": b""}, b""),
        ({b"x-api-key": b""}, b""),
        ({b"authorization": b"Basic azo="}, b""),
        ({b"authorization": b"k"}, b""),
        ({b"x-api-key": b"\xff\x00"}, b"\xff\x00"),
    ],
)
def test_a_key_is_read_where_clients_put_it(headers: dict[bytes, bytes], found: bytes | None) -> None:
    assert credential(headers) == found


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer a, Bearer b"},
        {b"authorization": b"Bearer a, Bearer a"},
        {b"authorization": b"Basic azo=, Bearer a"},
        {b"x-api-key": b"a, a"},
        {b"authorization": b"Bearer a", b"x-api-key": b"b"},
        {b"x-api-key": b"a", b"api-key": b"b"},
        {b"authorization": b"Basic azo=", b"x-api-key": b"a"},
        {b"x-api-key": b"", b"api-key": b"b"},
    ],
)
def test_two_credentials_are_refused(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(Refused) as refused:
        credential(headers)
    assert refused.value.code is Code.BAD_REQUEST
