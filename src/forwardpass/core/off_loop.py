"""Work that would hold up everybody else is not done on the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

OFF_LOOP_BYTES_MIN = 256 * 1024  # parsing or printing more than this would hold up everybody else
Result = TypeVar("Result")


async def off_loop(size: int, work: Callable[..., Result], *arguments: object) -> Result:
    """The work done here when it is about few bytes, else in a thread."""
    if size < OFF_LOOP_BYTES_MIN:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)
