"""What every inference request and answer carries outside its body, the same in each dialect."""

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import parse_qsl

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Version
from forwardpass.core.request import Turn
from forwardpass.pipeline.bounds import refuse, unknown_field

DEADLINE_S_MAX = 300.0
NAMES_MAX = 16
"""Query parameters that are looked at; more are refused."""


def answer_headers(request_id: str, version: Version, sequence: Turn | None = None) -> list[tuple[bytes, bytes]]:
    """Who answered, and in which sequence: on every inference answer."""
    headers = [
        (b"X-Request-Id", request_id.encode()),
        *_version_headers(version.pipeline, version.number, version.digest),
    ]
    if sequence is not None:
        headers.append((b"X-Sequence-Id", sequence.id.encode()))
    return headers


@lru_cache(1024)
def _version_headers(pipeline: str, number: int, digest: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"X-Pipeline", pipeline.encode()),
        (b"X-Pipeline-Version", b"%d" % number),
        (b"X-Pipeline-Digest", digest.encode()),
    )


def receipt_asked(query: str) -> bool:
    """Whether ``?receipt=full`` is given. Raises Refused for any other query parameter or value."""
    if not query:
        return False
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=NAMES_MAX, errors="strict")
    except ValueError:
        raise Refused(Code.BAD_REQUEST, f"the query is not a list of at most {NAMES_MAX} name=value pairs") from None
    for name, value in pairs:
        if name != "receipt":
            raise unknown_field(name, ("receipt",), "?")
        check_receipt(value, "?receipt")
    return True


def check_receipt(value: object, where: str) -> None:
    if value != "full":
        raise refuse(Code.OUT_OF_RANGE, where, "the only value allowed is 'full'")


def media_type(content_type: str) -> tuple[str, dict[str, str]]:
    """A Content-Type's type and parameters, names in lower case. No refusal here: what reads them checks them."""
    essence, *rest = content_type.split(";")
    return essence.strip().lower(), dict(_parameters(rest))


def _parameters(parts: Iterable[str]) -> Iterable[tuple[str, str]]:
    for part in parts:
        name, _, value = part.partition("=")
        yield name.strip().lower(), value.strip().strip('"')
