"""A watch that fails is told of, and does not leave the server not ready, or refusing, for good."""

import asyncio
import logging
import threading

import pytest

from forwardpass.core.clock import monotonic_s
from forwardpass.observe import vitals
from forwardpass.observe.pressure import Level
from forwardpass.observe.vitals import Vitals

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_without_a_thread_for_the_watchdog_the_server_is_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    watched = Vitals(1.0, monotonic_s)
    with caplog.at_level(logging.ERROR):
        async with watched.watched():
            await asyncio.sleep(1.2)
            assert not watched.watchdog.recovering
    assert [record.getMessage() for record in caplog.records] == ["the event loop is watched no more"]


async def test_when_memory_is_watched_no_more_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> int:
        raise ValueError("a part that cannot shrink")

    monkeypatch.setattr(vitals, "LOOK_S", 0.0)
    watched = Vitals(1e-6, monotonic_s)
    watched.shrinking.append(fails)
    with caplog.at_level(logging.ERROR):
        async with watched.watched():
            await asyncio.sleep(0.2)
    assert [record.getMessage() for record in caplog.records] == ["memory is watched no more"]
    assert (watched.pressure.level, watched.pressure.standing) == (Level.CALM, False)
