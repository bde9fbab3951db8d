"""Large messages over gRPC: who sends one is looked at first, its pace is kept to the end, and one without room costs no other."""

import asyncio

from tests.faults.h2_wire import DATA, END_HEADERS, HEADERS, frame, head, message
from tests.grpc_calls import channel, infer_request
from tests.ingress.test_grpc_call import Slowly, raw, said, served
from tests.ingress.test_grpc_connection import in_a_loop
from tests.ingress.test_http_screen import Doorkeeper

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.grpc.splitter import Splitter
from forwardpass.ingress.message import HttpLimits

MIB = 1024**2
LIMITS = HttpLimits(body_bytes_max=2 * MIB, bytes_in_flight_max=8 * MIB)
BEGUN = frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 0, 1, message(bytes(2 * MIB))[:100_000])


@in_a_loop
async def test_one_message_of_a_stream_without_room_is_refused_and_the_others_are_answered() -> None:
    inference = Slowly(each_s=0.0)
    inference.open.set()
    asked = [infer_request("p", "x", "FP32", [1, size], bytes(4 * size)) for size in (9, 300_000, 9)]
    async with served(inference, LIMITS) as (server, port):
        server.in_flight.hold(6 * MIB)
        with channel(port) as client:
            answers = await asyncio.to_thread(lambda: list(client.stream(asked)))
        assert [bool(answer.error_message) for answer in answers] == [False, True, False]
        assert server.in_flight.held == 6 * MIB


@in_a_loop
async def test_a_large_message_of_one_whom_nobody_knows_does_not_come_in() -> None:
    edge = Edge(identity=Doorkeeper())
    async with served(Slowly(each_s=0.0), LIMITS, edge) as (server, port), raw(port) as client:
        client.say(BEGUN)
        assert b"unauthenticated" in (await said(client))[1]
        assert server.in_flight.held == 0


@in_a_loop
async def test_what_came_fast_at_first_buys_a_message_no_time() -> None:
    limits = HttpLimits(body_grace_s=0.1, body_rate_min=1000)
    async with served(Slowly(each_s=0.0), limits) as (_, port), raw(port) as client:
        client.say(BEGUN)
        assert b"body_too_slow" in (await said(client))[1]


def test_of_a_message_that_is_refused_nothing_is_kept_however_it_is_cut() -> None:
    for cut in range(6, 14):
        splitter, wire = Splitter(9), message(b"123456789") + message(b"ab")
        splitter.feed(wire[:cut])
        assert splitter.refuse(Refused(Code.BAD_REQUEST, "no")) == cut - 5
        assert (splitter.kept_bytes, splitter.announced_bytes) == (5, 0)
        first, second = splitter.feed(wire[cut:])
        assert first.refusal is not None and (first.body, second.body, second.refusal) == (b"", b"ab", None)
