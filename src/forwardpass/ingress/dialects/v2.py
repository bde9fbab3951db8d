"""The Open Inference Protocol (V2) over REST: an infer body to a Request and an Answer to an infer body.

JSON and the binary tensor extension, mixed as well. Deviations a client can see: NaN and infinities are null in JSON
answers (the binary form carries them), text tensors must be UTF-8, BF16 travels only as binary data, FP16 may be sent
but is not answered as JSON, every answer has an id, a ``timeout`` that passes is 504 whether the request waited or ran.
"""

from collections.abc import Callable, Sequence
from math import nan, prod
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from forwardpass.core.errors import Code, Refused, show
from forwardpass.core.pipeline import Field, Input, Signature
from forwardpass.core.request import Request
from forwardpass.core.tensor import ITEM_BYTES, Tensor, pack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.envelope import receipt_asked
from forwardpass.ingress.dialects.number_lists import EMPTY, LONG_BYTES_MIN, cut_out
from forwardpass.ingress.dialects.v2_input import InferInput, Parameters, to_column
from forwardpass.ingress.dialects.v2_parameters import apply_output, apply_parameters, input_bytes
from forwardpass.ingress.dialects.v2_repeated import Repeated, repeated
from forwardpass.ingress.message import HttpRequest
from forwardpass.ingress.strict_json import DECODE_ERRORS, LIMITS, JsonLimits, check_size, count_keys, decode, explain
from forwardpass.pipeline.bounds import may_be_missing, pack_numbers, refuse, unknown_field

HEAD_LENGTH = b"inference-header-content-length"
ID_CHARACTERS_MAX = 256

ValuesOf = Callable[[InferInput, str], msgspec.Raw | memoryview]
"""The values of an input that stands at a place: JSON, or its binary bytes."""


class Remembering(Protocol):
    """What is kept of a head that is repeated."""

    repeated: Repeated | None


class InferOutput(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    parameters: Parameters | UnsetType = UNSET


class InferMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    inputs: list[InferInput]
    id: str | UnsetType = UNSET
    parameters: Parameters | UnsetType = UNSET
    outputs: list[InferOutput] | UnsetType = UNSET
    model_name: str | UnsetType = UNSET  # KServe's client says again what the path says


_decoder = msgspec.json.Decoder(InferMessage)
_HOLE = msgspec.Raw(EMPTY)
_ALLOWED = {
    "": InferMessage.__struct_fields__,
    "/inputs/*": InferInput.__struct_fields__,
    "/outputs/*": InferOutput.__struct_fields__,
}


def decode_infer(
    http: HttpRequest,
    signature: Signature,
    id: str,
    timeline: Timeline,
    limits: JsonLimits = LIMITS,
    *,
    pipeline: str = "",
    asked: Remembering | None = None,
) -> Request:
    """The request an infer call makes of the pipeline that the path names, which the body may name again.

    ``asked`` remembers the last body of a head that is repeated. Raises Refused; never for its Content-Type, which
    clients leave out.
    """
    request = Request(id, [], 0, timeline)
    if asked is not None and asked.repeated is not None and asked.repeated.signature is signature:
        column = asked.repeated.column(http.body)
        if column is not None:
            request.columns.append(column)
            request.rows = column.shape[0]
            return request
    length = http.headers.get(HEAD_LENGTH)
    if http.query:
        request.receipt = receipt_asked(http.query)
    if length is None:
        text, rest = http.body, _Rest(memoryview(b""))
    else:
        head_bytes = _head_bytes(length, len(http.body))
        if head_bytes == 0:
            return _decode_raw(http.body, signature, request)
        text, rest = http.body[:head_bytes], _Rest(memoryview(http.body)[head_bytes:])
    try:
        message, keys_max = _parse(text, limits)
        if message.model_name is not UNSET and message.model_name != pipeline:
            raise refuse(Code.INVALID_INPUT, "/model_name", f'the path names "{show(pipeline)}"')
        fill(request, message, rest.values_of, signature)
        rest.check_all_taken()
    except Refused:
        decode(text, limits)  # a text that is no strict JSON is refused as such, whatever else is wrong with it
        raise
    if keys_max != _keys(message):
        decode(text, limits)
    if asked is not None and length is None and len(text) < LONG_BYTES_MIN:
        asked.repeated = repeated(text, message.inputs, request, signature)
    return request


def _parse(text: bytes, limits: JsonLimits) -> tuple[InferMessage, int]:
    """What a text says, with the data of its inputs unread, and no fewer than the keys it writes. Raises Refused."""
    check_size(text, limits)
    message = _parse_around(text) if len(text) >= LONG_BYTES_MIN else None
    if message is not None:
        return message
    keys_max = count_keys(text, limits)
    try:
        return _decoder.decode(text), keys_max
    except DECODE_ERRORS as error:
        raise explain(error, _ALLOWED) from None


def _parse_around(text: bytes) -> tuple[InferMessage, int] | None:
    """The same without a look at the lists of numbers, which are most of a text; None if that cannot be told so."""
    around, lists = cut_out(text)
    try:
        message = _decoder.decode(around)
    except DECODE_ERRORS:
        return None
    holes = [given for given in message.inputs if given.data == _HOLE]
    if not lists or len(holes) != len(lists):
        return None
    for given, data in zip(holes, lists, strict=True):
        given.data = msgspec.Raw(data)
    return message, around.count(b":")


def _keys(message: InferMessage) -> int:
    """The keys a decoded message has: one per member that was given, one per parameter."""
    keys = 1 + _parameter_keys(message.parameters)
    keys += (message.id is not UNSET) + (message.model_name is not UNSET)
    for given in message.inputs:
        keys += (3 if given.data is UNSET else 4) + _parameter_keys(given.parameters)
    if message.outputs is not UNSET:
        keys += 1
        for output in message.outputs:
            keys += 1 + _parameter_keys(output.parameters)
    return keys


def _parameter_keys(parameters: Parameters | UnsetType) -> int:
    return 0 if parameters is UNSET else 1 + len(parameters)


def fill(request: Request, message: InferMessage, values_of: ValuesOf, signature: Signature) -> None:
    """Everything the message says, checked. ``values_of`` is asked once for each input, in their order."""
    if message.id:
        if len(message.id) > ID_CHARACTERS_MAX:
            raise refuse(Code.OUT_OF_RANGE, "/id", f"at most {ID_CHARACTERS_MAX} characters are allowed")
        request.client_id = message.id
    if message.parameters:
        apply_parameters(request, message.parameters)
    if message.outputs:
        _outputs(request, message.outputs, signature)
    _columns(request, message.inputs, values_of, signature)


def _outputs(request: Request, outputs: Sequence[InferOutput], signature: Signature) -> None:
    known = {field.name: field for field in signature.outputs}
    names: list[str] = []
    for index, output in enumerate(outputs):
        where = f"/outputs/{index}"
        if output.name not in known:
            text = f"'{show(output.name)}' is no output of this pipeline (outputs: {', '.join(known)})"
            raise refuse(Code.UNKNOWN_OUTPUT, f"{where}/name", text)
        if output.name in names:
            raise refuse(Code.INVALID_INPUT, f"{where}/name", f"output '{output.name}' is asked for twice")
        names.append(output.name)
        if output.parameters:
            apply_output(request, known[output.name], output.parameters, where)
    request.outputs = tuple(names)


def _columns(request: Request, inputs: Sequence[InferInput], values_of: ValuesOf, signature: Signature) -> None:
    columns, places = signature.bounds, signature.places
    found: dict[int, Tensor] = {}
    for index, given in enumerate(inputs):
        where = f"/inputs/{index}"
        place = places.get(given.name)
        if place is None:
            raise unknown_field(given.name, tuple(places), where)
        if place in found:
            raise refuse(Code.INVALID_INPUT, f"{where}/name", f"input '{given.name}' is given twice")
        values = values_of(given, where)
        column = to_column(given, where, values, *columns[place], leading=bool(signature.leading))
        if not found:
            request.rows = column.shape[0]
        elif column.shape[0] != request.rows:
            text = f"has {column.shape[0]} rows, the inputs before it {request.rows}"
            raise refuse(Code.SHAPE_MISMATCH, f"{where}/shape", text)
        found[place] = column
    if not found:
        raise refuse(Code.MISSING_FIELD, "/inputs", f"at least one is required ({', '.join(places)})")
    request.columns = [
        found.get(place) or _missing(field, owner, request.rows) for place, (field, owner) in enumerate(columns)
    ]


class _Rest:
    """The bytes after the JSON, given out to the inputs that announce some."""

    __slots__ = ("_position", "_rest")

    def __init__(self, rest: memoryview) -> None:
        self._rest = rest
        self._position = 0

    def values_of(self, given: InferInput, where: str) -> msgspec.Raw | memoryview:
        if given.parameters or given.data is UNSET:
            size = input_bytes(given, where)
            if size is not None:
                return self._take(size, where)
        assert not isinstance(given.data, UnsetType), "an input has data or a size"
        return given.data

    def _take(self, size: int, where: str) -> memoryview:
        start, self._position = self._position, self._position + size
        if self._position > len(self._rest):
            text = f"{size} bytes are announced, {len(self._rest) - start} are left in the body"
            raise refuse(Code.BINARY_SIZE_MISMATCH, f"{where}/parameters/binary_data_size", text)
        return self._rest[start : self._position]

    def check_all_taken(self) -> None:
        if self._position != len(self._rest):
            text = f"the body has {len(self._rest)} bytes after the JSON, its inputs announce {self._position}"
            raise Refused(Code.BINARY_SIZE_MISMATCH, text)


def _missing(field: Field, owner: Input, rows: int) -> Tensor:
    """The column of an input that was left out, if it may be."""
    if not may_be_missing(owner):
        raise refuse(Code.MISSING_FIELD, "/inputs", f"'{field.name}' is required")
    if field.kind == "number":
        return Tensor("FP64", (rows,), pack_numbers("FP64", [nan] * rows, str))
    return Tensor("BYTES", (rows,), pack_bytes([None] * rows))


def _head_bytes(value: bytes, body_bytes: int) -> int:
    if not value.isdigit() or len(value) > 10 or int(value) > body_bytes:
        text = f"Inference-Header-Content-Length must be an integer from 0 to the body's {body_bytes} bytes"
        raise Refused(Code.BAD_REQUEST, text, field="Inference-Header-Content-Length")
    return int(value)


def _decode_raw(body: bytes, signature: Signature, request: Request) -> Request:
    """A body that is nothing but the one input's values: one row, answered in binary."""
    columns = signature.bounds
    if len(columns) != 1:
        names = ", ".join(field.name for field, _ in columns)
        text = (
            f"Inference-Header-Content-Length 0 needs a pipeline with one input, this one has {len(columns)} ({names})"
        )
        raise Refused(Code.BAD_REQUEST, text, field="Inference-Header-Content-Length")
    field, owner = columns[0]
    if field.datatype == "BYTES":
        raw, shape = memoryview(pack_bytes([body])), [1, *(abs(size) for size in field.shape)]
    else:
        raw, shape = memoryview(body), [1, *_deduced(field, len(body))]
    given = InferInput(field.name, shape, field.datatype)
    request.columns = [to_column(given, "", raw, field, owner)]
    request.rows = 1
    request.binary_default = True
    return request


def _deduced(field: Field, body_bytes: int) -> list[int]:
    """The row shape whose one free dimension follows from the size of the body."""
    if field.shape.count(-1) > 1:
        text = f"input '{field.name}' has several free dimensions; its shape must be given in JSON"
        raise Refused(Code.BAD_REQUEST, text, field=field.name)
    fixed = prod(size for size in field.shape if size != -1) * ITEM_BYTES[field.datatype]
    free = body_bytes // fixed if fixed else 0
    return [free if size == -1 else size for size in field.shape]
