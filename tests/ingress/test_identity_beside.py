"""What keeps the door's knowledge fresh goes on whatever happens to it."""

import asyncio

import pytest

from forwardpass.ingress.identity import beside as module
from forwardpass.ingress.identity.beside import beside


def test_work_that_ends_by_a_defect_begins_anew_and_ends_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    begun: list[int] = []

    async def run() -> None:
        second = asyncio.Event()

        async def work() -> None:
            begun.append(len(begun))
            if len(begun) == 1:
                raise RuntimeError("a defect")
            second.set()
            await asyncio.Event().wait()

        async with beside(work):
            await asyncio.wait_for(second.wait(), 5)

    asyncio.run(run())
    assert begun == [0, 1]
