"""Every engine here keeps the contract, and the suite that says so finds engines that do not."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests import fixtures_onnx as models

from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.engines.discover import engine_kind, engine_names
from forwardpass.engines.protocol import End, Event, ModelFile, Work
from forwardpass.testing.conformance import engine_conformance
from forwardpass.testing.fake_engine import FakeEngine

SAMPLE = {"x": np.ones((2, 4), np.float32)}
BAD = {"x": np.ones((2, 9), np.float32)}


def test_onnxruntime_conforms(tmp_path: Path) -> None:
    path = models.identity(tmp_path / "m.onnx")
    engine_conformance(engine_kind("onnxruntime").make, ModelFile(str(path)), SAMPLE, BAD)


def test_python_conforms(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def f(batch):\n    return {'y': batch['x'].reshape(-1, 4)[:2]}\n")
    declared = {"datatype": "FP32", "shape": [4]}
    options = {"call": "f", "inputs": {"x": declared}, "outputs": {"y": declared}}
    engine_conformance(engine_kind("python").make, ModelFile(str(tmp_path / "steps.py"), options), SAMPLE, BAD)


def test_the_fake_engine_conforms() -> None:
    def refuse_nine(work: Work) -> Failed | None:
        return Failed(Code.ENGINE_FAILED, "nine") if work.inputs["x"].shape[1] == 9 else None

    engine_conformance(
        lambda: FakeEngine(steps=3, stream=[SAMPLE, SAMPLE], failure=refuse_nine), ModelFile(""), SAMPLE, BAD
    )


class EndsTwice(FakeEngine):
    def step(self) -> list[Event]:
        return [*(events := super().step()), *events]


class IgnoresCancel(FakeEngine):
    def cancel(self, ids: Sequence[int]) -> None: ...


class Forgets(FakeEngine):
    def submit(self, items: Sequence[Work]) -> None:
        super().submit(items[:1])


class MakesThingsUp(FakeEngine):
    def step(self) -> list[Event]:
        return super().step() or [End(0, {})]


class FailsNobody(FakeEngine):
    pass


@pytest.mark.parametrize("broken", [EndsTwice, IgnoresCancel, Forgets, MakesThingsUp, FailsNobody])
def test_an_engine_that_breaks_the_contract_is_found(broken: type[FakeEngine]) -> None:
    with pytest.raises(AssertionError):
        engine_conformance(broken, ModelFile(""), SAMPLE, BAD)


def test_an_unknown_engine_is_answered_with_those_installed() -> None:
    assert {"onnxruntime", "python"} <= set(engine_names())
    with pytest.raises(Misconfigured, match=r"no engine 'onnx'; installed: .*onnxruntime.*python"):
        engine_kind("onnx")
