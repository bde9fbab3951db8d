"""The onnxruntime engine on tiny real models: what it reads from a graph, what it answers, how it refuses."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx as models

from forwardpass.core.errors import Code, Failed, Failure, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.engines.discover import engine_kind
from forwardpass.engines.protocol import Arrays, End, Engine, ModelFile, Work


def load(path: Path, **options: Any) -> Engine:
    engine = engine_kind("onnxruntime").make()
    engine.load(ModelFile(str(path), options))
    return engine


def predict(engine: Engine, **inputs: Any) -> Arrays:
    engine.submit([Work(1, inputs)])
    (end,) = engine.step()
    assert isinstance(end, End)
    if end.failure:
        raise end.failure
    return end.outputs


def test_a_free_first_axis_is_the_batch_and_is_not_part_of_a_row(tmp_path: Path) -> None:
    signature = load(models.simple(tmp_path / "m.onnx")).signature()
    assert signature.inputs == (Field("INPUT0", "INT32", (16,)), Field("INPUT1", "INT32", (16,)))
    assert signature.outputs == (Field("OUTPUT0", "INT32", (16,)), Field("OUTPUT1", "INT32", (16,)))
    assert signature.batched
    assert signature.fixed_rows is None


@pytest.mark.parametrize("first", ["N", None])
def test_named_and_unnamed_free_axes_are_both_free(tmp_path: Path, first: str | None) -> None:
    signature = load(models.identity(tmp_path / "m.onnx", (first, "L"))).signature()
    assert signature.batched
    assert signature.inputs == (Field("x", "FP32", (-1,)),)


def test_a_fixed_first_axis_is_a_fixed_number_of_rows(tmp_path: Path) -> None:
    signature = load(models.identity(tmp_path / "m.onnx", (3, 4))).signature()
    assert (signature.batched, signature.fixed_rows) == (False, 3)
    assert signature.inputs == (Field("x", "FP32", (4,)),)


def test_a_graph_without_an_axis_for_rows_takes_one_row_a_work(tmp_path: Path) -> None:
    signature = load(models.identity(tmp_path / "m.onnx", ())).signature()
    assert (signature.batched, signature.fixed_rows) == (False, None)
    assert signature.inputs == (Field("x", "FP32", ()),)


def test_an_output_of_undeclared_rank_gets_it_from_a_trial_run(tmp_path: Path) -> None:
    path = models.unranked(tmp_path / "m.onnx")
    assert load(path).signature().outputs == (Field("y", "FP32", (-1, -1)),)


def test_a_scalar_output_cannot_be_cut_into_rows(tmp_path: Path) -> None:
    signature = load(models.total(tmp_path / "m.onnx")).signature()
    assert not signature.batched
    assert (signature.inputs, signature.outputs) == ((Field("x", "FP32", (-1, 4)),), (Field("y", "FP32", ()),))


def test_answers_are_right_for_numbers(tmp_path: Path) -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    outputs = predict(load(models.add(tmp_path / "m.onnx")), a=a, b=b)
    np.testing.assert_array_equal(outputs["y"], a + b)


def test_strings_come_back_as_they_went_in(tmp_path: Path) -> None:
    given = np.array(["plain", "grün", "nul\0inside", ""], dtype=object)
    outputs = predict(load(models.text_identity(tmp_path / "m.onnx")), x=given)
    assert outputs["y"].tolist() == given.tolist()


@pytest.mark.parametrize("optimization", ["all", "extended", "basic", "off"])
def test_every_level_of_optimisation_gives_the_same_answer(tmp_path: Path, optimization: str) -> None:
    path = models.network(tmp_path / "m.onnx")
    rows = np.random.default_rng(1).normal(size=(5, 30)).astype(np.float32)
    expected = predict(load(path), x=rows)["y"]
    np.testing.assert_allclose(predict(load(path, optimization=optimization), x=rows)["y"], expected, atol=1e-6)


@pytest.mark.parametrize("rows", [np.zeros((2, 5), np.float32), np.zeros((2, 4), np.float64)])
def test_what_the_engine_refuses_is_a_failure_with_its_text_in_the_detail_only(tmp_path: Path, rows: Any) -> None:
    with pytest.raises(Failed) as caught:
        predict(load(models.identity(tmp_path / "m.onnx")), x=rows)
    assert caught.value.code is Code.ENGINE_FAILED
    assert caught.value.text == "the model could not be run on this input"
    assert "INVALID_ARGUMENT" in caught.value.detail


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\x08\x09\x12\x03abc" * 9])
def test_a_file_that_is_no_model_is_refused_without_a_word_on_standard_output(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(Misconfigured) as caught:
        load(path)
    assert caught.value.code is Code.MODEL_INVALID
    assert caught.value.text == "m.onnx: onnxruntime cannot load this model"
    assert capfd.readouterr() == ("", "")


def test_a_sequence_output_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="without zipmap") as caught:
        load(models.sequence_output(tmp_path / "m.onnx"))
    assert caught.value.problems[0].key == "y"


def test_close_can_be_called_twice(tmp_path: Path) -> None:
    engine = load(models.identity(tmp_path / "m.onnx"))
    engine.close()
    engine.close()
    assert engine.step() == []


LIMITED = """
import resource, sys
import numpy as np
from forwardpass.engines.discover import engine_kind
from forwardpass.engines.protocol import ModelFile, Work
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
engine = engine_kind("onnxruntime").make()
engine.load(ModelFile(sys.argv[1]))
for size in (2_000_000_000, 3):
    engine.submit([Work(size, {"n": np.array([size])})])
    (end,) = engine.step()
    print(end.failure.code if end.failure else end.outputs["y"].shape)
"""
KILLED = """
import sys
import numpy as np
from forwardpass.engines.discover import engine_kind
from forwardpass.engines.protocol import ModelFile, Work
engine = engine_kind("onnxruntime").make()
engine.load(ModelFile(sys.argv[1]))
engine.submit([Work(1, INPUTS)])
engine.step()
"""


def alone(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


SHRUNK = """
import sys
import numpy as np
from forwardpass.engines.onnxruntime import OnnxRuntime
from forwardpass.engines.protocol import ModelFile
def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // 2**20
now_s = 0.0
engine = OnnxRuntime(clock=lambda: now_s)
engine.load(ModelFile(sys.argv[1]))
engine.predict({"x": np.ones((1, 30), np.float32)})
before = resident_mb()
engine.predict({"x": np.ones((400_000, 30), np.float32)})
for now_s in (1.0, 11.0):
    engine.predict({"x": np.ones((1, 30), np.float32)})
    print(resident_mb() - before > 60)
"""


def test_what_one_large_batch_took_is_given_back_ten_seconds_later(tmp_path: Path) -> None:
    done = alone(SHRUNK, str(models.network(tmp_path / "m.onnx")))
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_an_answer_over_the_memory_limit_is_a_failure_and_the_engine_lives_on(tmp_path: Path) -> None:
    done = alone(LIMITED, str(models.constant_of_shape(tmp_path / "m.onnx")))
    assert done.stdout.split("\n")[:2] == ["engine_out_of_memory", "(1, 3)"]


@pytest.mark.parametrize(
    ("write", "inputs"),
    [
        (models.div_int32, "{'a': np.full((1, 1), -2**31, np.int32), 'b': np.full((1, 1), -1, np.int32)}"),
        (models.unique_axis0, "{'x': np.zeros((3, 0), np.float32)}"),
    ],
)
def test_values_alone_can_kill_the_process_so_it_must_not_be_the_front(
    tmp_path: Path, write: Callable[[Path], Path], inputs: str
) -> None:
    assert alone(KILLED.replace("INPUTS", inputs), str(write(tmp_path / "m.onnx"))).returncode < 0


def test_loading_a_missing_file_is_the_operators_fault(tmp_path: Path) -> None:
    with pytest.raises(Failure) as caught:
        load(tmp_path / "none.onnx")
    assert caught.value.code is Code.MODEL_INVALID
