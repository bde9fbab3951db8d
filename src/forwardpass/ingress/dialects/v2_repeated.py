"""V2 bodies that a client repeats: the text around one list of numbers is read once, afterwards only the list is.

    {"inputs":[{"name":"x","shape":[1,30],"datatype":"FP32","data":[0.1, ...]}]}
    '------------------------ prefix ------------------------------'---------'suffix

Nothing is guessed: a body is such a one when it begins and ends as one that was read in full, and what is between is
itself one flat list of numbers, as long as the shape says.
"""

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import orjson

from forwardpass.core.pipeline import Signature, Version
from forwardpass.core.request import Answer, Request
from forwardpass.core.tensor import ITEM_BYTES, NUMPY_NAMES, Buffer, Tensor
from forwardpass.ingress.dialects.v2_input import InferInput
from forwardpass.pipeline.bounds import CODES, FLOATS

AROUND_BYTES_MAX = 1024
KNOWN_MAX = 64
ELEMENTS_MAX = 1024  # of a row of an output that is printed together with others
_DECODERS: "dict[bool, msgspec.json.Decoder[Any]]" = {
    True: msgspec.json.Decoder(list[float]),
    False: msgspec.json.Decoder(list[int]),
}
_ROWS_DECODERS: "dict[bool, msgspec.json.Decoder[Any]]" = {
    True: msgspec.json.Decoder(list[list[float]]),
    False: msgspec.json.Decoder(list[list[int]]),
}
_READ_ERRORS = (msgspec.MsgspecError, RecursionError, struct.error, OverflowError)


class Repeated:
    """A body that was read, less its numbers; for one signature."""

    __slots__ = (
        "_count",
        "_datatype",
        "_end",
        "_floats",
        "_form",
        "_prefix",
        "_start",
        "_suffix",
        "apart_until_s",
        "shape",
        "signature",
    )

    def __init__(
        self, prefix: bytes, suffix: bytes, datatype: str, shape: tuple[int, ...], count: int, signature: Signature
    ) -> None:
        self.signature = signature
        self.shape = shape
        self.apart_until_s = 0.0  # on the clock: none of these share an answer before
        self._prefix = prefix
        self._suffix = suffix
        self._start = len(prefix) - 1
        self._end = len(suffix) - 1
        self._datatype = datatype
        self._count = count
        self._floats = datatype in FLOATS
        self._form = f"<{count}{CODES[datatype]}"

    def interned(self, known: dict[object, "Repeated"]) -> "Repeated":
        """The one of those known that is the same; itself where there is none yet."""
        if len(known) >= KNOWN_MAX:
            known.clear()
        return known.setdefault((self._prefix, self._suffix), self)

    def numbers(self, body: bytes) -> bytes | None:
        """The text that must be the list, brackets and all; None for another body."""
        if body.startswith(self._prefix) and body.endswith(self._suffix) and len(body) > self._start + self._end:
            return body[self._start : len(body) - self._end]
        return None

    def column(self, body: bytes) -> Tensor | None:
        """The one input of such a body; None for another one, or where its list must be looked at more closely."""
        text = self.numbers(body)
        if text is None:
            return None
        try:
            return Tensor(self._datatype, self.shape, struct.pack(self._form, *_DECODERS[self._floats].decode(text)))
        except _READ_ERRORS:
            return None

    def rows(self, texts: Sequence[bytes]) -> Tensor | None:
        """The inputs of several bodies end to end, a row each; None where one is not a list of just so many numbers."""
        try:
            values = _ROWS_DECODERS[self._floats].decode(b"[%b]" % b",".join(texts))
            if len(values) != len(texts) or {*map(len, values)} != {self._count}:
                return None
            form = f"<{self._count * len(texts)}{CODES[self._datatype]}"
            return Tensor(
                self._datatype, (len(texts), *self.shape[1:]), struct.pack(form, *chain.from_iterable(values))
            )
        except _READ_ERRORS:
            return None


def repeated(body: bytes, given: Sequence[InferInput], request: Request, signature: Signature) -> Repeated | None:
    """What is to be remembered of a body that was read to ``request``; None where it is not so simple."""
    if (
        len(given) != 1
        or not isinstance(given[0].data, msgspec.Raw)
        or given[0].parameters
        or len(request.columns) != 1
    ):
        return None
    if request != Request(request.id, request.columns, request.rows, request.timeline):
        return None  # it says more than its numbers
    field, column, text = signature.columns[0], request.columns[0], bytes(given[0].data)
    if field.kind != "tensor" or column.datatype not in NUMPY_NAMES or column.datatype in ("BOOL", "FP16"):
        return None
    start = body.find(text)
    if not text.startswith(b"[") or body.count(text) != 1 or len(body) - len(text) > AROUND_BYTES_MAX:
        return None
    prefix, suffix = body[: start + 1], body[start + len(text) - 1 :]
    count = len(column.data) // ITEM_BYTES[column.datatype]
    found = Repeated(prefix, suffix, column.datatype, column.shape, count, signature)
    again = found.column(body)
    return found if again is not None and again == column else None


def in_rows(signature: Signature) -> bool:
    """Whether answers of many requests can be printed together: every output a few numbers a row."""
    return all(
        field.kind == "tensor" and field.datatype in NUMPY_NAMES and field.datatype != "FP16"
        and all(size > 0 for size in field.shape) and np.prod(field.shape, dtype=int) <= ELEMENTS_MAX
        for field in signature.outputs
    )  # fmt: skip


def texts_of(answer: Answer, version: Version, ids: Sequence[str]) -> list[bytes]:
    """One V2 answer for each row, as ``encode_infer`` would write it. No row has failed, and none has notes."""
    opening = orjson.dumps({"model_name": version.pipeline, "model_version": str(version.number)})[:-1] + b',"id":"'
    parts: list[tuple[bytes, list[bytes]]] = []
    for name in answer.signature.output_names:
        tensor = answer.outputs[name]
        head = orjson.dumps({"name": name, "datatype": tensor.datatype, "shape": (1, *tensor.shape[1:])})[:-1]
        parts.append((head + b',"data":[', _printed(tensor.data, tensor.datatype, len(ids))))
    if len(parts) == 1:
        head, rows = parts[0]
        middle = b'","outputs":[' + head
        return [b"%b%b%b%b]}]}" % (opening, id.encode(), middle, row) for id, row in zip(ids, rows, strict=True)]
    return [
        b'%b%b","outputs":[%b]}' % (opening, id.encode(), b",".join([head + rows[i] + b"]}" for head, rows in parts]))
        for i, id in enumerate(ids)
    ]


def _printed(data: Buffer, datatype: str, rows: int) -> list[bytes]:
    """The numbers of each row, comma-separated."""
    table = np.frombuffer(data, dtype=NUMPY_NAMES[datatype]).reshape(rows, -1)
    return orjson.dumps(table, option=orjson.OPT_SERIALIZE_NUMPY)[2:-2].split(b"],[")
