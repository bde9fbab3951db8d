"""Rows run again one by one, for a share of the time that a batch may take."""

from pathlib import Path

import numpy as np
import pytest
from tests import fixtures_onnx as models
from tests.execution.test_plan import MODEL, plan_of

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Workers
from forwardpass.execution.apart import reply_apart
from forwardpass.execution.overdue import Overdue
from forwardpass.execution.states import States
from forwardpass.execution.wire import Run

WHOLE = Failed(Code.ENGINE_FAILED, "the batch failed")


@pytest.mark.parametrize(("limit_s", "answered"), [(60.0, 3), (0.0, 0)])
def test_rows_are_tried_while_there_is_time_and_then_fail_as_their_request_did(
    tmp_path: Path, limit_s: float, answered: int
) -> None:
    models.identity(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, MODEL, workers=Workers(batch_limit_s=limit_s))
    plan.independent = True
    staged = States(None).stage(Run(0, [3], [], []))
    reply = reply_apart(plan, staged, {"x": np.ones((3, 4), np.float32)}, WHOLE)
    (part,) = reply.parts
    assert part.rows == answered
    assert [code for _, code, *_ in part.failures] == [Code.ENGINE_FAILED] * (3 - answered)


def test_rows_run_again_only_while_somebody_waits_for_their_request(tmp_path: Path) -> None:
    """The caller is found to have left when the first row has run."""
    models.identity(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, MODEL)
    plan.independent = True
    staged, looks = States(None).stage(Run(0, [3], [], [])), iter([set[int](), set[int](), {0}])

    class Leaving(Overdue):
        def items(self, run: Run, now: float) -> set[int]:
            return next(looks)

    reply = reply_apart(plan, staged, {"x": np.ones((3, 4), np.float32)}, WHOLE, Leaving())
    assert reply.parts[0].failure is not None
    assert (reply.parts[0].rows, reply.parts[0].failure[0]) == (0, Code.DEADLINE_EXCEEDED)
