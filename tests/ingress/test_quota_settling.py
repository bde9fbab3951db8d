"""What a request that does not come to its answer has taken of quotas, and of the version that it was for."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.admit.ledger import Ledger, at_once
from tests.ingress.test_inference import inference, variant

from forwardpass.admit.memory import MemoryStore
from forwardpass.admit.quotas import Quotas, Use
from forwardpass.admit.rules import QuotaRule
from forwardpass.admit.store import Taken, Wanted
from forwardpass.core.caller import ANONYMOUS
from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Refused
from forwardpass.core.pipeline import Field, Input, Pipeline, Step, Version
from forwardpass.core.request import Request
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline
from forwardpass.execution.local import LocalWorker
from forwardpass.ingress.dialect import Target
from forwardpass.rollout.variant import Variant
from forwardpass.steps.kind import Kind
from forwardpass.steps.own import Own
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared
from forwardpass.trial import trial


class Waiting(MemoryStore):
    """As one that is far away: who takes waits until ``gate`` is open."""

    def __init__(self) -> None:
        super().__init__(monotonic_s)
        self.gate = asyncio.Event()

    async def take(self, wanted: Sequence[Wanted]) -> Taken:
        await self.gate.wait()
        return await super().take(wanted)


def request(variant: Variant) -> Request:
    now = monotonic_s()
    return Request("r", [], 1, Timeline(now, now))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


STEP = "steps:held"
STARTED, GATE = threading.Event(), threading.Event()


def load(options: Own, known: FieldMap, context: Context) -> Prepared:
    def held(batch: Batch) -> None:
        STARTED.set()
        assert GATE.wait(10)
        batch.columns["y"] = batch.columns["x"]

    return held


@asynccontextmanager
async def served_by_one(folder: Path) -> AsyncIterator[Variant]:
    """A pipeline whose only worker works until ``GATE`` is set."""
    definition = Pipeline((Step(STEP, {"output": "y", "datatype": "FP32"}),), (Input("x", "tensor", datatype="FP32"),))
    version = Version("p", 1, "0" * 64, str(folder), definition, trusted=True)
    kind = Kind(STEP, Own, lambda options, known: [Field("y", "FP32")], load)
    GATE.set()
    async with trial(version, threads=1, deadline_s=10, make_worker=partial(LocalWorker, own={STEP: kind})) as running:
        GATE.clear()
        STARTED.clear()
        try:
            yield running.variant
        finally:
            GATE.set()


def numbers(count: int) -> Request:
    now = monotonic_s()
    return Request("r", [Tensor("FP32", (count,), bytes(4 * count))], count, Timeline(now, now))


def test_who_leaves_pays_for_the_rows_that_are_begun_and_not_for_those_that_wait(tmp_path: Path) -> None:
    ledger = Ledger((QuotaRule(tenant="*", cost_per_day=100.0),))

    async def run() -> None:
        async with served_by_one(tmp_path) as served:
            made = inference(served)

            def ask(rows: int) -> "asyncio.Task[None]":
                admission = ledger.entered(ANONYMOUS)
                asked = made.run(Target("p"), 0, lambda _: numbers(rows), lambda *_: None, ANONYMOUS, admission)
                return asyncio.create_task(asked)

            begun = ask(2)
            assert await asyncio.to_thread(STARTED.wait, 10)
            waits = ask(30)
            await turns()
            assert served.queue.rows == 30
            for asking in (begun, waits):
                asking.cancel()
            await asyncio.wait((begun, waits))

    asyncio.run(run())
    at_once(ledger.entered(ANONYMOUS).charge(Use(cost=98)))
    with pytest.raises(Refused):
        at_once(ledger.entered(ANONYMOUS).charge(Use(cost=0.5)))


@pytest.mark.parametrize("waits_for", ["the door", "the charge"])
def test_a_version_is_entered_before_quotas_are_waited_for_and_left_by_who_gives_up(waits_for: str) -> None:
    async def run() -> None:
        served, store = variant("p", kind="embed"), Waiting()
        rule = (
            QuotaRule(pipeline="*", concurrent=5)
            if waits_for == "the door"
            else QuotaRule(tenant="*", rows_per_minute=5)
        )
        made = inference(served)
        admission = Quotas((rule,), store, lambda pipeline: True).admission(ANONYMOUS, 0)
        asking = asyncio.create_task(made.run(Target("p"), 0, request, lambda *_: None, ANONYMOUS, admission))
        await turns()
        assert served.running == 1
        asking.cancel()
        await asyncio.wait((asking,))
        assert (served.running, dict(made.outside)) == (0, {"cancelled": 1})

    asyncio.run(run())
