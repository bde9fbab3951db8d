"""Records of plain values to the tensors of a request, and an answer's tensors back to plain values.

Used by the predict dialect, golden examples and the Python client; the V2 dialect names tensors itself but shares the
bounds. Types are strict: "1" is not a number, true is not 1, 1.0 is not an integer; only a dialect makes ``TokenIds``.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from math import ceil, nan, prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import ENCODED, Field, Input, Signature
from forwardpass.core.request import Answer
from forwardpass.core.tensor import ITEM_BYTES, NUMPY_NAMES, Tensor, byte_offsets, pack_bytes, pack_texts, unpack_bytes
from forwardpass.core.tokens import ID_BYTES, TokenIds, pack_token_ids
from forwardpass.pipeline.bounds import (
    FLOATS,
    At,
    check_bools,
    check_lengths,
    check_numbers,
    check_shape,
    check_texts,
    element_at,
    may_be_missing,
    pack_numbers,
    refuse,
    unknown_field,
)

Record = Mapping[str, object]


def encode(signature: Signature, records: Sequence[Record], *, root: str | None = None) -> tuple[list[Tensor], int]:
    """One tensor per column of the signature, in its order, and the number of rows.

    Refusals name a value as ``/name`` when there is one record, else as ``<root>/<row>/name``; with a ``root`` always.
    Raises Refused.
    """
    if not records:
        raise refuse(Code.MISSING_FIELD, root or "the body", "at least one record is required")
    places = [""] if len(records) == 1 and root is None else [f"{root or ''}/{row}" for row in range(len(records))]
    _check_names(signature.inputs, records, places)
    tensors: list[Tensor] = []
    for given in signature.inputs:
        values = [record.get(given.name) for record in records]
        if given.type == "record":
            tensors += _record(values, given, [f"{place}/{given.name}" for place in places])
        else:
            tensors.append(encode_column(signature, given, values, _namer(places, given.name)))
    return tensors, len(records)


def encode_column(signature: Signature, given: Input, values: Sequence[object], at: At) -> Tensor:
    """The tensor of one input that is no record, of a value for each row; ``at`` names these. Raises Refused."""
    if given.name in signature.token_inputs and any(isinstance(value, TokenIds) for value in values):
        return _texts_or_ids(values, given, at)
    return _column(given.type, values, given, at)


def decode(answer: Answer, *, arrays: bool = False) -> list[dict[str, object] | Failure]:
    """Per row of the request its outputs as plain values, or why it has none.

    Scalars for shape (), else lists; text as str, bytes as base64; NaN and infinities, which JSON has not, as None.
    With ``arrays`` numbers stay numpy, for an encoder that takes them: quicker, and FP32 keeps its short form.
    """
    kinds = {field.name: field.kind for field in answer.signature.outputs}
    columns = {
        name: _rows_apart(tensor, name, kinds.get(name, "tensor"), arrays)
        if tensor.shapes
        else list(_array(tensor))
        if arrays and tensor.datatype in NUMPY_NAMES and tensor.datatype != "FP16"
        else plain(tensor, name, kinds.get(name, "tensor"))
        for name, tensor in answer.outputs.items()
    }
    rows: list[dict[str, object] | Failure] = []
    place = 0
    for row in range(answer.rows):
        if row in answer.failures:
            rows.append(answer.failures[row])
        else:
            rows.append({name: values[place] for name, values in columns.items()})
            place += 1
    return rows


def _rows_apart(tensor: Tensor, name: str, kind: str, arrays: bool) -> list[Any]:
    """The rows of a tensor whose rows have shapes of their own."""
    ends = [0, *accumulate(map(prod, tensor.shapes))]  # counted in elements
    if tensor.datatype == "BYTES":
        offsets = byte_offsets(tensor.data, ends[-1])
        ends = [offsets[end] for end in ends]
    else:
        ends = [end * ITEM_BYTES[tensor.datatype] for end in ends]
    rows: list[Any] = []
    for shape, (start, end) in zip(tensor.shapes, pairwise(ends), strict=True):
        row = Tensor(tensor.datatype, (1, *shape), memoryview(tensor.data)[start:end])
        numbers = arrays and tensor.datatype in NUMPY_NAMES and tensor.datatype != "FP16"
        rows += list(_array(row)) if numbers else plain(row, name, kind)
    return rows


def plain(tensor: Tensor, name: str, kind: str) -> list[Any]:
    """A tensor's rows as plain values, nested as its shape says. Raises Failed for text that is not UTF-8."""
    if tensor.datatype != "BYTES":
        return _plain_numbers(tensor)
    elements = unpack_bytes(tensor.data, prod(tensor.shape))
    try:
        values = [None if element is None else _plain_bytes(element, kind) for element in elements]
    except UnicodeDecodeError:
        raise Failed(Code.STEP_FAILED, f"output '{name}' holds bytes that are not UTF-8 text", field=name) from None
    if len(tensor.shape) == 1:
        return values
    return list(np.array(values, dtype=object).reshape(tensor.shape).tolist())


def _plain_bytes(element: bytes, kind: str) -> Any:
    if kind in ("json", "texts"):
        return msgspec.json.decode(element)
    return base64.b64encode(element).decode("ascii") if kind in ENCODED else element.decode()


def _plain_numbers(tensor: Tensor) -> list[Any]:
    numbers = _array(tensor)
    if tensor.datatype in FLOATS and not (finite := np.isfinite(numbers)).all():
        values = numbers.astype(object)
        values[~finite] = None
        return list(values.tolist())
    return list(numbers.tolist())


def _array(tensor: Tensor) -> NDArray[Any]:
    if tensor.datatype == "BF16":  # the upper half of a float32
        halves = np.frombuffer(tensor.data, dtype="<u2").astype("<u4") << 16
        return halves.view("<f4").reshape(tensor.shape)
    dtype = np.dtype(NUMPY_NAMES[tensor.datatype]).newbyteorder("<")
    return np.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape)


def _namer(places: Sequence[str], name: str) -> At:
    return lambda row: f"{places[row]}/{name}"


def _check_names(inputs: Sequence[Input], records: Sequence[object], places: Sequence[str]) -> None:
    names = {given.name for given in inputs}
    for record, place in zip(records, places, strict=True):
        if not isinstance(record, Mapping):
            raise refuse(Code.WRONG_TYPE, place or "the body", f"expected an object, got {_kind(record)}")
        keys = record.keys()
        if keys == names:
            continue
        for key in keys:
            if key not in names:
                raise unknown_field(str(key), sorted(names), place)
        for given in inputs:
            if given.name not in keys and not given.missing:
                where = f"{place}/{given.name}"
                raise Refused(Code.MISSING_FIELD, f"{where} is required ({given.type})", field=where)


def _record(values: Sequence[object], given: Input, places: Sequence[str]) -> list[Tensor]:
    names = given.columns.keys()
    records: list[Record] = []
    for value, place in zip(values, places, strict=True):
        if not isinstance(value, Mapping):
            raise refuse(Code.WRONG_TYPE, place, f"expected an object, got {_kind(value)}")
        if unknown := [key for key in value if key not in names]:
            raise unknown_field(str(unknown[0]), tuple(names), place)
        records.append(value)
    return [
        _column(kind, [record.get(name) for record in records], given, _namer(places, name))
        for name, kind in given.columns.items()
    ]


def _column(kind: str, values: Sequence[object], given: Input, at: At) -> Tensor:
    if kind == "tensor":
        return _tensor(values, Field(given.name, given.datatype, given.shape), at)
    if kind == "number":
        numbers = [_number(value, given, at, row) for row, value in enumerate(values)]
        check_numbers(numbers, given, at)
        return Tensor("FP64", (len(values),), pack_numbers("FP64", numbers, at))
    if kind == "texts":
        return Tensor(
            "BYTES", (len(values),), pack_bytes([_texts(value, given, at, row) for row, value in enumerate(values)])
        )
    read = _bytes if kind in ENCODED else _text
    elements = [None if value is None else read(value, at, row) for row, value in enumerate(values)]
    check_lengths(elements, given, at)
    return Tensor("BYTES", (len(values),), pack_bytes(elements))


def _texts_or_ids(values: Sequence[object], given: Input, at: At) -> Tensor:
    elements = [_text_or_ids(value, given, at, row) for row, value in enumerate(values)]
    return Tensor("BYTES", (len(values),), pack_bytes(elements))


def _text_or_ids(value: object, given: Input, at: At, row: int) -> bytes | None:
    if isinstance(value, TokenIds):
        return _token_ids(value, given, at(row))
    element = None if value is None else _text(value, at, row)
    check_lengths([element], given, lambda _: at(row))
    return element


def _token_ids(value: TokenIds, given: Input, where: str) -> bytes:
    """Within the input's bounds in bytes, of which each id counts as ID_BYTES."""
    count, shortest, longest = len(value.ids), given.bytes_min or 0, given.longest
    if longest is not None and count > longest // ID_BYTES:
        text = f"has {count} token ids; at most {longest // ID_BYTES} are allowed"
        raise refuse(Code.INPUT_TOO_LARGE, where, text)
    if count * ID_BYTES < shortest:
        text = f"has {count} token ids; at least {ceil(shortest / ID_BYTES)} are needed"
        raise refuse(Code.OUT_OF_RANGE, where, text)
    return pack_token_ids(value.ids, where)


def _number(value: object, given: Input, at: At, row: int) -> float:
    if value is None and may_be_missing(given):
        return nan
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise refuse(Code.WRONG_TYPE, at(row), f"expected a number, got {_kind(value)}")
    try:
        return float(value)
    except OverflowError:
        raise refuse(Code.OUT_OF_RANGE, at(row), "the number is too large") from None


def _text(value: object, at: At, row: int) -> bytes:
    if not isinstance(value, str):
        raise refuse(Code.WRONG_TYPE, at(row), f"expected a string, got {_kind(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise refuse(Code.INVALID_UTF8, at(row), "holds half a surrogate pair") from None


def _texts(value: object, given: Input, at: At, row: int) -> bytes:
    if not isinstance(value, list | tuple):
        raise refuse(Code.WRONG_TYPE, at(row), f"expected a list of strings, got {_kind(value)}")
    elements = [_text(element, element_at(at(row), (len(value),)), place) for place, element in enumerate(value)]
    check_texts(elements, given, at(row))
    return pack_texts([element.decode() for element in elements])


def _bytes(value: object, at: At, row: int) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise refuse(Code.WRONG_TYPE, at(row), f"expected bytes as a base64 string, got {_kind(value)}")
    try:
        decoded = binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
    except ValueError:
        decoded = b""
    # Encoding it again also refuses stray bits after the last byte: one value has one text.
    if base64.b64encode(decoded) != value.encode(errors="replace"):
        raise refuse(Code.INVALID_INPUT, at(row), "is not standard base64 with padding")
    return decoded


def _tensor(values: Sequence[object], field: Field, at: At) -> Tensor:
    shape: tuple[int, ...] | None = None
    parts: list[bytes] = []
    for row, value in enumerate(values):
        found, packed = (
            _array_row(value, field, at, row) if isinstance(value, np.ndarray) else _list_row(value, field, at, row)
        )
        check_shape(found, field.shape, at(row))
        if shape is not None and found != shape:
            raise refuse(
                Code.SHAPE_MISMATCH,
                at(row),
                f"rows must be equal: the first has shape {list(shape)}, this one {list(found)}",
            )
        shape = found
        parts.append(packed)
    return Tensor(field.datatype, (len(values), *(shape or ())), b"".join(parts))


def _array_row(array: NDArray[Any], field: Field, at: At, row: int) -> tuple[tuple[int, ...], bytes]:
    """Any strides and byte order are right; any other datatype than the field's is not."""
    if field.datatype == "BYTES" and array.dtype.kind in "UO":
        return array.shape, _pack(array.ravel().tolist(), field.datatype, element_at(at(row), array.shape))
    wanted = NUMPY_NAMES.get(field.datatype, "bfloat16")
    if array.dtype.newbyteorder("=").name != wanted:
        raise refuse(Code.DATATYPE_MISMATCH, at(row), f"expected {field.datatype}, got an array of {array.dtype.name}")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return array.shape, little.tobytes()


def _list_row(value: object, field: Field, at: At, row: int) -> tuple[tuple[int, ...], bytes]:
    """Lists nested as the field's shape, or one flat list where the shape leaves nothing open."""
    rank = len(field.shape)
    if rank == 0:
        return (), _pack([value], field.datatype, lambda _: at(row))
    if not isinstance(value, list | tuple):
        raise refuse(Code.WRONG_TYPE, at(row), f"expected a list, got {_kind(value)}")
    if rank > 1 and -1 not in field.shape and not any(isinstance(item, list | tuple) for item in value):
        if len(value) != prod(field.shape):
            raise refuse(Code.SHAPE_MISMATCH, at(row), f"expected {prod(field.shape)} elements, got {len(value)}")
        return field.shape, _pack(value, field.datatype, element_at(at(row), (len(value),)))
    shape: list[int] = []
    level: list[Any] = [value]
    for wanted in field.shape:
        if not all(isinstance(item, list | tuple) for item in level):
            raise refuse(Code.SHAPE_MISMATCH, at(row), f"expected lists nested {rank} deep")
        sizes = set(map(len, level)) or {max(wanted, 0)}
        if len(sizes) > 1:
            raise refuse(Code.SHAPE_MISMATCH, at(row), f"lists of one level differ in length: {sorted(sizes)[:4]}")
        shape += sizes
        level = list(chain.from_iterable(level))
    return tuple(shape), _pack(level, field.datatype, element_at(at(row), shape))


def _pack(values: Sequence[Any], datatype: str, at: At) -> bytes:
    allowed, expected = _ELEMENTS[datatype if datatype in _ELEMENTS else "FP" if datatype in FLOATS else "INT"]
    if not set(map(type, values)) <= allowed:
        index = next(index for index, value in enumerate(values) if type(value) not in allowed)
        raise refuse(Code.WRONG_TYPE, at(index), f"expected {expected}, got {_kind(values[index])}")
    if datatype == "BYTES":
        return pack_bytes([_text(value, at, index) for index, value in enumerate(values)])
    if datatype == "BOOL":
        check_bools(values, at)
    return pack_numbers(datatype, values, at)


_ELEMENTS: dict[str, tuple[set[type], str]] = {
    "BYTES": ({str}, "a string"),
    "BOOL": ({bool, int}, "a boolean"),
    "FP": ({float, int}, "a number"),
    "INT": ({int}, "an integer"),
}


def _kind(value: object) -> str:
    """What a value is, in JSON's words."""
    for types, word in _KINDS:
        if isinstance(value, types):
            return word
    return "something else"


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, np.integer), "an integer"),
    ((float, np.floating), "a number"),
    (str, "a string"),
    ((bytes, bytearray, memoryview), "bytes"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
    (np.ndarray, "an array"),
    (TokenIds, "token ids"),
    (type(None), "null"),
)
