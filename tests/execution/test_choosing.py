"""Which engine a step with ``engine = "auto"`` gets: what is near enough and clearly quicker, the same at every load."""

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx as models

from forwardpass.core.pipeline import Batch, Pipeline, Step, Version
from forwardpass.execution.choosing import tried
from forwardpass.execution.plan import Plan, build
from forwardpass.steps.protocol import Batch as Rows

pytest.importorskip("openvino", reason="pip install 'forwardpass[openvino]'")


def plan_of(
    folder: Path, *, threads: int = 1, settings: Any = None, tolerance: Any = None, batch: Batch | None = None
) -> Plan:
    step = Step("model", {"engine": "auto", "file": "m.onnx", "tolerance": tolerance or {"absolute": 0.01}})
    version = Version("p", 1, "0" * 64, str(folder), Pipeline((step,), batch=batch or Batch()))
    return build(version, threads=threads, settings=settings)


def even_s() -> float:
    """A clock by which everything takes as long."""
    return next(TICKS) * 0.01


TICKS = count()


def answer(plan: Plan, rows: Any) -> Any:
    batch = Rows({"x": rows}, len(rows), list(range(len(rows))))
    plan.preprocess(batch)
    plan.execute(batch)
    plan.postprocess(batch)
    return batch.columns["y"]


def test_what_is_not_quicker_than_the_reference_is_not_taken(tmp_path: Path) -> None:
    models.network(tmp_path / "m.onnx")
    plan = plan_of(tmp_path)
    tried(plan, 32, clock=even_s)
    assert (plan.settings[0]["engine"], plan.settings[0]["threads"]) == ("onnxruntime", 1)
    assert plan.settings[0]["auto"][0] == "chosen: onnxruntime, 1 thread"
    assert plan.settings[0]["auto"][1].startswith(
        "openvino fp32, 1 thread: 1.00 times as quick as onnxruntime, 1 thread"
    )


def test_of_two_that_are_as_quick_the_one_with_fewer_threads_is_taken(tmp_path: Path) -> None:
    models.network(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, threads=2)
    tried(plan, 32, clock=even_s)
    assert plan.settings[0]["threads"] == 1


def test_what_answers_too_differently_is_not_taken_however_quick(tmp_path: Path) -> None:
    models.network(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, tolerance={"absolute": 0.0})
    tried(plan, 32, clock=even_s)
    assert plan.settings[0]["engine"] == "onnxruntime"
    assert any("which the tolerance does not allow" in line for line in plan.settings[0]["auto"])


def test_a_model_that_only_the_reference_takes_stays_with_it(tmp_path: Path) -> None:
    models.text_identity(tmp_path / "m.onnx")
    plan = plan_of(tmp_path)
    tried(plan, 32, clock=even_s)
    assert plan.settings[0]["engine"] == "onnxruntime"
    assert "has the type string" in "\n".join(plan.settings[0]["auto"])


@pytest.mark.parametrize(
    "known",
    [
        {"engine": "openvino", "threads": 1, "precision": "fp32", "auto": ["chosen: openvino fp32, 1 thread"]},
        {"engine": "onnxruntime", "threads": 1, "optimization": "basic", "spinning": False, "auto": ["chosen: it"]},
    ],
)
def test_a_choice_that_was_made_is_not_made_again(tmp_path: Path, known: dict[str, Any]) -> None:
    models.network(tmp_path / "m.onnx")
    rows = np.random.default_rng(1).normal(size=(5, 30)).astype(np.float32)
    plan = plan_of(tmp_path, threads=2, settings=[known])
    assert plan.settings == [known]
    np.testing.assert_allclose(answer(plan, rows), answer(plan_of(tmp_path), rows), atol=1e-6)


def test_what_reads_other_shapes_from_the_file_is_not_taken(tmp_path: Path) -> None:
    """Openvino follows the shape through Abs, onnxruntime does not: loaded by it, the version would be another."""
    nodes = [models.node("Shape", "x", "s"), models.node("Abs", "s", "t"), models.node("Reshape", "x t", "y")]
    models.write(tmp_path / "m.onnx", nodes, [("x", models.FLOAT, ("N", 4))], [("y", models.FLOAT, ("A", "B"))], {})
    plan = plan_of(tmp_path)
    tried(plan, 32, clock=even_s)
    assert plan.settings[0]["engine"] == "onnxruntime"
    assert "openvino fp32, 1 thread: reads other inputs or outputs from the model file" in plan.settings[0]["auto"]


def test_where_a_worker_ended_by_trying_the_reference_stays(tmp_path: Path) -> None:
    models.network(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, threads=2)
    tried(plan, 32, careful=True)
    assert (plan.settings[0]["engine"], plan.settings[0]["threads"]) == ("onnxruntime", 2)
    assert plan.settings[0]["auto"][1:] == ["others are not tried: a worker ended when they were"]


def test_what_would_take_too_long_is_not_tried(tmp_path: Path) -> None:
    """A clock by which the reference takes 2 s for what is asked: nine times as long is more than 10 s."""
    models.network(tmp_path / "m.onnx")
    plan, ticks = plan_of(tmp_path), count()
    tried(plan, 32, clock=lambda: next(ticks) * 2.0)
    assert plan.settings[0]["auto"] == [
        "chosen: onnxruntime, 1 thread",
        "others were not tried: that would have taken more than 10 s",
    ]


def test_the_rows_that_were_tried_are_those_of_the_chosen_engine(tmp_path: Path) -> None:
    models.network(tmp_path / "m.onnx")
    plan = plan_of(tmp_path, threads=2, batch=Batch(tolerance=1e-4))
    alone, tested = tried(plan, 32, clock=even_s)
    assert tested.independent
    (item, expected), *_ = alone.rows
    np.testing.assert_array_equal(answer(plan, item["x"]), expected["y"])
