"""What every inference request and answer carries outside its body, the same in each dialect."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl

from forwardpass.batching.shares import rank_of
from forwardpass.core.caller import PRIORITIES
from forwardpass.core.clock import random_id
from forwardpass.core.errors import Code, Failed, Refused, show
from forwardpass.core.pipeline import Version
from forwardpass.core.request import Answer, Request, Trace, Turn
from forwardpass.ingress.dialects.caching import apply_cache_control
from forwardpass.ingress.message import HttpRequest
from forwardpass.pipeline.bounds import At, refuse, unknown_field

DEADLINE_S_MAX = 300.0
DEADLINE_MS_MAX = round(DEADLINE_S_MAX * 1000)
PRIORITY_MAX = 9
_CLIENT_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")
_TRACE_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
LIMITING = frozenset(
    (
        b"x-request-deadline-ms", b"x-envoy-expected-rq-timeout-ms", b"x-request-priority", b"x-priority",
        b"cache-control",
    )
)  # fmt: skip
"""The headers that ``apply_headers`` reads."""
NAMES_MAX = 16
"""Query parameters that are looked at; more are refused."""


def raise_first(answer: Answer, at: At | None = None) -> None:
    """Raises the failure of the first row that failed, if any has: where ``at`` says, else by its number of several."""
    if not answer.failures:
        return
    row = min(answer.failures)
    failure = answer.failures[row]
    if at is None and answer.rows == 1:
        raise failure
    kind = Refused if isinstance(failure, Refused) else Failed
    raise kind(
        failure.code,
        f"{f'row {row}' if at is None else at(row)}: {failure.text}",
        field=failure.field if at is None else at(row),
        detail=failure.detail,
        retry_after_s=failure.retry_after_s,
    )


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


def guard_header(answer: Answer) -> list[tuple[bytes, bytes]]:
    """X-Guardrails: on how many values guards did what, as ``block=1, mask=2``; nothing where none fired.

    ``failed`` counts those of which a judge gave no verdict.
    """
    notes = [note.value for note in answer.notes if note.name == "guard"]
    counts = Counter("failed" if value.get("judge") == "failed" else str(value.get("mode")) for value in notes)
    if not counts:
        return []
    return [(b"X-Guardrails", ", ".join(f"{mode}={count}" for mode, count in sorted(counts.items())).encode())]


def apply_headers(request: Request, http: HttpRequest) -> None:
    """Deadline, priority and Cache-Control where headers give them, for every dialect. Of two deadlines the earlier one holds.

    Raises Refused for a value that is out of bounds; a proxy's own timeout is never refused.
    """
    if (control := http.headers.get(b"cache-control")) is not None:
        apply_cache_control(request, control)
    deadlines_s = [deadline_of_header(http), _proxy_deadline_s(http.headers), request.deadline_s]
    request.deadline_s = min([given for given in deadlines_s if given is not None], default=None)
    number, named = _header(http, b"x-request-priority", PRIORITY_MAX), _class_priority(http.headers)
    if number is not None and named is not None:
        text = "X-Priority names a class and X-Request-Priority a number: only one of them can be sent"
        raise Refused(Code.BAD_REQUEST, text, field="X-Priority")
    asked, field = (number, "X-Request-Priority") if named is None else (named, "X-Priority")
    if not asked:
        return
    inside = request.priority
    if inside and (asked != inside if named is None else rank_of(asked) != rank_of(inside)):
        text = f"{field} and {request.priority_field} ({inside}) contradict each other: only one of them is needed"
        raise Refused(Code.BAD_REQUEST, text, field=field)
    request.priority, request.priority_field = inside or asked, field


def _class_priority(headers: Mapping[bytes, bytes]) -> int | None:
    name = headers.get(b"x-priority")
    if name is None:
        return None
    for known, priority in PRIORITIES.items():
        if name == known.encode():
            return priority
    text = f"X-Priority must be one of {', '.join(PRIORITIES)}, got {show(name.decode('latin-1'))}"
    raise Refused(Code.OUT_OF_RANGE, text, field="X-Priority")


def deadline_of_header(http: HttpRequest) -> float | None:
    """Seconds that X-Request-Deadline-Ms gives. Raises Refused out_of_range."""
    deadline_ms = _header(http, b"x-request-deadline-ms", DEADLINE_MS_MAX)
    return None if deadline_ms is None else deadline_ms / 1000


def trace_of(headers: Mapping[bytes, bytes]) -> Trace | None:
    """The trace that a caller's traceparent names, with a span of our own; None where it names none (W3C Trace Context).

    Nothing is refused: what is malformed counts as absent.
    """
    given = headers.get(b"traceparent")
    if given is None:
        return None
    found = _TRACE_PARENT.fullmatch(given)
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None
    trace, parent, flags = found[2].decode(), found[3].decode(), found[4].decode()
    if not int(trace, 16) or not int(parent, 16):
        return None
    return Trace(trace, parent, random_id()[:16], flags, headers.get(b"tracestate", b"").decode("latin-1"))


def trace_header(trace: Trace) -> tuple[bytes, bytes]:
    """What an answer says of the trace it belongs to."""
    return (b"traceparent", f"00-{trace.id}-{trace.span}-{trace.flags}".encode())


def client_id_header(headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The client's own id of its request, given back; none where it gave none that can be."""
    given = headers.get(b"x-request-id")
    return [(b"X-Client-Request-Id", given)] if given is not None and _CLIENT_ID.fullmatch(given) else []


def _proxy_deadline_s(headers: Mapping[bytes, bytes]) -> float | None:
    """What an Envoy proxy in front gives the request; 0 is no limit."""
    value = headers.get(b"x-envoy-expected-rq-timeout-ms", b"")
    timeout_ms = int(value) if value.isdigit() and len(value) <= 10 else 0
    return timeout_ms / 1000 if timeout_ms else None


def _header(http: HttpRequest, name: bytes, most: int) -> int | None:
    value = http.headers.get(name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 10 or not 1 <= int(value) <= most:
        shown = name.decode().title()
        raise Refused(Code.OUT_OF_RANGE, f"{shown} must be an integer from 1 to {most}", field=shown)
    return int(value)


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
