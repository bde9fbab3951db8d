"""What a dialect is to the data plane: pure functions between a client's bytes and a pipeline's Request and Answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.pipeline import Signature, TaskKind
from forwardpass.core.request import Answer, Request, Trace
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import Match


class Call(msgspec.Struct):
    """One HTTP request on its way through a dialect."""

    http: HttpRequest
    match: Match
    id: str
    timeline: Timeline
    trace: Trace | None = None
    caller: Caller = ANONYMOUS
    message: Any = None  # what ``target`` read of the body and left for ``decode`` and ``encode``
    asked: Any = None  # what was found out of its head, where that is kept: a client that repeats it
    repeatable: bool = True  # the answer would be the same again: no row of it failed by our fault


class Target(NamedTuple):
    """Who is to answer. An empty pipeline is the one for requests that name none; no number is the current version.

    ``tasks`` are those that it must have one of, the best first; where a pipeline is named it is looked at by ``decode``.
    """

    pipeline: str
    number: int | None = None
    tasks: tuple[TaskKind, ...] = ()


def by_path(call: Call) -> Target:
    """The pipeline and version that the path names. Raises Refused version_not_found."""
    return Target(call.match.pipeline, call.match.number)


_ALONE = (b"image/", b"audio/", b"application/octet-stream", b"multipart/form-data", b"text/plain")
_ROW_FACTOR = 16  # measured: 16 KiB of small rows take 3 to 20 ms, as long as 256 KiB of a V2 text


def work_of_tensors(http: HttpRequest) -> int:
    """How much there is to read, in bytes of tensors."""
    return len(http.body)


def work_of_rows(http: HttpRequest) -> int:
    """The same of a body that may be many small rows; a value that stands alone in it is hardly more than copied."""
    alone = http.headers.get(b"content-type", b"").lower().startswith(_ALONE)
    return len(http.body) * (1 if alone else _ROW_FACTOR)


@dataclass(frozen=True, slots=True)
class Dialect:
    """``target``, then ``decode``, then ``encode`` of one request; each may run in a thread and raises Failure.

    ``target`` says who answers: by the path, or by what the body names. ``decode`` makes the request for a version
    with that signature. ``encode`` makes the client's answer of what came out. ``work`` decides where the first two run.
    """

    decode: Callable[[Call, Signature], Request]
    encode: Callable[[Answer, Request, Call], HttpAnswer]
    target: Callable[[Call], Target] = by_path
    work: Callable[[HttpRequest], int] = work_of_rows


Endpoint = Callable[[Call], Awaitable[HttpAnswer]]
"""Who answers what no pipeline is asked for."""
