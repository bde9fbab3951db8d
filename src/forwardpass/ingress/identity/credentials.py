"""What a request says of who asks: the one credential in its headers, and the subject of a client's certificate."""

from collections.abc import Mapping, Sequence

from forwardpass.core.errors import Code, Refused

HEADERS = (b"x-api-key", b"api-key")
"""Where clients put a key besides Authorization: Anthropic's and most gateways, Azure's."""

_ATTRIBUTES = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C",
    "stateOrProvinceName": "ST", "localityName": "L", "domainComponent": "DC", "userId": "UID",
    "serialNumber": "serialNumber", "emailAddress": "emailAddress",
}  # fmt: skip
_ESCAPED = str.maketrans({character: f"\\{character}" for character in ',+"\\<>;'})


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


def subject_of(certificate: Mapping[str, object] | None) -> str:
    """Whom a verified certificate, as the ssl module gives it, names: "CN=a,O=b" (RFC 4514). Empty without one."""
    parts = certificate.get("subject") if certificate else None
    if not isinstance(parts, Sequence):
        return ""
    return ",".join("+".join(_pair(*pair) for pair in part) for part in reversed(parts))


def _pair(name: str, value: str) -> str:
    return f"{_ATTRIBUTES.get(name, name)}={value.translate(_ESCAPED)}"
