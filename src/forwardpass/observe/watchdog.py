"""Notices that the event loop does not turn: then nobody is answered, whatever the sockets say.

A thread looks at when the loop turned last and logs, once for each standstill, what the loop's thread is at: functions
and lines, no values. Code that holds the interpreter's lock holds up this thread too; what it cost is counted all the
same, by the loop itself, and so is the time for which the whole process was stopped.
"""

import asyncio
import logging
import sys
import threading
from types import FrameType

from forwardpass.core.clock import Clock

BEAT_S = 0.1
BLOCKED_S = 1.0
RECOVERING_S = 1.0
FRAMES_MAX = 24  # of a stack, the innermost first
_log = logging.getLogger("forwardpass.observe")


class Watchdog:
    """``run`` is its life, in the loop that it watches. ``blocked_s`` sums the standstills longer than BLOCKED_S."""

    def __init__(self, clock: Clock) -> None:
        self.blocked = 0
        self.blocked_s = 0.0
        self._clock = clock
        self._turned_s = clock()
        self._over_s = float("-inf")
        self._ending = threading.Event()

    @property
    def recovering(self) -> bool:
        """Whether the loop stands still, or did until a moment ago."""
        now = self._clock()
        return now - self._turned_s > BLOCKED_S or now - self._over_s < RECOVERING_S

    def let_go(self) -> None:
        """Nobody looks any more: a loop that is not watched does not stand still."""
        self._turned_s, self._over_s = float("inf"), float("-inf")

    async def run(self) -> None:
        """Until cancelled."""
        watching = threading.Thread(target=self._watch, args=(threading.get_ident(),), name="watchdog", daemon=True)
        self._ending.clear()
        self._turned_s = self._clock()
        watching.start()
        try:
            while True:
                await asyncio.sleep(BEAT_S)
                self._turn()
        finally:
            self._ending.set()
            watching.join()

    def _turn(self) -> None:
        now = self._clock()
        stood_s = now - self._turned_s
        self._turned_s = now
        if stood_s > BLOCKED_S:
            self.blocked += 1
            self.blocked_s += stood_s
            self._over_s = now
            _log.error("the event loop turns again", extra={"event": {"blocked_s": round(stood_s, 3)}})

    def _watch(self, loop_thread: int) -> None:
        told_s = 0.0  # the turn after which the standstill came that was logged last
        while not self._ending.wait(BEAT_S):
            turned_s = self._turned_s
            if self._clock() - turned_s > BLOCKED_S and turned_s != told_s:
                told_s = turned_s
                stack = " < ".join(stack_of(sys._current_frames().get(loop_thread)))
                event = {"blocked_s": BLOCKED_S, "stack": stack}
                _log.error("the event loop does not turn", extra={"event": event})


def stack_of(frame: FrameType | None) -> list[str]:
    """Where a thread is: module, function and line of its innermost frames."""
    places: list[str] = []
    while frame is not None and len(places) < FRAMES_MAX:
        module = frame.f_globals.get("__name__", "")
        places.append(f"{module}:{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return places
