"""Ends requests whose time is over: one timer for all of them, because one for each costs more than the rest of its wait."""

import asyncio

from forwardpass.batching.ticket import Ticket
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed

RESOLUTION_S = 0.01


class Deadlines:
    """A watched ticket ends at its deadline, at most RESOLUTION_S late, unless it is forgotten before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: set[Ticket] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, ticket: Ticket) -> None:
        self._watched.add(ticket)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RESOLUTION_S, self._sweep)

    def forget(self, ticket: Ticket) -> None:
        self._watched.discard(ticket)

    async def ended(self, ticket: Ticket) -> None:
        """Until all its parts are in. Raises the Failure that ended it."""
        self.watch(ticket)
        try:
            await ticket.ended
        finally:
            self._watched.discard(ticket)
        self.settle(ticket)

    def settle(self, ticket: Ticket) -> None:
        """It has ended. Raises the Failure that ended it; what is in too late is no answer either."""
        self._watched.discard(ticket)
        if ticket.failure is not None:
            raise ticket.failure
        if ticket.deadline <= self._clock():  # this process stood still: whatever came meanwhile is looked at first
            raise _passed()

    def _sweep(self) -> None:
        now = self._clock()
        self._timer = None
        for ticket in [ticket for ticket in self._watched if ticket.deadline <= now]:
            self._watched.discard(ticket)
            ticket.finish(_passed())
        if self._watched and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RESOLUTION_S, self._sweep)


def _passed() -> Failed:
    return Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the answer was ready")
