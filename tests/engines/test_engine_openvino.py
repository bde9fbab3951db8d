"""The openvino engine on tiny real models; numpy and onnxruntime say what is right."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests import fixtures_onnx as models

from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.engines.discover import engine_kind
from forwardpass.engines.protocol import Arrays, End, Engine, ModelFile, Work
from forwardpass.testing.conformance import engine_conformance

pytest.importorskip("openvino", reason="pip install 'forwardpass[openvino]'")


def load(path: Path, **options: Any) -> Engine:
    engine = engine_kind("openvino").make()
    engine.load(ModelFile(str(path), options))
    return engine


def predict(engine: Engine, **inputs: Any) -> Arrays:
    engine.submit([Work(1, inputs)])
    (end,) = engine.step()
    assert isinstance(end, End)
    if end.failure:
        raise end.failure
    return end.outputs


def test_openvino_conforms(tmp_path: Path) -> None:
    path = models.identity(tmp_path / "m.onnx")
    sample, bad = {"x": np.ones((2, 4), np.float32)}, {"x": np.ones((2, 9), np.float32)}
    engine_conformance(engine_kind("openvino").make, ModelFile(str(path)), sample, bad)


def test_a_graphs_rows_are_read_as_onnxruntime_reads_them(tmp_path: Path) -> None:
    for name in ("add", "simple", "row_sum", "network", "total"):
        path = getattr(models, name)(tmp_path / f"{name}.onnx")
        reference = engine_kind("onnxruntime").make()
        reference.load(ModelFile(str(path)))
        assert load(path).signature() == reference.signature(), name


def test_answers_are_right_for_numbers(tmp_path: Path) -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    outputs = predict(load(models.add(tmp_path / "m.onnx")), a=a, b=b)
    np.testing.assert_array_equal(outputs["y"], a + b)


def test_an_answer_stays_when_the_next_one_is_computed(tmp_path: Path) -> None:
    engine = load(models.identity(tmp_path / "m.onnx"))
    first = predict(engine, x=np.full((1, 4), 1, np.float32))["y"]
    predict(engine, x=np.full((1, 4), 2, np.float32))
    assert first.tolist() == [[1.0] * 4]


def test_read_only_rows_are_taken(tmp_path: Path) -> None:
    rows = np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32).reshape(1, 4)
    assert predict(load(models.identity(tmp_path / "m.onnx")), x=rows)["y"].tolist() == rows.tolist()


def test_an_integer_that_would_be_cut_is_refused(tmp_path: Path) -> None:
    engine = load(models.identity(tmp_path / "m.onnx", ("N", 1), models.INT64))
    assert predict(engine, x=np.array([[-(2**31)]]))["y"].tolist() == [[-(2**31)]]
    with pytest.raises(Failed, match="integers of 32 bits") as caught:
        predict(engine, x=np.array([[2**31]]))
    assert caught.value.field == "x"


def test_a_constant_that_would_be_cut_is_refused_as_well(tmp_path: Path) -> None:
    path = models.identity(tmp_path / "m.onnx", ("N", 1), models.INT64)
    engine = engine_kind("openvino").make()
    engine.load(ModelFile(str(path), constants={"x": 2**40}))
    with pytest.raises(Failed, match="integers of 32 bits") as caught:
        predict(engine, x=np.array([[2**40]]))
    assert caught.value.field == "x"


@pytest.mark.parametrize("kind", [models.STRING, TensorProto.DOUBLE, TensorProto.UINT64])
def test_what_it_would_compute_with_less_precision_or_not_at_all_is_refused_at_load(tmp_path: Path, kind: int) -> None:
    with pytest.raises(Misconfigured, match="the engine onnxruntime takes the others") as caught:
        load(models.identity(tmp_path / "m.onnx", ("N", 1), kind))
    assert (caught.value.code, caught.value.problems[0].key) == (Code.MODEL_INVALID, "x")


def test_a_precision_is_computed_in_or_refused(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    path = models.network(tmp_path / "m.onnx")
    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        rows = np.random.default_rng(1).normal(size=(5, 30)).astype(np.float32)
        assert not np.array_equal(predict(load(path, precision="bf16"), x=rows)["y"], predict(load(path), x=rows)["y"])
    else:
        with pytest.raises(Misconfigured, match="precision: this processor does not compute in bf16"):
            load(path, precision="bf16")


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\x08\x09\x12\x03abc" * 9])
def test_a_file_that_is_no_model_is_refused_without_a_word_on_standard_output(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(Misconfigured) as caught:
        load(path)
    assert (caught.value.code, caught.value.text) == (Code.MODEL_INVALID, "m.onnx: openvino cannot load this model")
    assert capfd.readouterr() == ("", "")
