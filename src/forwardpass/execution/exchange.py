"""The front's half of the wire: items of a batch to a Run frame, a Done frame back to an Outcome.

A worker's reply is checked like a client's request: every count and length must fit what was asked (FAULTS R6, R7).
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec

from forwardpass.batching.batcher import Outcome, Part
from forwardpass.batching.ticket import Item, OutputColumn
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.request import Note
from forwardpass.core.tensor import Buffer
from forwardpass.execution.wire import Frame, PartMeta, Run, WireError, decode, split


def run_of(batch: int, items: Sequence[Item]) -> tuple[Run, list[Buffer]]:
    """The frame for these items; columns are laid end to end, item after item, so that the worker need not copy."""
    columns = range(len(items[0].columns))
    buffers: list[Buffer] = [item.columns[column] for column in columns for item in items]
    sizes = [sum(len(item.columns[column]) for item in items) for column in columns]
    shapes: list[list[tuple[int, ...]]] = []
    for column in columns:
        each = [item.shapes[column] for item in items]
        shapes.append(each[:1] if each.count(each[0]) == len(each) else each)
    return Run(batch, [item.rows for item in items], shapes, sizes), buffers


def outcome_of(frame: Frame, items: Sequence[Item]) -> Outcome:
    """What a Done frame says, cut into one part per item. Raises WireError when it does not fit the items."""
    try:
        done = decode.done.decode(frame.meta)
    except msgspec.MsgspecError as error:
        raise WireError("a Done frame that is none") from error
    if len(done.parts) != len(items):
        raise WireError("another number of parts than items")
    for part, item in zip(done.parts, items, strict=True):
        if part.failure is None and part.rows + len(part.failures) != item.rows:
            raise WireError("another number of rows than the item has")
    per_output = split(frame.payload, [sum(output.sizes) for output in done.outputs])
    outputs: list[list[OutputColumn]] = [[] for _ in items]
    for output, payload in zip(done.outputs, per_output, strict=True):
        if len(output.sizes) != len(items) or len(output.shapes) not in (1, len(items)):
            raise WireError("another number of output slices than items")
        shapes = output.shapes if len(output.shapes) == len(items) else output.shapes * len(items)
        bounds = pairwise(accumulate(output.sizes, initial=0))
        for slices, shape, (start, end) in zip(outputs, shapes, bounds, strict=True):
            slices.append(OutputColumn(output.name, output.datatype, shape, payload[start:end]))
    parts = [_part(meta, columns) for meta, columns in zip(done.parts, outputs, strict=True)]
    return Outcome(parts, done.preprocess_s, done.execute_s, done.postprocess_s)


def _part(meta: PartMeta, columns: Sequence[OutputColumn]) -> Part:
    failures = {row: failure_of(code, text, detail, field) for row, code, text, detail, field in meta.failures}
    notes = [Note(row, name, value) for row, name, value in meta.notes]
    whole = None if meta.failure is None else failure_of(*meta.failure)
    return Part(meta.rows, columns, failures, notes, whole)


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
    }
)  # fmt: skip
"""Codes with which a step in the worker refuses a row; everything else that comes from there is the server's fault."""
