"""What holds for every request of the admin plane: who may ask, that every answer has an id and every error is a problem.

The listener is for the operator on this machine. A web page that somebody has open there must not be able to use it,
neither by its own origin nor by a host name that was rebound to this machine.
"""

import logging
from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forwardpass.core.clock import random_id
from forwardpass.core.errors import Code, Failure, Refused, show
from forwardpass.ingress.cors import OWN_HOSTS, Origins, host_name
from forwardpass.ingress.status import error_answer

log = logging.getLogger("forwardpass.ingress")


class Border:
    """An ASGI application around another one, which finds the request's id in ``request.state.id``."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "nothing else is listened for"
        id = random_id()
        scope.setdefault("state", {})["id"] = id

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                if b"x-request-id" not in names:
                    message["headers"] = [*message["headers"], (b"x-request-id", id.encode())]
            await send(message)

        try:
            check(scope["headers"])
            await self._application(scope, receive, named)
        except Failure as failure:
            await problem(failure, id)(scope, receive, named)
        except Exception:  # a border: a defect of ours costs this request only; Starlette raises it after its answer
            log.exception("request failed by a defect", extra={"event": {"request": id, "path": show(scope["path"])}})


def check(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises Refused for a host that is not this machine, and for a page of another origin."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1:
        raise Refused(Code.BAD_REQUEST, "exactly one Host header is needed", field="Host")
    if host_name(hosts[0]) not in OWN_HOSTS:
        shown = show(hosts[0].decode("latin-1"))
        raise Refused(Code.MISDIRECTED, f"Host {shown} is not served here; 127.0.0.1, localhost and [::1] are")
    Origins().check(dict(headers))


def problem(failure: Failure, id: str) -> Response:
    """A failure as application/problem+json (RFC 9457)."""
    answer = error_answer(failure, "problem", id)
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    assert isinstance(answer.body, bytes)
    return Response(answer.body, answer.status, headers, answer.content_type.decode())
