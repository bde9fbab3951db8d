import asyncio

import pytest
from tests.batching.making import FAR

from forwardpass.batching.deadlines import Deadlines
from forwardpass.batching.ticket import Part, Ticket
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.timeline import BatchReport

REPORT = BatchReport(1, 0.0, 1, 1, "worker_free", 0, 0.0, 0)


def result(rows: int) -> Part:
    return Part(rows, [], {}, [], None, REPORT)


def test_parts_come_back_in_order_whatever_order_they_came_in() -> None:
    async def run() -> list[int]:
        ticket = Ticket(3, FAR)
        for part in (2, 0, 1):
            ticket.deliver(part, result(part + 10))
        await ticket.ended
        return [part.rows for part in ticket.parts()]

    assert asyncio.run(run()) == [10, 11, 12]


def test_only_the_first_end_of_a_request_counts() -> None:
    async def run() -> None:
        ticket = Ticket(1, FAR)
        assert ticket.finish(Failed(Code.INTERNAL, "first"))
        assert not ticket.finish(Failed(Code.CANCELLED, "second"))
        ticket.deliver(0, result(1))
        with pytest.raises(Failure) as ended:
            await ticket.ended
        assert ended.value.code is Code.INTERNAL

    asyncio.run(run())


def test_a_part_delivered_twice_is_a_defect_that_is_found() -> None:
    async def run() -> None:
        ticket = Ticket(2, FAR)
        ticket.deliver(0, result(1))
        with pytest.raises(AssertionError):
            ticket.deliver(0, result(1))
        ticket.deliver(1, result(1))

    asyncio.run(run())


def test_the_deadline_ends_the_wait() -> None:
    async def run() -> Code:
        clock = FakeClock()
        deadlines, soon, later = Deadlines(clock), Ticket(1, clock() + 1.0), Ticket(1, clock() + 9.0)
        for ticket in (soon, later):
            deadlines.watch(ticket)
        clock.advance(1.5)
        with pytest.raises(Failure) as ended:
            await soon.ended
        assert not later.done
        deadlines.forget(later)
        return ended.value.code

    assert asyncio.run(run()) is Code.DEADLINE_EXCEEDED
