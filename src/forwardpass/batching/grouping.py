"""From a request's rows to the items that queue: what they cost, whom they may share a batch with, where they are cut."""

import asyncio
import sys
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from itertools import pairwise
from math import prod

from forwardpass.batching.ticket import Item, Ticket
from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Batch, Field
from forwardpass.core.request import Request
from forwardpass.core.tensor import ITEM_BYTES, Buffer, byte_offsets

DEFAULT_PRIORITY = 5
ON_LOOP_ROWS_MAX = 4096  # cutting more would hold up everybody else
BYTES_PER_TOKEN = 4  # a token of English text is about four bytes: a proxy, the front never tokenizes
COST_MAX = 1e12  # what a row may declare: sums of it stay finite and exact enough to be taken apart again
DEFAULT_TEXT_BUCKETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)

Shape = tuple[int, ...]
Slices = list[tuple[list[Buffer], int]]


class Grouping:
    """Built once per variant from its columns and batch settings; ``cut`` is called for every request."""

    def __init__(
        self,
        columns: Sequence[Field],
        batch: Batch,
        *,
        batched: bool,
        fixed_rows: int | None = None,
        apart: bool = False,
    ) -> None:
        """With ``apart`` rows that may share a batch are cut one by one all the same: each may be known."""
        self._columns = columns
        self._batch = batch
        self._texts = [i for i, column in enumerate(columns) if column.kind in ("text", "texts", "bytes")]
        self._free = [i for i, column in enumerate(columns) if -1 in column.shape or column.datatype == "BYTES"]
        fields = batch.padding.fields if batch.padding else {}
        self._padded = frozenset(i for i, column in enumerate(columns) if column.name in fields)
        self._filled = [i for i in range(len(columns)) if i in self._texts or i in self._padded]
        self._counts_rows = batch.cost == "rows"
        together = batch.enabled and batched
        self._by_length = bool(self._texts) and together
        # A model without an axis for rows, or with one row in it, runs each row by itself; one with more takes just these.
        apart = (apart and together) or (not batched and fixed_rows in (None, 1))
        self._cuts = batch.enabled or apart
        # A batch that ends at a cost takes rows one by one.
        self._piece_rows = 1 if apart or (self._by_length and batch.cost_max is not None) else batch.rows_cut
        self._whole_max = 1 if apart or self._by_length else batch.rows_cut if batched else sys.maxsize
        self._cost_column = next((i for i, column in enumerate(columns) if column.name == batch.cost), None)

    async def cut(self, request: Request, deadline: float, now: float) -> tuple[Ticket, list[Item]]:
        """The request's ticket and its items, in row order. Raises Refused batch_too_large where cutting is not allowed."""
        if request.rows <= ON_LOOP_ROWS_MAX:
            return self.items(request, deadline, now)
        return await asyncio.to_thread(self.items, request, deadline, now)

    def items(self, request: Request, deadline: float, now: float) -> tuple[Ticket, list[Item]]:
        """What ``cut`` gives, at once."""
        shapes = [tensor.shape[1:] for tensor in request.columns]
        priority = request.priority or DEFAULT_PRIORITY
        if request.rows <= self._whole_max:
            columns: list[Buffer] = [tensor.data for tensor in request.columns]
            ticket = Ticket(1, deadline, request.id)
            return ticket, [self._item(ticket, 0, columns, shapes, request.rows, priority, now, request.tenant)]
        slices = self._slices(request)
        ticket = Ticket(len(slices), deadline, request.id)
        return ticket, [
            self._item(ticket, part, columns, shapes, rows, priority, now, request.tenant)
            for part, (columns, rows) in enumerate(slices)
        ]

    def _item(
        self,
        ticket: Ticket,
        part: int,
        columns: list[Buffer],
        shapes: list[Shape],
        rows: int,
        priority: int,
        now: float,
        tenant: str,
    ) -> Item:
        total = 0
        for column in columns:
            total += len(column)
        cost = float(rows) if self._counts_rows else self._cost(columns, shapes, rows, total)
        key = self._key(columns, shapes, rows) if self._free else None
        length = self._length(columns, shapes, rows) if self._filled else 0
        return Item(ticket, part, columns, shapes, rows, cost, total, key, priority, now, tenant=tenant, length=length)

    def _slices(self, request: Request) -> Slices:
        """Cuts of at most ``_piece_rows``, where rows do not depend on each other."""
        rows, size = request.rows, self._piece_rows
        if not self._cuts:
            text = f"{rows} rows were sent; this pipeline takes at most {size} at once (its rows depend on each other)"
            raise Refused(Code.BATCH_TOO_LARGE, text)
        cuts = self._runs(request) if self._by_length and size > 1 else [*range(0, rows, size), rows]
        per_column = [_cut(tensor.datatype, tensor.shape[1:], tensor.data, rows, cuts) for tensor in request.columns]
        return [([pieces[part] for pieces in per_column], cuts[part + 1] - cuts[part]) for part in range(len(cuts) - 1)]

    def _runs(self, request: Request) -> list[int]:
        """Cuts between neighbours of different length: rows that share a key anyway wait as one item."""
        buckets = self._batch.buckets_bytes or DEFAULT_TEXT_BUCKETS
        rows = request.rows
        texts = [byte_offsets(memoryview(request.columns[index].data), rows) for index in self._texts]
        lengths = [[bisect_left(buckets, end - start) for start, end in pairwise(offsets)] for offsets in texts]
        keys = list(zip(*lengths, strict=True))
        cuts = [0]
        for row in range(1, rows):
            if keys[row] != keys[row - 1] or row - cuts[-1] == self._piece_rows:
                cuts.append(row)
        return [*cuts, rows]

    def _key(self, columns: Sequence[Buffer], shapes: Sequence[tuple[int, ...]], rows: int) -> Hashable:
        key: list[Hashable] = []
        for index in self._free:
            if index in self._padded:
                length = shapes[index][0]
                buckets = self._batch.padding.buckets if self._batch.padding else ()
                key.append((_bucket(length, buckets or DEFAULT_TEXT_BUCKETS), shapes[index][1:]))
            elif index in self._texts:
                key.append(
                    _bucket(len(columns[index]) // max(rows, 1), self._batch.buckets_bytes or DEFAULT_TEXT_BUCKETS)
                )
            else:
                key.append(shapes[index])
        return tuple(key)

    def _length(self, columns: Sequence[Buffer], shapes: Sequence[tuple[int, ...]], rows: int) -> int:
        """What a batch of such rows fills the shorter ones up to: of texts the bytes, which their tokens follow."""
        lengths = [shapes[i][0] if i in self._padded else len(columns[i]) // max(rows, 1) for i in self._filled]
        return sum(lengths)

    def _cost(self, columns: Sequence[Buffer], shapes: Sequence[tuple[int, ...]], rows: int, total: int) -> float:
        match self._batch.cost:
            case "bytes":
                return float(total)
            case "tokens":
                texts = sum(len(columns[index]) / BYTES_PER_TOKEN + 2 for index in self._texts)
                lengths = max((shape[0] for shape in shapes if shape), default=0) if not self._texts else 0
                return texts + lengths * rows
            case _:
                assert self._cost_column is not None, "the definition was checked: a cost field is a number input"
                values = memoryview(bytes(columns[self._cost_column])).cast("d")
                return sum(min(value, COST_MAX) for value in values if value > 0.0)  # false for what is missing, too


def _cut(datatype: str, shape: tuple[int, ...], data: Buffer, rows: int, cuts: Sequence[int]) -> list[memoryview]:
    view = memoryview(data)
    if datatype == "BYTES":
        elements = prod(shape)
        offsets = byte_offsets(view, rows * elements)
        places = [offsets[cut * elements] for cut in cuts]
    else:
        row_bytes = ITEM_BYTES[datatype] * prod(shape)
        places = [cut * row_bytes for cut in cuts]
    return [view[start:end] for start, end in pairwise(places)]


def _bucket(length: int, buckets: Sequence[int]) -> int:
    return next((bucket for bucket in buckets if length <= bucket), buckets[-1] + 1)
