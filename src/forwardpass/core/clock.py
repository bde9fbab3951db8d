"""The only door for time and randomness, so that tests can hold both still."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

monotonic_s: Callable[[], float] = time.perf_counter
"""Seconds on the system's monotonic clock: comparable between our processes on one machine, never set back."""

Clock = Callable[[], float]
"""What a part that needs time is given: call it for monotonic seconds."""

worked_s: Callable[[], float] = time.thread_time
"""Seconds that this thread has computed: how much work something is, whatever else runs on the machine."""

pause: Callable[[float], None] = time.sleep
"""Block this thread for so many seconds; never called in an event loop."""


def wall_s() -> float:
    """Seconds since 1970, for people only; never for durations."""
    return time.time()


def iso8601(wall: float) -> str:
    """Seconds since 1970 as people write them, in UTC, to the millisecond."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def random_id() -> str:
    """128 random bits as 32 hex characters: request ids, receipt ids."""
    return os.urandom(16).hex()


def random_bytes(count: int) -> bytes:
    """Of the system's generator for secrets."""
    return os.urandom(count)


class RandomIds:
    """The same ids for one thread that needs many: one system call for BLOCK of them."""

    BLOCK = 256

    def __init__(self) -> None:
        self._ready: list[str] = []

    def next(self) -> str:
        if not self._ready:
            block = os.urandom(16 * self.BLOCK).hex()
            self._ready = [block[start : start + 32] for start in range(0, len(block), 32)]
        return self._ready.pop()

    def some(self, count: int) -> list[str]:
        if len(self._ready) < count:
            return [self.next() for _ in range(count)]
        taken = self._ready[-count:]
        del self._ready[-count:]
        return taken


def jitter() -> float:
    """A random factor from 0.8 to 1.2, so that those who wait for the same thing do not all come back at once."""
    return random.uniform(0.8, 1.2)


def near_whole(value: float) -> int:
    """The whole number before or after, at random, so that on average it is the value: jitter that survives rounding."""
    return int(value + random.random())


@dataclass(slots=True)
class FakeClock:
    """A clock that moves when told to."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
