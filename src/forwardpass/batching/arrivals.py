"""Who is woken when something comes: the workers that wait, each for what it may take itself.

What is pinned to one worker must wake that one and must not keep the others busy. So an arrival wakes one waiter that
may take something; a waiter that was woken passes it on to the next, but only to those who have not looked since.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class _Waiter:
    woken: "asyncio.Future[None]"
    worker: int
    looked: int  # how much had come when it last looked


class Arrivals:
    """``anything_for(worker)`` says whether something waits that this worker may take."""

    def __init__(self, anything_for: Callable[[int], bool]) -> None:
        self._anything_for = anything_for
        self._came = 0
        self._waiters: list[_Waiter] = []

    def came(self) -> None:
        """Something is there that was not before."""
        self._came += 1
        self._wake()

    async def wait(self, worker: int, timeout_s: float | None) -> None:
        """Until something comes for this worker or the time is over.

        Called right after looking, with nothing awaited in between: then no arrival is missed.
        """
        waiter = _Waiter(asyncio.get_running_loop().create_future(), worker, self._came)
        self._waiters.append(waiter)
        try:
            if timeout_s is None:
                await waiter.woken
            else:
                await asyncio.wait((waiter.woken,), timeout=timeout_s)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            else:
                self._wake()  # several may have come, or this one will not take it: whoever is next looks too

    def _wake(self) -> None:
        for waiter in self._waiters:
            if waiter.looked < self._came and self._anything_for(waiter.worker):
                self._waiters.remove(waiter)
                waiter.woken.set_result(None)
                return
