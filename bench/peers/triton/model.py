"""Triton's Python backend: what makes pictures and texts ready, and the networks where no other backend runs them.

Triton copies this file into its repository; the rest comes by the server's environment. One call of ``execute`` is a
batch that Triton has made.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)  # the interpreter inside the backend ignores it
import numpy as np  # noqa: E402
import triton_python_backend_utils as triton  # noqa: E402
from bench.peers.shared.network import pixels, session, tokenizer  # noqa: E402

Requests = list[list[Any]]
"""For each request its tensors, in the order of the model's configuration: inputs, or outputs."""


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.inputs = [each["name"] for each in config["input"]]
        self.outputs = [each["name"] for each in config["output"]]
        self.answers = answering(args["model_name"], self.inputs)

    def execute(self, requests: list[Any]) -> list[Any]:
        given = [
            [triton.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs] for request in requests
        ]
        return [
            triton.InferenceResponse([triton.Tensor(*each) for each in zip(self.outputs, arrays, strict=True)])
            for arrays in self.answers(given)
        ]


def answering(name: str, inputs: list[str]) -> Callable[[Requests], Requests]:
    match name:
        case "pictures":
            return pictures
        case "texts":
            return texts()
    return network(name, inputs)


def pictures(given: Requests) -> Requests:
    return [[np.stack([pixels(file) for file in files.ravel()])] for (files,) in given]


def texts() -> Callable[[Requests], Requests]:
    cut = tokenizer()

    def answers(given: Requests) -> Requests:
        found = [cut.encode_batch([text.decode() for text in texts.ravel()]) for (texts,) in given]
        return [[np.array([e.ids for e in one]), np.array([e.attention_mask for e in one])] for one in found]

    return answers


def network(name: str, inputs: list[str]) -> Callable[[Requests], Requests]:
    """All requests' rows in one call."""
    run = session(name).run

    def answers(given: Requests) -> Requests:
        joined = [np.concatenate(tensors) for tensors in zip(*given, strict=True)]
        (made,) = run(None, dict(zip(inputs, joined, strict=True)))
        ends = np.cumsum([len(arrays[0]) for arrays in given])
        return [[part] for part in np.split(made, ends[:-1])]

    return answers
