"""What a request says of who asks: the one credential in its headers."""

from collections.abc import Mapping

from forwardpass.core.errors import Code, Refused

HEADERS = (b"x-api-key", b"api-key")
"""Where clients put a key besides Authorization: Anthropic's and most gateways, Azure's."""


def credential(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key or token that is sent; b"" is one that cannot be right, None is none.

    Raises Refused bad_request for two that differ: who asks must not depend on who reads.
    """
    found = [headers[name].strip() for name in HEADERS if name in headers]
    authorization = headers.get(b"authorization")
    if authorization is not None:
        scheme, _, value = authorization.strip().partition(b" ")
        found.append(value.strip() if scheme.lower() == b"bearer" else b"")
        if b", " in authorization:  # two of them, joined
            raise _two()
    if len(set(found)) > 1 or any(b", " in one for one in found):
        raise _two()
    return found[0] if found else None


def _two() -> Refused:
    text = "two credentials were sent; send one: Authorization: Bearer KEY, X-API-Key or api-key"
    return Refused(Code.BAD_REQUEST, text, field="Authorization")
