"""When a request's time is over, also when nobody could look at the clock in time."""

import asyncio

import pytest

from forwardpass.batching.deadlines import Deadlines
from forwardpass.batching.ticket import Part, Ticket
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failure


def ended(taken_s: float) -> Code | None:
    """How a request with a second to go ends whose answer is there after so long."""

    async def run() -> Code | None:
        clock = FakeClock()
        deadlines, ticket = Deadlines(clock), Ticket(1, clock() + 1.0)
        waiting = asyncio.create_task(deadlines.ended(ticket))
        await asyncio.sleep(0)
        clock.advance(taken_s)  # before the timer had its turn, as for a process that stood still
        ticket.deliver(0, Part(1, [], {}, ()))
        try:
            await waiting
        except Failure as failure:
            return failure.code
        return None

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("taken_s", "code"), [(0.0, None), (0.999, None), (1.0, Code.DEADLINE_EXCEEDED), (5.0, Code.DEADLINE_EXCEEDED)]
)
def test_an_answer_after_the_deadline_is_none(taken_s: float, code: Code | None) -> None:
    assert ended(taken_s) is code
