"""What the client says and how it reads what comes back: calls to bytes, answers to values or typed errors. No I/O."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import numpy as np
import orjson
from numpy.typing import NDArray

from forwardpass.client_retry import NO_CODE, ForwardpassError, OverloadedError, error_class
from forwardpass.core.request import Turn
from forwardpass.core.tensor import NUMPY_NAMES, pack_bytes, unpack_bytes
from forwardpass.ingress.status import STATUSES

DEADLINE_S_MAX = 300.0
KEY_VARIABLE = "FORWARDPASS_KEY"
DATATYPES = {name: datatype for datatype, name in NUMPY_NAMES.items()}
TEXT_KINDS = "OSUT"  # numpy's kinds of arrays whose elements are objects, bytes, str, variable-width str
_SIMPLE = frozenset({bool, int, float, str, type(None)})
HEAD_LENGTH = "Inference-Header-Content-Length"
MESSAGE_CHARACTERS_MAX = 512

Array = NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; ``headers`` are found whatever their case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """What one attempt sends besides the path."""

    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """``message`` is made for each attempt from the seconds left; ``read`` gets the 200 answer.

    What is not ``repeatable`` must not run twice.
    """

    method: str
    path: str
    message: Callable[[float], Message]
    read: Callable[[Answer], T]
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Prediction:
    """The outputs of one record and who answered. ``notes`` say what was done to the record, e.g. that it was cut.

    An output of bytes (an image, say) is in ``outputs`` as base64, as in JSON; ``bytes_of`` gives the bytes.
    """

    outputs: dict[str, Any]
    notes: list[dict[str, Any]]
    receipt: dict[str, Any] | None
    pipeline: str
    version: int
    digest: str
    request_id: str

    def bytes_of(self, output: str) -> bytes:
        """The bytes of an output that is an image, sound or bytes. Raises KeyError, and ValueError for another one."""
        value = self.outputs[output]
        if not isinstance(value, str):
            raise ValueError(f"output {output!r} holds no bytes")
        return base64.b64decode(value, validate=True)


def predict(pipeline: str, fields: Mapping[str, object], version: int | None, receipt: bool) -> Call[Prediction]:
    """One record. Raises ValueError and TypeError for fields that JSON cannot carry."""
    query = "?receipt=full" if receipt else ""
    return _predict_call(pipeline, version, query, dict(fields), _read_prediction)


def in_sequence(call: Call[T], turn: Turn) -> Call[T]:
    """The same ``predict``, as a request of a sequence."""
    flags = {"X-Sequence-Start": turn.start, "X-Sequence-End": turn.end}
    headers = {"X-Sequence-Id": turn.id, **{name: "true" for name, given in flags.items() if given}}

    def message(left_s: float) -> Message:
        alone = call.message(left_s)
        return Message({**alone.headers, **headers}, alone.body)

    return replace(call, message=message, repeatable=False)


def end_sequence(pipeline: str, id: str, version: int | None) -> Call[None]:
    """Needs no record; may be sent again, since a sequence that is no more is ended."""
    path = _predict_path(pipeline, version)
    return Call("DELETE", path, lambda left_s: Message({"X-Sequence-Id": id, **_deadline(left_s)}), lambda answer: None)


def predict_many(
    pipeline: str, records: Sequence[Mapping[str, object]], version: int | None
) -> Call[list[Prediction | ForwardpassError]]:
    """Many records in one request, each with its own outcome. Raises as ``predict``."""
    instances = [dict(record) for record in records]
    return _predict_call(
        pipeline, version, "", {"instances": instances}, lambda answer: _read_predictions(answer, len(instances))
    )


def infer(
    pipeline: str, inputs: Mapping[str, Array], outputs: Iterable[str] | None, version: int | None
) -> Call[dict[str, Array]]:
    """V2 with binary tensors both ways. Raises TypeError for an array that has no V2 datatype."""
    described: list[dict[str, object]] = []
    buffers: list[bytes | memoryview] = []
    for name, array in inputs.items():
        datatype, data, size = _tensor(name, array)
        parameters = {"binary_data_size": size}
        described.append({"name": name, "shape": array.shape, "datatype": datatype, "parameters": parameters})
        buffers.append(data)
    head: dict[str, object] = {"inputs": described}
    if outputs is not None:
        head["outputs"] = [{"name": name} for name in outputs]

    def message(left_s: float) -> Message:
        timeout_us = max(1, int(left_s * 1e6))  # in V2 the deadline is a parameter, not a header
        text = orjson.dumps({**head, "parameters": {"binary_data_output": True, "timeout": timeout_us}})
        headers = {"Content-Type": "application/octet-stream", HEAD_LENGTH: str(len(text))}
        return Message(headers, b"".join([text, *buffers]))

    return Call("POST", f"{_model_path(pipeline, version)}/infer", message, _tensors)


def metadata(pipeline: str, version: int | None) -> Call[dict[str, Any]]:
    return Call("GET", _model_path(pipeline, version), _nothing, _object)


def health(what: str) -> Call[None]:
    return Call("GET", f"/v2/health/{what}", _nothing, lambda answer: None)


def value(call: Call[T], answer: Answer) -> T:
    """What the call is for. Raises ForwardpassError for any other answer."""
    if answer.status != 200:
        raise _error_of(answer)
    try:
        return call.read(answer)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = {"code": "bad_answer", "message": "the answer cannot be read; is this a forwardpass server?"}
        raise _error(told, answer, answer.status) from error


def _error_of(answer: Answer) -> ForwardpassError:
    """In the predict dialect, in V2 or in nobody's."""
    try:
        body = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        body = None
    told = body.get("error") if isinstance(body, dict) else None
    if isinstance(told, str):
        told = {**body, "message": told}
    elif not isinstance(told, dict):
        told = {"message": f"the answer is HTTP status {answer.status} and not from a forwardpass server"}
    return _error(told, answer, answer.status)


def _error(told: Mapping[str, Any], answer: Answer, status: int | None) -> ForwardpassError:
    headers = answer.headers
    error = error_class(status)(
        str(told.get("code") or headers.get("X-Error-Code") or NO_CODE),
        str(told.get("message", ""))[:MESSAGE_CHARACTERS_MAX],
        field=str(told.get("field") or ""),
        request_id=str(told.get("request_id") or headers.get("X-Request-Id", "")),
        status=status,
    )
    advice = headers.get("Retry-After", "")
    if isinstance(error, OverloadedError) and advice.isascii() and advice.isdigit():
        error.retry_after_s = float(advice)  # the other form, a date, is never sent by the server: our own wait serves
    return error


def _nothing(left_s: float) -> Message:
    return Message({})


def _predict_call(
    pipeline: str, version: int | None, query: str, content: object, read: Callable[[Answer], T]
) -> Call[T]:
    body = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_foreign).encode()

    def message(left_s: float) -> Message:
        return Message({"Content-Type": "application/json", **_deadline(left_s)}, body)

    return Call("POST", _predict_path(pipeline, version) + query, message, read)


def _deadline(left_s: float) -> dict[str, str]:
    return {"X-Request-Deadline-Ms": str(max(1, int(left_s * 1000)))}


def _predict_path(pipeline: str, version: int | None) -> str:
    return f"/predict/{_segment(pipeline)}" + ("" if version is None else f"/{int(version)}")


def plain(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Dicts, lists and Python's own numbers, all the way down, of any mappings, of tuples and of numpy's values.

    ``leaf`` says what becomes of everything else.
    """
    match value:
        case np.ndarray() | np.generic():
            found = value.tolist()
            return plain(found, leaf) if value.dtype.kind in TEXT_KINDS else found
        case Mapping():
            return {name: plain(each, leaf) for name, each in value.items()}
        case list() | tuple():
            return list(value) if _SIMPLE.issuperset(map(type, value)) else [plain(each, leaf) for each in value]
    return leaf(value)


def as_it_is(value: Any) -> Any:
    return value


def as_base64(value: Any) -> Any:
    """Bytes as JSON has them; what is none, as it is."""
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes | bytearray | memoryview) else value


def _foreign(value: object) -> object:
    """What json cannot write itself, as the predict dialect wants it."""
    found = plain(value, as_base64)
    if found is value:
        raise TypeError(f"a field cannot be a {type(value).__name__}")
    return found


def _model_path(pipeline: str, version: int | None) -> str:
    return f"/v2/models/{_segment(pipeline)}" + ("" if version is None else f"/versions/{int(version)}")


def _segment(name: str) -> str:
    if name in ("", ".", ".."):  # these would lead to another path
        raise ValueError(f"{name!r} is not the name of a pipeline")
    return quote(name, safe="")


def _tensor(name: str, array: Array) -> tuple[str, bytes | memoryview, int]:
    """An array's V2 datatype, and its elements as they are on the wire with their size in bytes."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"input {name!r} must be a numpy array, got a {type(array).__name__}")
    if array.dtype.kind in TEXT_KINDS:
        packed = pack_bytes(_element(name, element) for element in array.ravel().tolist())
        return "BYTES", packed, len(packed)
    datatype = DATATYPES.get(array.dtype.name)
    if datatype is None:
        allowed = ", ".join(DATATYPES)
        raise TypeError(f"input {name!r} is an array of {array.dtype.name}; allowed are {allowed}, str and bytes")
    contiguous = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    return datatype, contiguous.data, contiguous.nbytes


def _element(name: str, element: object) -> bytes:
    match element:
        case str():
            return element.encode()
        case bytes():
            return element
    raise TypeError(f"input {name!r} has an element that is neither str nor bytes: a {type(element).__name__}")


def _object(answer: Answer) -> dict[str, Any]:
    body = orjson.loads(answer.body)
    if not isinstance(body, dict):
        raise TypeError("not a JSON object")
    return body


def _read_prediction(answer: Answer) -> Prediction:
    body = _object(answer)
    return _prediction(body, answer, body.get("receipt"))


def _read_predictions(answer: Answer, count: int) -> list[Prediction | ForwardpassError]:
    results = _object(answer)["results"]
    if len(results) != count:
        raise ValueError(f"{len(results)} results for {count} records")
    return [_result(result, answer) for result in results]


def _result(result: Mapping[str, Any], answer: Answer) -> Prediction | ForwardpassError:
    if "error" not in result:
        return _prediction(result, answer, None)
    told = result["error"]
    return _error(told, answer, STATUSES.get(told["code"]))  # the status it would have had alone


def _prediction(result: Mapping[str, Any], answer: Answer, receipt: dict[str, Any] | None) -> Prediction:
    headers = answer.headers
    return Prediction(
        outputs=result["outputs"],
        notes=result.get("notes", []),
        receipt=receipt,
        pipeline=headers["X-Pipeline"],
        version=int(headers["X-Pipeline-Version"]),
        digest=headers["X-Pipeline-Digest"],
        request_id=headers["X-Request-Id"],
    )


def _tensors(answer: Answer) -> dict[str, Array]:
    position = int(answer.headers[HEAD_LENGTH])
    rest = memoryview(answer.body)
    arrays: dict[str, Array] = {}
    for output in orjson.loads(rest[:position])["outputs"]:
        end = position + output["parameters"]["binary_data_size"]
        if end > len(rest):
            raise ValueError("the body ends before its tensors do")
        arrays[output["name"]] = _array(output["datatype"], output["shape"], rest[position:end])
        position = end
    if position != len(rest):
        raise ValueError("bytes are left after the last tensor")
    return arrays


def _array(datatype: str, shape: Sequence[int], data: memoryview) -> Array:
    """A writable array of this machine's byte order; BYTES becomes an object array of bytes."""
    if min(shape, default=0) < 0:
        raise ValueError("a negative dimension")
    if datatype == "BYTES":
        elements = unpack_bytes(data, prod(shape))
        array = np.empty(len(elements), dtype=object)
        array[:] = elements
        return array.reshape(shape)
    dtype = np.dtype(NUMPY_NAMES[datatype]).newbyteorder("<")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))
