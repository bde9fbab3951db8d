"""An event loop that does not turn is told of, with what it is at, and readiness says so for a moment."""

import asyncio
import logging
import threading

import pytest

from forwardpass.core.clock import monotonic_s, pause
from forwardpass.observe.watchdog import RECOVERING_S, Watchdog

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Leaping:
    """A clock that the test sets forward."""

    leapt_s = 0.0

    def __call__(self) -> float:
        return monotonic_s() + self.leapt_s


async def watched(dog: Watchdog) -> "asyncio.Task[None]":
    watching = asyncio.create_task(dog.run())
    await asyncio.sleep(0)
    return watching


async def ended(watching: "asyncio.Task[None]") -> None:
    watching.cancel()
    await asyncio.wait((watching,))


def a_step_that_blocks() -> None:
    pause(1.5)


async def test_a_standstill_is_logged_once_with_functions_and_lines(caplog: pytest.LogCaptureFixture) -> None:
    dog = Watchdog(monotonic_s)
    watching = await watched(dog)
    with caplog.at_level(logging.ERROR):
        a_step_that_blocks()
        assert dog.recovering
        await asyncio.sleep(0.2)
    await ended(watching)
    (during,) = [record for record in caplog.records if record.message == "the event loop does not turn"]
    stack = during.event["stack"].split(" < ")  # type: ignore[attr-defined]  # what a log line's extra adds
    assert any("a_step_that_blocks" in place for place in stack)
    assert all(len(place.rsplit(":", 2)) == 3 and place.rsplit(":", 1)[1].isdecimal() for place in stack)
    assert (dog.blocked, 1.4 < dog.blocked_s < 10.0, dog.recovering) == (1, True, True)


async def test_readiness_comes_back_a_moment_after() -> None:
    clock = Leaping()
    dog = Watchdog(clock)
    watching = await watched(dog)
    clock.leapt_s += 5.0  # as for a process that was stopped
    await asyncio.sleep(0.3)
    assert (dog.blocked, round(dog.blocked_s), dog.recovering) == (1, 5, True)
    clock.leapt_s += RECOVERING_S - 0.2  # too short a leap to be a standstill
    await asyncio.sleep(0.3)
    assert (dog.blocked, dog.recovering) == (1, False)
    await ended(watching)


async def test_a_loop_that_turns_is_let_be(caplog: pytest.LogCaptureFixture) -> None:
    dog = Watchdog(monotonic_s)
    watching = await watched(dog)
    await asyncio.sleep(0.3)
    await ended(watching)
    assert (dog.blocked, dog.recovering, caplog.records) == (0, False, [])
    assert "watchdog" not in [thread.name for thread in threading.enumerate()]
