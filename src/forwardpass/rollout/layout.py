"""How many workers a version gets: as many as it says, or where it says 0, as many as its first load found best."""

import asyncio
import logging
from dataclasses import replace

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Version
from forwardpass.execution.first_load import FirstLoad
from forwardpass.execution.process import WorkerProcess
from forwardpass.execution.wire import Loaded
from forwardpass.rollout.variant import MakeWorker

_log = logging.getLogger("forwardpass.rollout")


async def laid_out(version: Version, *, threads: int, clock: Clock, make_worker: MakeWorker) -> Version:
    """The version with that number. Where it is not known yet, one worker is started to find it out, and ended.

    Raises Misconfigured when it cannot be loaded.
    """
    if version.definition.workers.count:
        return version
    first = FirstLoad(version, threads)
    known = await first.known(0)
    if known is None:
        worker = make_worker(version, 0, threads=threads, clock=clock)
        if not isinstance(worker, WorkerProcess):  # in this process: more would share its one interpreter
            return _with_workers(version, 1)
        worker.first = first
        known = await _first_load(worker)
    event = {"pipeline": version.pipeline, "version": version.number, "workers": known.workers, "why": known.layout}
    _log.info("workers were counted", extra={"event": event})
    return _with_workers(version, known.workers)


def _with_workers(version: Version, count: int) -> Version:
    definition = version.definition
    return replace(version, definition=replace(definition, workers=replace(definition.workers, count=count)))


async def _first_load(worker: WorkerProcess) -> Loaded:
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(worker.run())
        found: Loaded | Misconfigured
        try:
            found = await worker.first_load()
        except Misconfigured as refusal:
            found = refusal
        finally:
            life.cancel()
    if isinstance(found, Misconfigured):
        raise found
    return found
