"""Loads and unloads belong to the server, not to whoever asked for them: once begun they go on to their end."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from forwardpass.core.errors import Failure

_log = logging.getLogger("forwardpass.rollout")
Result = TypeVar("Result")


class Acts:
    """Holds what was begun until it has ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self, act: Coroutine[Any, Any, Result]) -> Result:
        """What it returns or raises. Whoever stops waiting does not stop it; how it failed is then for the log."""
        task = asyncio.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    async def ended(self) -> None:
        """Until nothing runs any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)


def _log_failure(task: "asyncio.Task[Any]") -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, Failure):
        event = {"code": error.code.value, "detail": error.detail or error.text}
        _log.warning("what nobody waited for any more failed", extra={"event": event})
    elif error is not None:
        _log.error("what nobody waited for any more ended by a defect", exc_info=error)
