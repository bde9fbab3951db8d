"""Sequences of a pipeline that runs in this process, when an answer cannot be told."""

from pathlib import Path

import numpy as np
import pytest
from tests import fixtures_onnx

from forwardpass.building.session import Session
from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Pipeline, Sequences, Step, Version
from forwardpass.core.request import Answer, Request, Turn
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline


def first(answer: Answer, request: Request) -> float:
    for failure in answer.failures.values():
        raise failure
    return float(np.frombuffer(answer.outputs["y"].data, "<f4")[0])


def unsayable(answer: Answer, request: Request) -> float:
    raise Failed(Code.STEP_FAILED, "the answer has no form")


def test_an_answer_that_cannot_be_told_loses_its_sequence(tmp_path: Path) -> None:
    fixtures_onnx.accumulator(tmp_path / "model.onnx")
    model = {"engine": "onnxruntime", "file": "model.onnx", "state": {"total": "after"}, "constants": {"scale": 1}}
    definition = Pipeline((Step("model", model),), sequence=Sequences())
    session = Session(Version("sum", 1, "0" * 64, str(tmp_path), definition), threads=1, own={})

    def request(turn: Turn) -> Request:
        data, now = np.ones((1, 2), "<f4").tobytes(), monotonic_s()
        return Request("r", [Tensor("FP32", (1, 2), data)], 1, Timeline(now, now), sequence=turn)

    try:
        assert [session.told(request(Turn(id, start=True)), first) for id in "ab"] == [1, 1]
        with pytest.raises(Failed, match="no form"):
            session.told(request(Turn("a")), unsayable)
        with pytest.raises(Failed) as lost:
            session.told(request(Turn("a")), first)
        assert lost.value.code is Code.SEQUENCE_LOST
        assert session.told(request(Turn("b")), first) == 2
    finally:
        session.close()
