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

    def _sweep(self) -> None:
        now = self._clock()
        for ticket in [ticket for ticket in self._watched if ticket.deadline <= now]:
            self._watched.discard(ticket)
            ticket.finish(Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the answer was ready"))
        self._timer = asyncio.get_running_loop().call_later(RESOLUTION_S, self._sweep) if self._watched else None
