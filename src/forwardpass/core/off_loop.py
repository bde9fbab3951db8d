"""Work that would hold up everybody else is not done on the event loop; what waits for nothing needs no task."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

OFF_LOOP_BYTES_MIN = 256 * 1024  # parsing or printing more than this would hold up everybody else
Result = TypeVar("Result")


async def off_loop(size: int, work: Callable[..., Result], *arguments: object) -> Result:
    """The work done here when it is about few bytes, else in a thread."""
    if size < OFF_LOOP_BYTES_MIN:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def at_once(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of one that has nothing to wait for; that it waits all the same is a defect of ours."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise AssertionError("it waits for something")
