"""One client that sends many requests at once: others have their turn between them, and what waits is bounded."""

import asyncio

from tests.faults.http_invariants import Transport
from tests.ingress.http_wire import GET, LIMITS

from forwardpass.core.clock import FakeClock
from forwardpass.ingress.http import HELD_BYTES_MAX
from forwardpass.ingress.http_server import HttpServer
from forwardpass.ingress.message import HttpAnswer, HttpRequest, Respond

PIECE = GET * 2000


def serve(respond: Respond) -> HttpServer:
    return HttpServer(respond, lambda method, path: "v2", LIMITS, FakeClock())


def test_the_loop_turns_between_two_requests_of_one_connection() -> None:
    turns: list[int] = []
    turned = 0

    def turn() -> None:
        nonlocal turned
        turned += 1

    async def respond(request: HttpRequest) -> HttpAnswer:
        turns.append(turned)
        asyncio.get_running_loop().call_soon(turn)
        return HttpAnswer(200)

    async def run() -> None:
        connection = serve(respond).connection()
        connection.connection_made(Transport())
        connection.data_received(GET * 10)
        await asyncio.sleep(0.01)
        connection.connection_lost(None)

    asyncio.run(run())
    assert turns == list(range(10))


def test_what_a_client_sends_ahead_is_not_read_on_while_it_waits() -> None:
    answered = fed = most = 0

    async def respond(request: HttpRequest) -> HttpAnswer:
        nonlocal answered
        answered += 1
        await asyncio.sleep(0)
        return HttpAnswer(200)

    async def run() -> None:
        nonlocal fed, most
        connection, transport = serve(respond).connection(), Transport()
        connection.connection_made(transport)
        for _ in range(20_000):
            if transport.reading:
                connection.data_received(PIECE)
                fed += len(PIECE)
            await asyncio.sleep(0)
            most = max(most, fed - answered * len(GET))
        connection.connection_lost(None)

    asyncio.run(run())
    assert answered > 5000
    assert most <= HELD_BYTES_MAX + 2 * len(PIECE)
