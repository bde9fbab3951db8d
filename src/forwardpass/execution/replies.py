"""The worker's half of the wire: a Run frame's bytes to columns, and the rows that came out to a Done frame.

Items that were run by themselves, and rows of an item that were, are put together again as if they had run together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.pipeline import ENCODED, Field, Padding
from forwardpass.core.tensor import ITEM_BYTES, NUMPY_NAMES, pack_bytes, unpack_bytes, unpack_texts
from forwardpass.core.tokens import TokenIds, holds_token_ids, unpack_token_ids
from forwardpass.execution.answers import no_rows
from forwardpass.execution.padding import cut, pad, padded_length
from forwardpass.execution.wire import ANSWER_BYTES_MAX, OutputMeta, PartMeta, Run, WireError, split
from forwardpass.steps.protocol import Batch, Column, object_column, text_column

Buffers = list[bytes | memoryview]
Shape = tuple[int, ...]

_JSON = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a Done frame holds but the durations."""

    parts: list[PartMeta]
    outputs: list[OutputMeta]
    buffers: Buffers


def columns_of(fields: Sequence[Field], run: Run, payload: memoryview, padding: Padding | None) -> dict[str, Column]:
    """All items' rows end to end, by field name; rows of different length are padded as the pipeline says."""
    if len(run.shapes) != len(fields) or len(run.sizes) != len(fields):
        raise WireError("another number of columns than the signature has")
    columns: dict[str, Column] = {}
    for field, shapes, buffer in zip(fields, run.shapes, split(payload, run.sizes), strict=True):
        if len(shapes) == 1:
            columns[field.name] = _column(field, buffer, sum(run.rows), shapes[0])
            continue
        if padding is None or field.name not in padding.fields:
            raise WireError("rows of different shape without padding")
        pieces = split(
            buffer,
            [rows * prod(shape) * ITEM_BYTES[field.datatype] for rows, shape in zip(run.rows, shapes, strict=True)],
        )
        arrays = [
            _column(field, piece, rows, shape) for piece, rows, shape in zip(pieces, run.rows, shapes, strict=True)
        ]
        columns[field.name] = pad(arrays, padding, field.name)
    return columns


def count_padding(batch: Batch, run: Run, padding: Padding | None) -> None:
    """What rows were filled up with as they were put together."""
    lengths = _own_lengths(run, padding)
    if lengths is not None and padding is not None:
        each = [length for length, rows in zip(lengths, run.rows, strict=True) for _ in range(rows)]
        batch.count_padding(each, padded_length(lengths, padding.buckets))


def reply_of(batch: Batch, fields: Sequence[Field], run: Run, padding: Padding | None) -> Reply:
    """One batch of all items of ``run``: parts, and outputs cut into items. Raises Failed for an item too large."""
    parts = _parts(batch, run.rows)
    alive = [part.rows for part in parts]
    lengths = _own_lengths(run, padding)
    metas: list[OutputMeta] = []
    buffers: Buffers = []
    for field in fields:
        column = batch.columns[field.name]
        # Rows of one size: nothing is done item by item.
        if lengths is None and field.datatype != "BYTES" and field.kind != "ragged":
            data = _bytes(field, column)
            size = len(data) // batch.rows if batch.rows else 0
            metas.append(OutputMeta(field.name, field.datatype, [[column.shape[1:]]], [rows * size for rows in alive]))
            buffers.append(data)
            continue
        pieces = [column[start:end] for start, end in pairwise(accumulate(alive, initial=0))]
        if field.kind == "ragged":
            pieces = [_stacked(field, piece) for piece in pieces]
        if lengths is not None and padding is not None:
            padded = padded_length(lengths, padding.buckets)
            pieces = [cut(piece, field, length, padded) for piece, length in zip(pieces, lengths, strict=True)]
        encoded = [_encoded(field, piece) for piece in pieces]
        metas.append(OutputMeta(field.name, field.datatype, _shapes(field, pieces), [len(e) for e in encoded]))
        buffers.extend(encoded)
    if sum(map(len, buffers)) > ANSWER_BYTES_MAX:
        largest = max(map(sum, zip(*(meta.sizes for meta in metas), strict=True)))
        if largest > ANSWER_BYTES_MAX:
            raise too_large(largest)
    return Reply(parts, metas, buffers)


def too_large(size: int) -> Failed:
    """The failure of a request whose outputs are more than an answer may hold."""
    text = f"the answer would have {size} bytes of outputs; at most {ANSWER_BYTES_MAX} are allowed"
    return Failed(Code.OUTPUT_TOO_LARGE, text)


def per_item(
    columns: Mapping[str, Column], run: Run, padding: Padding | None
) -> Iterator[tuple[int, dict[str, Column]]]:
    """Each item's rows by themselves, without the padding they had for the batch's sake."""
    lengths = _own_lengths(run, padding)
    for item, (start, end) in enumerate(pairwise(accumulate(run.rows, initial=0))):
        own = {name: column[start:end] for name, column in columns.items()}
        if lengths is not None and padding is not None:
            own.update({name: own[name][:, : lengths[item]] for name in padding.fields if name in own})
        yield end - start, own


def merged(replies: Sequence[Reply | Failure], fields: Sequence[Field]) -> Reply:
    """Replies of items that ran one by one, each by itself, as if they had run together."""
    parts: list[PartMeta] = []
    for reply in replies:
        if isinstance(reply, Failure):
            parts.append(PartMeta(0, [], [], _told(reply)))
        else:
            parts.extend(reply.parts)
    metas: list[OutputMeta] = []
    buffers: Buffers = []
    for index, field in enumerate(fields):
        shapes: list[list[Shape]] = []
        sizes: list[int] = []
        for reply in replies:
            if isinstance(reply, Failure):
                shapes.append([()])
                sizes.append(0)
            else:
                shapes.extend(reply.outputs[index].shapes)
                sizes.extend(reply.outputs[index].sizes)
                buffers.append(reply.buffers[index])
        metas.append(OutputMeta(field.name, field.datatype, shapes, sizes))
    return Reply(parts, metas, buffers)


def joined_rows(replies: Sequence[Reply | Failure], fields: Sequence[Field]) -> Reply:
    """Replies of an item's rows that ran one by one, as the reply of the item."""
    failures: list[tuple[int, str, str, str, str]] = []
    notes: list[tuple[int, str, dict[str, Any]]] = []
    there: list[Reply] = []
    for row, reply in enumerate(replies):
        if isinstance(reply, Failure):
            failures.append((row, *_told(reply)))
            continue
        (part,) = reply.parts
        failures += [(row, code, text, detail, field) for _, code, text, detail, field in part.failures]
        notes += [(row, name, value) for _, name, value in part.notes]
        if part.rows:
            there.append(reply)
    metas: list[OutputMeta] = []
    buffers: Buffers = []
    for index, field in enumerate(fields):
        shapes = [reply.outputs[index].shapes[0][0] for reply in there]
        if not shapes:
            shapes = [no_rows(field).shape[1:]]
        buffers.append(b"".join([reply.buffers[index] for reply in there]))
        same = shapes[:1] if shapes.count(shapes[0]) == len(shapes) else shapes
        metas.append(OutputMeta(field.name, field.datatype, [same], [len(buffers[-1])]))
    tokens = sum(reply.parts[0].tokens for reply in there)
    return Reply([PartMeta(len(there), failures, notes, tokens=tokens)], metas, buffers)


def _told(failure: Failure) -> tuple[str, str, str, str]:
    return failure.code.value, failure.text, failure.detail, failure.field


def _parts(batch: Batch, rows: Sequence[int]) -> list[PartMeta]:
    """Per item the rows that are alive, the failures, the notes and the tokens."""
    if not batch.failures and not batch.notes and not batch.tokens:
        return [PartMeta(count, [], []) for count in rows]
    parts: list[PartMeta] = []
    for start, end in pairwise(accumulate(rows, initial=0)):
        failures = [
            (place - start, *_told(failure))
            for place, failure in sorted(batch.failures.items())
            if start <= place < end
        ]
        notes = [(place - start, name, value) for place, name, value in batch.notes if start <= place < end]
        alive = [place for place in range(start, end) if place not in batch.failures]
        tokens = sum([batch.tokens.get(place, 0) for place in alive])
        parts.append(PartMeta(len(alive), failures, notes, tokens=tokens))
    return parts


def _column(field: Field, buffer: memoryview, rows: int, shape: Shape) -> Column:
    if field.datatype != "BYTES":
        return np.frombuffer(buffer, dtype=_numpy(field.datatype)).reshape(rows, *shape)
    raw = unpack_bytes(buffer, rows * prod(shape))
    if field.kind in ENCODED:
        return text_column(raw)
    if field.kind == "texts":
        return object_column([None if element is None else unpack_texts(element) for element in raw])
    if field.ids and any(element is not None and holds_token_ids(element) for element in raw):
        return object_column([_text_or_ids(element) for element in raw])
    return text_column([None if element is None else element.decode() for element in raw]).reshape(rows, *shape)


def _text_or_ids(element: bytes | None) -> str | TokenIds | None:
    if element is None:
        return None
    return unpack_token_ids(element) if holds_token_ids(element) else element.decode()


def _stacked(field: Field, piece: Column) -> Column:
    """The rows of one item in one array, where they are of one shape."""
    if not len(piece):
        return no_rows(replace(field, kind="tensor"))
    if any(value.shape != piece[0].shape for value in piece):
        return piece
    return np.stack(list(piece))


def _unlike(field: Field, piece: Column) -> bool:
    """Whether its rows have shapes of their own still."""
    return piece.dtype == object and field.kind == "ragged"


def _shapes(field: Field, pieces: Sequence[Column]) -> list[list[Shape]]:
    if any(_unlike(field, piece) for piece in pieces):
        return [[row.shape for row in piece] if _unlike(field, piece) else [piece.shape[1:]] for piece in pieces]
    shapes = [piece.shape[1:] for piece in pieces]
    return [shapes[:1]] if shapes.count(shapes[0]) == len(shapes) else [[shape] for shape in shapes]


def _encoded(field: Field, piece: NDArray[Any]) -> bytes | memoryview:
    if _unlike(field, piece):
        return b"".join([bytes(_encoded(field, row[np.newaxis])) for row in piece])
    if field.kind in ("json", "texts"):
        return pack_bytes(_JSON.encode(value) for value in piece)
    if field.datatype == "BYTES":
        return pack_bytes(v.encode() if isinstance(v, str) else v for v in piece.reshape(-1))
    return _bytes(field, piece)


def _bytes(field: Field, column: Column) -> memoryview:
    """Of numbers: as they are in memory, where that is the wire's form."""
    return np.ascontiguousarray(column, dtype=_numpy(field.datatype)).reshape(-1).view(np.uint8).data


@cache
def _numpy(datatype: str) -> "np.dtype[Any]":
    return np.dtype(NUMPY_NAMES.get(datatype, "uint16")).newbyteorder("<")


def _own_lengths(run: Run, padding: Padding | None) -> list[int] | None:
    """Per item the length of its padded rows, or None when nothing was padded."""
    if padding is None:
        return None
    ragged = next((shapes for shapes in run.shapes if len(shapes) > 1), None)
    return None if ragged is None else [shape[0] for shape in ragged]
