"""The ways of asking: how a workload's inputs become a request of a peer's protocol, and an answer becomes numbers."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

JSON = "application/json"
OCTETS = "application/octet-stream"
HEADER_LENGTH = "Inference-Header-Content-Length"
DATATYPES = {"float32": "FP32", "int64": "INT64"}

Array = NDArray[Any]
Inputs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """The bytes of a body, and the headers that say what they are."""

    body: bytes
    headers: Mapping[str, str]


def v2(inputs: Inputs) -> Request:
    """Open Inference Protocol: tensors as JSON."""
    return _json({"inputs": [_tensor(name, value) | {"data": _elements(value)} for name, value in inputs.items()]})


def v2_binary(inputs: Inputs) -> Request:
    """The same with the tensors' bytes behind the JSON, and the answer's too."""
    tensors = [_tensor(name, a) | {"parameters": {"binary_data_size": a.nbytes}} for name, a in inputs.items()]
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}, separators=(",", ":")).encode()
    data = b"".join(array.tobytes() for array in inputs.values())
    return Request(head + data, {"Content-Type": OCTETS, HEADER_LENGTH: str(len(head))})


def v2_file(inputs: Inputs) -> Request:
    """A file as a tensor of one BYTES element; of the answer the likeliest class, which is an extension of Triton's."""
    ((name, file),) = inputs.items()
    element = struct.pack("<I", len(file)) + file
    tensor = {"name": name, "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(element)}}
    output = {"name": "probabilities", "parameters": {"classification": 1}}
    head = json.dumps({"inputs": [tensor], "outputs": [output]}, separators=(",", ":")).encode()
    return Request(head + element, {"Content-Type": OCTETS, HEADER_LENGTH: str(len(head))})


def record(inputs: Inputs) -> Request:
    """One row as a JSON object, each input by its name: what a hand-written server asks for."""
    return _json({name: value if isinstance(value, str) else _numbers(value) for name, value in inputs.items()})


def rows(inputs: Inputs) -> Request:
    """BentoML's: a list of rows. Only one argument can be batched, so token ids and their mask are one row, "ids"."""
    name = "x" if "x" in inputs else "ids"
    return _json({name: [[number for array in inputs.values() for number in _numbers(array)]]})


def floats(inputs: Inputs) -> Request:
    """The only input's bytes and nothing else."""
    (array,) = inputs.values()
    return Request(array.tobytes(), {"Content-Type": OCTETS})


def jpeg(inputs: Inputs) -> Request:
    """The file and nothing else."""
    (file,) = inputs.values()
    return Request(file, {"Content-Type": "image/jpeg"})


FORMS: dict[str, Callable[[Inputs], Request]] = {
    each.__name__: each for each in (v2, v2_binary, v2_file, record, rows, floats, jpeg)
}


def numbers(body: bytes, headers: Mapping[str, str]) -> Array:
    """What any of these servers answers with, flat. Raises ValueError when the answer is none of them."""
    given = {name.lower(): value for name, value in headers.items()}
    if HEADER_LENGTH.lower() in given:
        return np.frombuffer(body[int(given[HEADER_LENGTH.lower()]) :], "<f4")
    if not given.get("content-type", JSON).startswith(JSON):
        return np.frombuffer(body, "<f4")
    match json.loads(body):
        case {"outputs": [{"datatype": "BYTES", "data": [str() as best]}]}:  # score:class of Triton's classification
            score, _, label = best.partition(":")
            return np.array([float(label), float(score)])
        case {"outputs": [{"data": data}]} | {"y": data} | (list() as data):
            return np.array(data, "f8").ravel()
        case {"label": label, "score": score} | {"outputs": {"label": label, "score": score}}:
            return np.array([float(label), score])
        case {"outputs": {"embedding": data}}:
            return np.array(data, "f8").ravel()
    raise ValueError(f"not an answer: {body[:200]!r}")


def _json(value: Any) -> Request:
    return Request(json.dumps(value, separators=(",", ":")).encode(), {"Content-Type": JSON})


def _tensor(name: str, value: Array | str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"name": name, "shape": [1, 1], "datatype": "BYTES"}
    return {"name": name, "shape": list(value.shape), "datatype": DATATYPES[value.dtype.name]}


def _elements(value: Array | str) -> list[Any]:
    return [value] if isinstance(value, str) else _numbers(value)


def _numbers(array: Array) -> list[Any]:
    """As a client writes them: four decimals, as the rows were made; token ids as they are."""
    flat = array.ravel()
    return [round(float(each), 4) for each in flat] if array.dtype.kind == "f" else flat.tolist()
