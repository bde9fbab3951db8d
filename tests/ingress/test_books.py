"""How a request ended is written down as its client was told (FAULTS O11); the worker is a thread of this process."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.admit.ledger import Ledger, at_once

from forwardpass.admit.quotas import Use
from forwardpass.admit.rules import QuotaRule
from forwardpass.core.caller import ANONYMOUS
from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import Field, Input, Pipeline, Step, Version
from forwardpass.core.request import Answer, Request
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline
from forwardpass.execution.local import LocalWorker
from forwardpass.ingress.dialect import Target
from forwardpass.ingress.inference import Inference
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant
from forwardpass.steps.kind import Kind
from forwardpass.steps.own import Own
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared
from forwardpass.trial import trial

STEP = "steps:copy"
Encode = Callable[[Answer, Request], object]


def copied(batch: Batch) -> None:
    """Row 13 fails."""
    for row in np.flatnonzero(batch.columns["x"] == 13):
        batch.fail(int(row), Refused(Code.IMAGE_INVALID, "13"))
    batch.columns["y"] = batch.columns["x"]


def load(options: Own, known: FieldMap, context: Context) -> Prepared:
    return copied


class Asked:
    """What became of one request, and what the books say of it."""

    def __init__(self, variant: Variant) -> None:
        self.routes, self.receipts, self.metrics = Routes(), Receipts(), Metrics()
        self.routes.add(variant)
        self.routes.refresh("p")
        self.answered, self.executed = variant.answered, variant.batcher.executed
        self.error: BaseException | None = None
        self.ledger = Ledger((QuotaRule(tenant="*", cost_per_day=100.0),))

    async def ask(self, values: Sequence[float], encode: Encode, judging: tuple[str, ...]) -> None:
        now, data = monotonic_s(), np.array(values, "<f4").tobytes()
        columns = [Tensor("FP32", (len(values),), data)]
        request = Request("r", columns, len(values), Timeline(now, now), receipt=True, judging=judging)
        handle = Handle(self.routes, 10.0, monotonic_s, receipts=self.receipts, metrics=self.metrics)
        try:
            admission = self.ledger.entered(ANONYMOUS)
            inference = Inference(handle, monotonic_s)
            await inference.run(Target("p"), 0, lambda variant: request, encode, ANONYMOUS, admission)
        except (Failure, RuntimeError, asyncio.CancelledError) as error:
            self.error = error

    @property
    def ended(self) -> tuple[int, int, int]:
        """Successes, failures and rows answered."""
        return self.answered.success.count, self.answered.fail.count, self.answered.rows

    @property
    def cost(self) -> float:
        """What the receipt says; as much was taken of the caller's budget: the rest of it fits, and no more."""
        record = self.receipts.find("r")
        assert record is not None
        at_once(self.ledger.entered(ANONYMOUS).charge(Use(cost=100 - record.cost)))
        with pytest.raises(Refused):
            at_once(self.ledger.entered(ANONYMOUS).charge(Use(cost=0.001)))
        return record.cost

    @property
    def outcome(self) -> str:
        record = self.receipts.find("r")
        assert record is not None and self.metrics.outcomes("p", 1) == {record.outcome: 1}
        return record.outcome


def asked(
    folder: Path,
    values: Sequence[float],
    encode: Encode = lambda answer, request: None,
    judging: tuple[str, ...] = (),
) -> Asked:
    kind = Kind(STEP, Own, lambda options, known: [Field("y", "FP32")], load)
    step = Step(STEP, {"output": "y", "datatype": "FP32"})
    definition = Pipeline((step,), (Input("x", "tensor", datatype="FP32"),))
    version = Version("p", 1, "0" * 64, str(folder), definition, trusted=True)

    async def run() -> Asked:
        make = partial(LocalWorker, own={STEP: kind})
        async with trial(version, threads=1, deadline_s=10, make_worker=make) as running:
            made = Asked(running.variant)
            await made.ask(values, encode, judging)
            return made

    return asyncio.run(run())


def test_an_answer_that_was_told_is_a_success(tmp_path: Path) -> None:
    made = asked(tmp_path, [1, 2])
    assert (made.error, made.outcome, made.ended, made.executed.executions) == (None, "ok", (1, 0, 2), 1)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Refused(Code.DATATYPE_MISMATCH, "JSON has no FP16"), "datatype_mismatch"),
        (Failed(Code.OUTPUT_TOO_LARGE, "no"), "output_too_large"),
        (RuntimeError("a defect"), "internal"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_an_answer_that_could_not_be_told_is_a_failure(tmp_path: Path, error: BaseException, outcome: str) -> None:
    def encode(answer: Answer, request: Request) -> None:
        raise error

    made = asked(tmp_path, [1, 2], encode)
    assert (made.error, made.outcome, made.ended) == (error, outcome, (0, 1, 0))


@pytest.mark.parametrize(
    ("error", "cost"),
    [
        (None, 2.0),
        (Refused(Code.DATATYPE_MISMATCH, "JSON has no FP16"), 2.0),  # it was worked out
        (Failed(Code.OUTPUT_TOO_LARGE, "no"), 0.0),
        (RuntimeError("a defect"), 0.0),
        (asyncio.CancelledError(), 2.0),
    ],
)
def test_what_a_receipt_says_is_what_was_taken(tmp_path: Path, error: BaseException | None, cost: float) -> None:
    def encode(answer: Answer, request: Request) -> None:
        if error is not None:
            raise error

    assert asked(tmp_path, [1, 2], encode).cost == cost


def test_what_a_judge_is_asked_costs_nothing(tmp_path: Path) -> None:
    made = asked(tmp_path, [1, 2], judging=("judged",))
    assert made.receipts.find("r") is None
    at_once(made.ledger.entered(ANONYMOUS).charge(Use(cost=100)))


def test_a_request_of_which_every_row_failed_ended_with_the_first_ones_failure(tmp_path: Path) -> None:
    made = asked(tmp_path, [13, 13])
    assert (made.outcome, made.ended) == ("image_invalid", (0, 1, 0))
    assert made.executed.executions == 0


def test_a_request_of_which_a_row_failed_ended_well_but_is_no_success(tmp_path: Path) -> None:
    made = asked(tmp_path, [1, 13, 2])
    assert (made.outcome, made.ended) == ("ok", (0, 1, 2))
    assert made.executed.executions == 1


def test_the_receipt_in_an_answer_says_how_the_rows_ended(tmp_path: Path) -> None:
    told: list[object] = []
    for values in ([1.0], [13.0]):
        asked(tmp_path, values, lambda answer, request: told.append((answer.receipt or {})["outcome"]))
    assert told == ["ok", "image_invalid"]
