"""What a dialect is to the data plane: pure functions between a client's bytes and a pipeline's Request and Answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

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
    message: Any = None  # what ``target`` read of the body and left for ``decode`` and ``encode``
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


@dataclass(frozen=True, slots=True)
class Dialect:
    """``target``, then ``decode``, then ``encode`` of one request; each may run in a thread and raises Failure.

    ``target`` says who answers: by the path, or by what the body names. ``decode`` makes the request for a version
    with that signature. ``encode`` makes the client's answer of what came out.
    """

    decode: Callable[[Call, Signature], Request]
    encode: Callable[[Answer, Request, Call], HttpAnswer]
    target: Callable[[Call], Target] = by_path


Endpoint = Callable[[Call], Awaitable[HttpAnswer]]
"""Who answers what no pipeline is asked for."""
