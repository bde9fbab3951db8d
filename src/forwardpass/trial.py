"""A version run for one purpose without a server: ``check``, ``init``, a local ``predict``. The same path as a request's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.pipeline import Version
from forwardpass.execution.process import WorkerProcess
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts
from forwardpass.pipeline.golden import verify
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.fleet import Fleet
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import MakeWorker, Variant

LEAVE_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A loaded, warmed and verified version and the handle that answers with it."""

    handle: Handle
    variant: Variant


@asynccontextmanager
async def trial(
    version: Version,
    *,
    threads: int,
    deadline_s: float,
    clock: Clock = monotonic_s,
    make_worker: MakeWorker = WorkerProcess,
) -> AsyncIterator[Trial]:
    """Raises Misconfigured when the version cannot be loaded or its golden examples do not hold.

    ``deadline_s`` is that of each request, golden examples included.
    """
    routes = Routes()
    handle = Handle(routes, deadline_s, clock, receipts=Receipts(), metrics=Metrics())

    async def verified(variant: Variant) -> None:
        await verify(handle, variant, clock)

    async with Fleet(routes, verified, threads=threads, clock=clock, make_worker=make_worker) as fleet:
        variant = await fleet.load(version)
        yield Trial(handle, variant)
        await fleet.close(LEAVE_LIMIT_S)
