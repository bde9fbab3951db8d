"""Endpoints of the data plane that the admin plane serves too: the same answers and errors, for clients of V2."""

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from forwardpass.core.clock import monotonic_s, random_id
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX, Match, Route, no_query
from forwardpass.ingress.status import error_answer


def as_call(endpoint: Endpoint, route: Route) -> Callable[[Request], Awaitable[Response]]:
    """What Starlette calls. ``needs`` of a route is for the data plane: whoever reaches this one is the operator."""

    async def respond(request: Request) -> Response:
        id, now_s = random_id(), monotonic_s()
        try:
            if request.url.query:
                raise no_query()
            body = await _body(request)
            if body and route.body == "none":
                raise Refused(Code.BAD_REQUEST, "this path takes no body")
            http = HttpRequest(route.method, request.url.path, request.url.query, {}, body, now_s)
            answer = await endpoint(Call(http, Match(route, request.path_params), id, Timeline(now_s)))
        except Failure as failure:
            answer = error_answer(failure, route.family, id)
        return _response(answer, id)

    return respond


async def _body(request: Request) -> bytes:
    """Raises Refused body_too_large as soon as more has come, Failed cancelled when the client has gone."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > SMALL_BODY_BYTES_MAX:
                raise Refused(Code.BODY_TOO_LARGE, f"at most {SMALL_BODY_BYTES_MAX} bytes are allowed here")
    except ClientDisconnect:
        raise Failed(Code.CANCELLED, "the client went away") from None
    return bytes(body)


def _response(answer: HttpAnswer, id: str) -> Response:
    assert isinstance(answer.body, bytes), "descriptions are short"
    headers = {"X-Request-Id": id, **{name.decode(): value.decode() for name, value in answer.headers}}
    return Response(answer.body, answer.status, headers, answer.content_type.decode())
