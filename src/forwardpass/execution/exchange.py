"""The front's half of the wire: items of a batch to a Run frame, a Done frame back to an Outcome.

A worker's reply is checked like a client's request: every count and length must fit what was asked (FAULTS R6, R7).
"""

from collections.abc import Mapping, Sequence
from math import inf, prod
from types import MappingProxyType

import msgspec

from forwardpass.batching.executor import Outcome
from forwardpass.batching.ticket import Item, Part
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import Field
from forwardpass.core.request import Note
from forwardpass.core.tensor import ITEM_BYTES, Buffer, Tensor
from forwardpass.execution.wire import Frame, OutputMeta, PartMeta, Run, WireError, decode, split

NO_FAILURES: Mapping[int, Failure] = MappingProxyType({})


def run_of(batch: int, items: Sequence[Item], given_up: Sequence[int] = ()) -> tuple[Run, list[Buffer]]:
    """The frame for these items; columns are laid end to end, item after item, so that the worker need not copy."""
    columns = range(len(items[0].columns))
    buffers: list[Buffer] = [item.columns[column] for column in columns for item in items]
    sizes = [sum(len(item.columns[column]) for item in items) for column in columns]
    shapes: list[list[tuple[int, ...]]] = []
    for column in columns:
        each = [item.shapes[column] for item in items]
        shapes.append(each[:1] if each.count(each[0]) == len(each) else each)
    sequences = [item.held and item.held[1:] for item in items]
    rows = [item.rows for item in items]
    until = [inf if item.alone else item.ticket.deadline for item in items]  # who runs alone does so for nobody, too
    return Run(batch, rows, shapes, sizes, sequences if any(sequences) else [], list(given_up), until), buffers


def outcome_of(frame: Frame, items: Sequence[Item], fields: Sequence[Field]) -> Outcome:
    """What a Done frame says, cut into one part per item. Raises WireError when it does not fit items and signature."""
    try:
        done = decode.done.decode(frame.meta)
    except msgspec.MsgspecError as error:
        raise WireError("a Done frame that is none") from error
    if len(done.parts) != len(items):
        raise WireError("another number of parts than items")
    if [(output.name, output.datatype) for output in done.outputs] != [(f.name, f.datatype) for f in fields]:
        raise WireError("other outputs than the signature has")
    for meta, item in zip(done.parts, items, strict=True):
        _check_rows(meta, item.rows)
    outputs: list[list[Tensor]] = [[] for _ in items]
    payloads = split(frame.payload, [sum(output.sizes) for output in done.outputs])
    for output, field, payload in zip(done.outputs, fields, payloads, strict=True):
        _cut(output, field, payload, done.parts, outputs)
    parts = [_part(meta, tensors, item) for meta, tensors, item in zip(done.parts, outputs, items, strict=True)]
    if min(done.elements, done.padding) < 0:
        raise WireError("less than no padding")
    return Outcome(
        parts, done.preprocess_s, done.execute_s, done.postprocess_s, done.begun, done.elements, done.padding
    )


def _check_rows(meta: PartMeta, rows: int) -> None:
    if meta.failure is not None:
        if meta.rows or meta.failures or meta.notes or meta.tokens:
            raise WireError("rows of an item that failed as a whole")
        return
    if meta.tokens < 0:
        raise WireError("a negative number of tokens")
    if meta.rows + len(meta.failures) != rows:
        raise WireError("another number of rows than the item has")
    if meta.failures or meta.notes:
        failed = {row for row, *_ in meta.failures}
        named = failed.union(row for row, *_ in meta.notes)
        if len(failed) != len(meta.failures) or min(named) < 0 or max(named) >= rows:
            raise WireError("a row that the item does not have, or twice")


def _cut(
    output: OutputMeta,
    field: Field,
    payload: memoryview,
    parts: Sequence[PartMeta],
    outputs: Sequence[list[Tensor]],
) -> None:
    """One output's bytes to a tensor per item."""
    count = len(parts)
    if len(output.sizes) != count or len(output.shapes) not in (1, count):
        raise WireError("another number of output slices than items")
    shapes = output.shapes if len(output.shapes) == count else output.shapes * count
    item_bytes = ITEM_BYTES.get(output.datatype)
    start = 0
    for meta, tensors, own, size in zip(parts, outputs, shapes, output.sizes, strict=True):
        if not own or len(own) not in (1, meta.rows):
            raise WireError("another number of row shapes than rows")
        if size < 0 or any(shape and min(shape) < 0 for shape in own):
            raise WireError("a negative size")
        elements = prod(own[0]) * meta.rows if len(own) == 1 else sum(map(prod, own))
        if item_bytes is not None and elements * item_bytes != size:
            raise WireError("a slice of another size than its shape says")
        data = payload[start : start + size]
        if len(own) == 1:
            tensors.append(Tensor(output.datatype, (meta.rows, *own[0]), data))
        else:
            tensors.append(Tensor(output.datatype, (meta.rows, *field.shape), data, own))
        start += size


def _part(meta: PartMeta, outputs: Sequence[Tensor], item: Item) -> Part:
    if not meta.failures and not meta.notes and meta.failure is None:
        return Part(meta.rows, outputs, NO_FAILURES, (), tokens=meta.tokens)
    if meta.failure is not None and item.ticket.several:  # rows of a request that was cut do not depend on each other
        return Part(0, outputs, dict.fromkeys(range(item.rows), failure_of(*meta.failure)), ())
    failures = {row: failure_of(code, text, detail, field) for row, code, text, detail, field in meta.failures}
    notes = [Note(row, name, value) for row, name, value in meta.notes]
    whole = None if meta.failure is None else failure_of(*meta.failure)
    return Part(meta.rows, outputs, failures, notes, whole, tokens=meta.tokens)


def failure_of(code: str, text: str, detail: str, field: str) -> Failure:
    """A failure as the worker named it; a code we do not know is our own defect."""
    try:
        known = Code(code)
    except ValueError:
        return Failed(Code.INTERNAL, "the worker answered with an unknown error", detail=f"{code}: {text}")
    kind = Refused if known in _CALLERS_FAULT else Failed
    return kind(known, text, field=field, detail=detail)


_CALLERS_FAULT = frozenset(
    {
        Code.INVALID_INPUT, Code.INPUT_TOO_LARGE, Code.MISSING_FIELD, Code.WRONG_TYPE, Code.OUT_OF_RANGE,
        Code.INVALID_UTF8, Code.SHAPE_MISMATCH, Code.UNKNOWN_FIELD, Code.DATATYPE_MISMATCH,
        Code.IMAGE_INVALID, Code.IMAGE_TRUNCATED, Code.AUDIO_FORMAT, Code.AUDIO_INVALID, Code.RULE_REFUSED,
        Code.GUARD_BLOCKED,
    }
)  # fmt: skip
"""Codes with which a step in the worker refuses a row; everything else that comes from there is the server's fault."""
