"""Work that goes on beside the server: what the door knows is kept fresh, whatever happens to one look at it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

AGAIN_S = 1.0
_log = logging.getLogger("forwardpass.ingress")


@asynccontextmanager
async def beside(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """It goes on within the block; a defect that ends it is logged, and it begins anew: revoked keys must not stay good."""

    async def again() -> None:
        while True:
            try:
                await work()
            except Exception:
                _log.exception("what the door knows could not be kept fresh; it is tried again")
            await asyncio.sleep(AGAIN_S)

    going = asyncio.create_task(again())
    try:
        yield
    finally:
        going.cancel()
        await asyncio.wait((going,))
