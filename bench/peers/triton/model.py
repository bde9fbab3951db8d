"""Triton's Python backend: the batch that Triton has made, run by onnxruntime in the backend's process.

Triton copies this file into its repository; WORKLOAD and the rest come by the environment of the server.
"""

import os
import sys
from typing import Any

sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)  # the interpreter inside the backend ignores it
import numpy as np  # noqa: E402
import triton_python_backend_utils as triton  # noqa: E402
from bench.peers.shared.network import WORKLOAD, network  # noqa: E402


class TritonPythonModel:
    def initialize(self, args: Any) -> None:
        self.network = network()

    def execute(self, requests: list[Any]) -> list[Any]:
        rows = [self._rows(request) for request in requests]
        answers = np.stack(self.network.run([row for each in rows for row in each]))
        parts = np.split(answers, np.cumsum([len(each) for each in rows])[:-1])
        return [triton.InferenceResponse([triton.Tensor(OUTPUT, part)]) for part in parts]

    def _rows(self, request: Any) -> list[Any]:
        arrays = [triton.get_input_tensor_by_name(request, name).as_numpy() for name in INPUTS]
        if WORKLOAD == "jpeg":
            return [self.network.decode(file) for file in arrays[0].ravel()]
        return list(arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1))


INPUTS = {"minilm": ("input_ids", "attention_mask"), "image": ("image",), "jpeg": ("picture",)}.get(WORKLOAD, ("x",))
OUTPUT = {"minilm": "embedding", "image": "probabilities", "jpeg": "probabilities"}.get(WORKLOAD, "y")
