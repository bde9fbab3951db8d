"""The openvino engine: an ONNX file on CPU, by path, one stream, one caller at a time, in the precision that is stated.

Left to itself OpenVINO computes in BF16 where the processor can: here ``precision`` says so, or the load is refused.
It has integers of 32 bits inside: larger values of INT64 inputs are refused, and FP64, UINT32 and UINT64 at load.
"""

import sys
from pathlib import PurePath
from typing import Any

import numpy as np

from forwardpass.core.errors import Code, Failed, Misconfigured, Problem
from forwardpass.core.pipeline import Field
from forwardpass.engines.discover import EngineKind, EngineOption
from forwardpass.engines.graph import run_failure, signature_of
from forwardpass.engines.oneshot import OneShot
from forwardpass.engines.protocol import Arrays, ModelFile, ModelSignature

DATATYPES = {
    "boolean": "BOOL", "u8": "UINT8", "u16": "UINT16", "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64",
    "f16": "FP16", "f32": "FP32",
}  # fmt: skip
PRECISIONS = {"fp32": "f32", "bf16": "bf16"}
CONVERTERS = "openvino.tools.ovc"
INT32 = np.iinfo(np.int32)


class OpenVino:
    """A Predictor over one compiled model."""

    def load(self, file: ModelFile) -> None:
        openvino = _runtime()
        self._name = PurePath(file.path).name
        precision = PRECISIONS[file.options.get("precision", "fp32")]
        try:
            core = openvino.Core()
            able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
            if precision != "f32" and precision.upper() not in able:
                raise _cannot(precision, ", ".join(able))
            # Core.read_model tries the parsers of every format, and some print what they find.
            onnx = openvino.frontend.FrontEndManager().load_by_framework("onnx")
            model = onnx.convert(onnx.load(file.path))
            if not model.inputs or not model.outputs:  # so it reads an empty file
                raise ValueError("a graph without inputs or outputs")
            compiled = core.compile_model(model, "CPU", _settings(precision, file.threads))
        except Misconfigured:
            raise
        except Exception as error:  # RuntimeError for what it does not know, but its frontends raise others
            text = f"{self._name}: openvino cannot load this model"
            raise Misconfigured(Code.MODEL_INVALID, text, detail=str(error)) from error
        computed = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        if computed != precision:
            raise _cannot(precision, computed)
        self._signature = signature_of(
            file, [self._field(node) for node in model.inputs], [self._field(node) for node in model.outputs]
        )
        self._outputs = [field.name for field in map(self._field, model.outputs)]
        given = (*self._signature.inputs, *self._signature.whole_inputs)
        self._wide = [field.name for field in given if field.datatype == "INT64"]
        self._request: Any = compiled.create_infer_request()

    def signature(self) -> ModelSignature:
        return self._signature

    def predict(self, batch: Arrays) -> Arrays:
        for name in self._wide:
            if batch[name].size and (batch[name].max() > INT32.max or batch[name].min() < INT32.min):
                text = f"{name}: the engine openvino takes integers of 32 bits, and a larger one came"
                raise Failed(Code.ENGINE_FAILED, text, field=name)
        try:
            # The answers are copied: the request's own memory is written anew by the next call.
            answers = self._request.infer(dict(batch), share_inputs=True, share_outputs=False)
            return dict(zip(self._outputs, answers.to_tuple(), strict=True))
        except Exception as error:  # RuntimeError mostly
            raise run_failure(error) from error

    def close(self) -> None:
        self._request = None

    def _field(self, node: Any) -> Field:
        """An input or output with all its axes; a free one is -1."""
        name = node.get_any_name()
        kind = node.get_element_type().get_type_name()
        if kind not in DATATYPES:
            advice = "numbers of at most 32 bits, or INT64; the engine onnxruntime takes the others"
            raise Misconfigured(Code.MODEL_INVALID, (Problem(self._name, name, f"has the type {kind}", advice),))
        shape = node.get_partial_shape()
        if shape.rank.is_dynamic:
            found, advice = "has a shape of any rank", "a declared one; the engine onnxruntime finds it out"
            raise Misconfigured(Code.MODEL_INVALID, (Problem(self._name, name, found, advice),))
        return Field(name, DATATYPES[kind], tuple(-1 if axis.is_dynamic else axis.get_length() for axis in shape))


def _runtime() -> Any:
    """The package, without its converters: these take as long to import as the rest, and bring what reports to its maker."""
    first = "openvino" not in sys.modules
    if first:
        sys.modules[CONVERTERS] = None  # type: ignore[assignment]  # the import system's word for "not to be had"
    try:
        import openvino
    except ImportError as error:
        text = "the engine openvino is not installed: pip install 'forwardpass[openvino]'"
        if not isinstance(error, ModuleNotFoundError):  # a part of it did not fit into the memory limit, for one
            text = "the engine openvino is installed, but cannot be imported here"
        raise Misconfigured(Code.RUNTIME_MISSING, text, detail=str(error)) from error
    finally:
        if first:
            del sys.modules[CONVERTERS]
    return openvino


def _cannot(precision: str, able: str) -> Misconfigured:
    problem = Problem("", "precision", f"this processor does not compute in {precision}", f"what it can: {able}")
    return Misconfigured(Code.MODEL_INVALID, (problem,))


def _settings(precision: str, threads: int) -> dict[str, Any]:
    """Nothing that changes answers unasked, and no thread tied to a core that others use too."""
    return {
        "INFERENCE_PRECISION_HINT": precision,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }


engine = EngineKind(
    make=lambda: OneShot(OpenVino()),
    options={
        "precision": EngineOption(
            " or ".join(f'"{name}"' for name in PRECISIONS),
            lambda value: isinstance(value, str) and value in PRECISIONS,
            "fp32",
        ),
    },
    platform="onnx_onnxv1",
    apart=True,
)
