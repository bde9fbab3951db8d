"""V2's configuration of a model, as Triton's ``ModelConfig`` names things: what a version is, not how to change it."""

from collections.abc import Sequence

from forwardpass.batching.grouping import DEFAULT_PRIORITY
from forwardpass.core.pipeline import Field, Signature, Version
from forwardpass.execution.wire import Loaded
from forwardpass.ingress.dialects.v2_metadata import row_shape
from forwardpass.ingress.dialects.v2_parameters import PRIORITY_MAX
from forwardpass.pipeline.bounds import may_be_missing
from forwardpass.rollout.variant import Variant

_PLATFORMS = {"onnxruntime": "onnxruntime_onnx"}
"""Where Triton's word for an engine's models is another than that of the metadata."""


def model_config(variant: Variant, numbers: Sequence[int]) -> dict[str, object]:
    """The members of the message; ``numbers`` are the versions served.

    With ``max_batch_size`` above 0 rows are no part of ``dims``: that many share one run. A longer request is cut,
    where its rows do not depend on each other.
    """
    version, signature = variant.version, variant.signature
    assert variant.loaded is not None, "a routable version has loaded"
    definition = version.definition
    backend = _backend(variant.loaded)
    config: dict[str, object] = {
        "name": version.pipeline,
        "platform": _PLATFORMS.get(backend, variant.loaded.platform),
        "backend": backend,
        "version_policy": {"specific": {"versions": list(numbers)}},
        "max_batch_size": variant.batch.rows_cut if signature.batched else 0,
        "input": [
            {**_tensor(field, signature), "optional": may_be_missing(owner)} for field, owner in signature.bounds
        ],
        "output": [_tensor(field, signature) for field in signature.outputs],
        "instance_group": [{"name": version.pipeline, "kind": "KIND_CPU", "count": definition.workers.count}],
        "parameters": _parameters(version, variant.batching_reason),
        "model_transaction_policy": {"decoupled": False},
        "response_cache": {"enable": variant.cache is not None},
    }
    if definition.sequence is not None:  # the message has room for one of the two
        config["sequence_batching"] = {"max_sequence_idle_microseconds": round(definition.sequence.idle_s * 1e6)}
    elif variant.batch.enabled and signature.batched:
        config["dynamic_batching"] = {
            "preferred_batch_size": [variant.batch.rows_cut],
            "max_queue_delay_microseconds": round(variant.batch.wait_ms * 1000),
            "priority_levels": PRIORITY_MAX,
            "default_priority_level": DEFAULT_PRIORITY,
        }
    return config


def _tensor(field: Field, signature: Signature) -> dict[str, object]:
    rows = () if signature.batched else signature.leading
    kind = "STRING" if field.datatype == "BYTES" else field.datatype
    return {"name": field.name, "data_type": f"TYPE_{kind}", "dims": [*rows, *row_shape(field, signature)]}


def _backend(loaded: Loaded) -> str:
    """The engine, if all models of the version run in one."""
    engines = {settings["engine"] for settings in loaded.settings}
    return str(engines.pop()) if len(engines) == 1 else "forwardpass"


def _parameters(version: Version, batching: str) -> dict[str, dict[str, str]]:
    told = {"digest": version.digest, "batching": batching}
    return {name: {"string_value": value} for name, value in told.items()}
