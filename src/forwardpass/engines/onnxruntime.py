"""The onnxruntime engine: an ONNX file on CPU, by path, one session, one caller at a time."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Code, Failed, Misconfigured, Problem
from forwardpass.core.pipeline import Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.engines.arena import Arena
from forwardpass.engines.discover import EngineKind, EngineOption
from forwardpass.engines.graph import run_failure, signature_of
from forwardpass.engines.oneshot import OneShot
from forwardpass.engines.protocol import Arrays, ModelFile, ModelSignature

DATATYPES = {
    "tensor(bool)": "BOOL", "tensor(uint8)": "UINT8", "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64", "tensor(int8)": "INT8", "tensor(int16)": "INT16", "tensor(int32)": "INT32",
    "tensor(int64)": "INT64", "tensor(float16)": "FP16", "tensor(float)": "FP32", "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}  # fmt: skip
LEVELS = {
    "all": "ORT_ENABLE_ALL", "extended": "ORT_ENABLE_EXTENDED", "basic": "ORT_ENABLE_BASIC", "off": "ORT_DISABLE_ALL"
}  # fmt: skip
SIZE_TRIED = 4  # of an axis that is free, when an output's rank is found by running


class OnnxRuntime:
    """A Predictor over one InferenceSession."""

    def __init__(self, clock: Clock = monotonic_s) -> None:
        self._clock = clock

    def load(self, file: ModelFile) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            text = "the engine onnxruntime is not installed: pip install 'forwardpass[onnx]'"
            raise Misconfigured(Code.RUNTIME_MISSING, text, detail=str(error)) from error
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = file.threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 4
        level = LEVELS[file.options.get("optimization", "all")]
        settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        # A pattern is kept for every shape seen, of which free axes have no end; no gain by them was measured.
        settings.enable_mem_pattern = False
        spinning = "1" if file.options.get("spinning", False) else "0"
        settings.add_session_config_entry("session.intra_op.allow_spinning", spinning)
        settings.add_session_config_entry("session.use_env_allocators", "1")
        self._arena = Arena(onnxruntime, self._clock)
        self._name = PurePath(file.path).name
        try:
            # Without enable_fallback=0 a failing session prints the model's own text to standard output.
            self._session = onnxruntime.InferenceSession(
                file.path, settings, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception as error:  # its errors share no base class, and UnicodeDecodeError is among them
            text = f"{self._name}: onnxruntime cannot load this model"
            raise Misconfigured(Code.MODEL_INVALID, text, detail=str(error)) from error
        self._outputs = [node.name for node in self._session.get_outputs()]
        self._signature = self._read_signature(file)

    def signature(self) -> ModelSignature:
        return self._signature

    def predict(self, batch: Arrays) -> Arrays:
        # Outputs are not bound beforehand: on a 30-64-32-1 network that saves 3 of 10 us, but for one exact shape only
        # and with a copy of every answer; binding anew for each call costs 10 us more than it saves.
        try:
            answers = self._session.run(self._outputs, dict(batch), self._arena.options(batch))
            return dict(zip(self._outputs, answers, strict=True))
        except Exception as error:  # its errors share no base class
            raise run_failure(error) from error

    def close(self) -> None:
        self._session = None

    def _read_signature(self, file: ModelFile) -> ModelSignature:
        inputs = [self._field(node) for node in self._session.get_inputs()]
        outputs = [self._field(node) for node in self._session.get_outputs()]
        if not inputs:
            raise self._invalid("", "the graph has no inputs", "a graph with at least one")
        if not all(field.shape for field in outputs):
            # A graph says [] both for a scalar and for "unknown": only a run tells.
            ranks = self._ranks(inputs, file.constants)
            outputs = [
                field if field.shape else Field(field.name, field.datatype, (-1,) * rank)
                for field, rank in zip(outputs, ranks, strict=True)
            ]
        return signature_of(file, inputs, outputs)

    def _field(self, node: Any) -> Field:
        """A graph input or output with all its axes; a free one is -1."""
        datatype = DATATYPES.get(node.type)
        if datatype is None:
            advice = "tensors only"
            if node.type.startswith(("seq(", "map(")):
                advice += "; export the model without zipmap (skl2onnx and onnxmltools: options={'zipmap': False})"
            raise self._invalid(node.name, f"has the type {node.type}", advice)
        shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in node.shape or ())
        return Field(node.name, datatype, shape)

    def _ranks(self, inputs: Sequence[Field], constants: Mapping[str, Any]) -> list[int]:
        feeds: dict[str, Any] = {}
        for field in inputs:
            shape = [SIZE_TRIED if size < 0 else size for size in field.shape]
            text = field.datatype == "BYTES"
            value = constants.get(field.name, "a" if text else 1)
            feeds[field.name] = np.full(shape, value, object if text else NUMPY_NAMES[field.datatype])
        try:
            results = self.predict(feeds).values()
        except Failed as error:
            advice = "export the model with the shapes of its outputs"
            raise self._invalid("", "an output's shape is not declared and a trial run failed", advice) from error
        return [np.ndim(result) for result in results]

    def _invalid(self, key: str, found: str, allowed: str) -> Misconfigured:
        return Misconfigured(Code.MODEL_INVALID, (Problem(self._name, key, found, allowed),))


engine = EngineKind(
    make=lambda: OneShot(OnnxRuntime()),
    options={
        "optimization": EngineOption(
            " or ".join(f'"{level}"' for level in LEVELS),
            lambda value: isinstance(value, str) and value in LEVELS,
            "all",
        ),
        "spinning": EngineOption("true or false", lambda value: isinstance(value, bool), False),
    },
    platform="onnx_onnxv1",
    apart=True,
    plain={"optimization": "off"},
    safe={"optimization": "basic"},
)
