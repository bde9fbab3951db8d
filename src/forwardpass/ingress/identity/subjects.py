"""Names of certificates as RFC 4514 writes them, in one form only: whoever is compared by it must not have two."""

import logging
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

_log = logging.getLogger("forwardpass.identity")
_NAMES = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C",
    "stateOrProvinceName": "ST", "localityName": "L", "streetAddress": "STREET", "domainComponent": "DC",
    "userId": "UID",
}  # fmt: skip
"""OpenSSL's name of an attribute -> RFC 4514's; one without stays as OpenSSL has it."""

_KNOWN = {each.lower(): short for long, short in _NAMES.items() for each in (long, short)}
_KNOWN |= {each.lower(): each for each in ("serialNumber", "emailAddress", "givenName", "surname", "title")}
_TYPE = re.compile(r" *([A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)+) *= *")
_VALUE = re.compile(r'(?:\\[0-9A-Fa-f]{2}|\\[ "#+,;<=>\\]|[^"+,;<>\\\x00])*')
_ESCAPE = re.compile(r"((?:\\[0-9A-Fa-f]{2})+)|\\(.)")
_SPECIAL = str.maketrans({character: f"\\{character}" for character in '"+,;<>\\'} | {"\0": "\\00"})


def subject_of(certificate: Mapping[str, object] | None) -> str:
    """Whom a verified certificate, as the ssl module gives it, names: "CN=a,O=b".

    Empty without one, and for one without a subject, as SPIFFE's are: its other names are not read, which is logged.
    """
    parts = certificate.get("subject") if certificate else None
    if certificate and not parts:
        _tell_of_none(str(certificate.get("serialNumber")))
    if not isinstance(parts, Sequence):
        return ""
    return ",".join("+".join(_pair(*pair) for pair in part) for part in reversed(parts))


def normal_subject(text: str) -> str:
    """The same name as ``subject_of`` writes it: spaces beside separators go, types get their one name.

    Raises ValueError for what is no name in RFC 4514's form; values in hexadecimal (``#04...``) are not taken.
    """
    written, at = [], 0
    while True:
        kind = _TYPE.match(text, at)
        if kind is None:
            raise ValueError("expected TYPE=VALUE")
        value = _VALUE.match(text, kind.end())
        assert value is not None, "it matches nothing too"
        at = value.end()
        plain = _plain(value[0])
        if not plain or value[0].startswith("#"):
            raise ValueError("expected a value")
        written.append(_pair(_KNOWN.get(kind[1].lower(), kind[1]), plain))
        if at == len(text):
            return "".join(written)
        if text[at] not in ",+":
            raise ValueError('of " ; < > and \\ each needs a \\ before it')
        written.append(text[at])
        at += 1


@lru_cache(1024)
def _tell_of_none(serial_number: str) -> None:
    """Once for each certificate."""
    event = {"serial_number": serial_number}
    _log.warning(
        "a client's certificate has no subject, so it names nobody; other names are not read", extra={"event": event}
    )


def _plain(written: str) -> str:
    """A value without its escapes. Raises ValueError for bytes that are no UTF-8."""
    bare = re.sub(r"(?<!\\) +\Z", "", written)  # spaces at the end that are not escaped mean nothing
    return _ESCAPE.sub(lambda each: bytes.fromhex(each[1].replace("\\", "")).decode() if each[1] else each[2], bare)


def _pair(name: str, value: str) -> str:
    escaped = value.translate(_SPECIAL)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if value.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return f"{_NAMES.get(name, name)}={escaped}"
