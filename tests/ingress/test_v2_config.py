"""V2's model configuration of a version, as Triton's message names things; expectations are written by hand."""

from dataclasses import replace
from typing import Any

from forwardpass.core.clock import monotonic_s
from forwardpass.core.pipeline import Batch, Field, Input, Pipeline, Sequences, Signature, Step, Version, Workers
from forwardpass.execution.wire import Loaded
from forwardpass.ingress.dialects.v2_config import model_config
from forwardpass.rollout.variant import Variant

X = Input("x", "tensor", datatype="FP32", shape=(3, -1))
SIGNATURE = Signature(
    (X, Input("text", "text"), Input("texts", "texts"), Input("n", "number", missing=True)), (Field("y", "FP16", (2,)),)
)


def config(signature: Signature = SIGNATURE, *engines: str, **definition: Any) -> dict[str, Any]:
    pipeline = Pipeline((Step("model"),), **definition)
    variant = Variant(Version("p", 3, "d1", "/folder", pipeline), threads=1, clock=monotonic_s)
    settings = [{"engine": engine} for engine in engines or ("onnxruntime",)]
    variant.signature = signature
    variant.loaded = Loaded(signature, "onnx_onnxv1", True, True, 0.0, "", [], settings, 0.1)
    return model_config(variant, [2, 3])


def test_a_batched_pipeline_says_its_rows_apart_from_dims() -> None:
    found = config(batch=Batch(rows_max=8, wait_ms=2.5))
    assert found["max_batch_size"] == 8
    assert found["input"] == [
        {"name": "x", "data_type": "TYPE_FP32", "dims": [3, -1], "optional": False},
        {"name": "text", "data_type": "TYPE_STRING", "dims": [], "optional": False},
        {"name": "texts", "data_type": "TYPE_STRING", "dims": [-1], "optional": False},
        {"name": "n", "data_type": "TYPE_FP64", "dims": [], "optional": True},
    ]
    assert found["output"] == [{"name": "y", "data_type": "TYPE_FP16", "dims": [2]}]
    batching = found["dynamic_batching"]
    assert (batching["preferred_batch_size"], batching["max_queue_delay_microseconds"]) == ([8], 2500)


def test_a_model_without_an_axis_for_rows_has_whole_dims_and_no_batches() -> None:
    found = config(replace(SIGNATURE, batched=False))
    assert (found["max_batch_size"], found["input"][0]["dims"]) == (0, [3, -1])
    assert "dynamic_batching" not in found
    assert config(replace(SIGNATURE, batched=False, fixed_rows=4))["input"][0]["dims"] == [4, 3, -1]


def test_rows_that_may_not_share_a_batch_are_said_to_have_none() -> None:
    found = config(batch=Batch(enabled=False))
    assert (found["max_batch_size"], "dynamic_batching" in found) == (32, False)


def test_a_pipeline_of_sequences_says_how_long_they_are_kept() -> None:
    found = config(sequence=Sequences(idle_s=1.5))
    assert found["sequence_batching"] == {"max_sequence_idle_microseconds": 1_500_000}
    assert "dynamic_batching" not in found


def test_who_it_is_and_what_runs_it() -> None:
    found = config(workers=Workers(count=2))
    assert (found["name"], found["platform"], found["backend"]) == ("p", "onnxruntime_onnx", "onnxruntime")
    assert found["version_policy"] == {"specific": {"versions": [2, 3]}}
    assert found["instance_group"] == [{"name": "p", "kind": "KIND_CPU", "count": 2}]
    assert found["model_transaction_policy"] == {"decoupled": False}
    assert config(SIGNATURE, "onnxruntime", "python")["backend"] == "forwardpass"
