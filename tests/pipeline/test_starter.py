from collections.abc import Mapping
from pathlib import Path

import pytest

from forwardpass.core.pipeline import Batch, Field, Golden, Input, Signature, Step
from forwardpass.pipeline.definition import parse
from forwardpass.pipeline.starter import starter
from forwardpass.steps.protocol import StepKind

X = Input("x", "tensor", datatype="FP32", shape=(2,))
OUTPUTS = (Field("y", "FP32", (2,)),)
GOLDEN = Golden({"x": [1.0, 2.0]}, {"y": [2.0, 3.0]}, 0.001)


def tensors(count: int) -> Signature:
    return Signature(tuple(Input(f"in:{n}", "tensor", datatype="INT64", shape=(-1, 4)) for n in range(count)), OUTPUTS)


def test_a_starter_serves_the_model_as_it_is(model_folder: Path, step_kinds: Mapping[str, StepKind]) -> None:
    text = starter("adder", Signature((X,), OUTPUTS), "model.onnx", [GOLDEN])
    pipeline = parse(text, file="", folder=model_folder, kinds=step_kinds)
    assert pipeline.inputs == (X,)
    assert pipeline.steps == (Step("model", {"engine": "onnxruntime", "file": "model.onnx"}),)
    assert pipeline.golden == (GOLDEN,)
    assert pipeline.batch == Batch()


def test_a_model_that_does_not_batch_is_started_without_batching(
    model_folder: Path, step_kinds: Mapping[str, StepKind]
) -> None:
    text = starter("adder", tensors(1), "model.onnx", [], apart="its first axis\nis fixed")
    assert parse(text, file="", folder=model_folder, kinds=step_kinds).batch == Batch(enabled=False)


def test_what_could_not_be_tried_leaves_batching_on_and_says_why(
    model_folder: Path, step_kinds: Mapping[str, StepKind]
) -> None:
    text = starter("adder", tensors(1), "model.onnx", [], apart="no row\x1b to test with", proved=False)
    assert parse(text, file="", folder=model_folder, kinds=step_kinds).batch == Batch()
    assert "# no row\\u001b to test with\n" in text.lower()


@pytest.mark.parametrize("count", [0, 1, 3, 40])
@pytest.mark.parametrize("name", ["adder", 'odd "name"\n\x1b[31m # é'])
def test_a_starter_is_short_and_valid_for_any_model(
    count: int, name: str, model_folder: Path, step_kinds: Mapping[str, StepKind]
) -> None:
    golden = [Golden({f"in:{n}": [[1] * 4] for n in range(count)}, {"y": [1.0, 2.0]}, 0.5)] * 5
    text = starter(name, tensors(count), "model.onnx", golden if count else [])
    pipeline = parse(text, file="", folder=model_folder, kinds=step_kinds)
    assert text.count("\n") <= 60
    assert pipeline.description == name


def test_inputs_that_are_no_tensors_are_written_too(model_folder: Path, step_kinds: Mapping[str, StepKind]) -> None:
    inputs = (Input("t", "text"), Input("r", "record", columns={"age": "number"}))
    text = starter("adder", Signature(inputs, ()), "model.onnx", [])
    assert parse(text, file="", folder=model_folder, kinds=step_kinds).inputs == inputs
