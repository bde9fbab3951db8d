"""Looks into an ONNX file before any C++ parser does (FAULTS R5, D1, D2).

Two questions: is this a whole ONNX file at all (and if not, what is it), and which other files does it name. For them
the protobuf wire format is walked without reading a single weight; the walk is bounded and allocates nothing by size.
"""

import math
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.core.tensor import RANK_MAX
from forwardpass.pipeline.files import name_problem

SUFFIX = ".onnx"
FIELDS_MAX = 5_000_000
DEPTH_MAX = 100
PROBLEMS_MAX = 100
_SNIFF_BYTES = 512

# message -> field number of each message inside it that can lead to a tensor (onnx.proto)
_INNER: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_MODEL_FIELDS = frozenset((*range(1, 9), 14, 20, 25, 26))
_BITS = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
    17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6,
}  # fmt: skip
"""Bits per element of TensorProto.DataType; strings (8) cannot be external."""

NUMBERS = re.compile(rb"(?:\x3d.{4}|\x40[\x80-\xff]{0,9}[\x00-\x7f])++", re.DOTALL)
"""A run of an attribute's floats or ints, unpacked: a tree model has millions, and none leads to a tensor."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_SIGNS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file it stands for: run `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x89HDF", "an HDF5 file"),
    (b"GGUF", "a GGUF file"),
    (b"<?xml", "an XML file"),
    (b"<", "an HTML page, probably a failed download"),
    (b"{", "a JSON text, probably a failed download"),
)


@dataclass(frozen=True, slots=True)
class External:
    """Weights of ``tensor`` that lie in another file: ``length_bytes`` from ``offset_bytes`` of ``location``."""

    tensor: str
    location: str
    offset_bytes: int
    length_bytes: int


def is_onnx(name: str) -> bool:
    """By its name: whatever is called so must be a whole ONNX file."""
    return name.lower().endswith(SUFFIX)


def external_data(descriptor: int, name: str) -> tuple[External, ...]:
    """What an open ONNX file refers to. Raises Misconfigured (model_invalid) when it is none, saying what it is."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise invalid(name, "an empty file")
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as data:
        sign = _other_kind(data[:_SNIFF_BYTES])
        if sign:
            raise invalid(name, sign)
        return Walk(data, name).model()


def check_external(externals: Iterable[External], name: str, beside: Callable[[str], int | str]) -> tuple[Problem, ...]:
    """What is wrong with the files model ``name`` refers to. ``beside`` says a file's size, or why it is not there."""
    problems = []
    for external in externals:
        unsafe = name_problem(external.location)
        size = unsafe or beside(external.location)
        end = external.offset_bytes + external.length_bytes
        if isinstance(size, str):
            found, allowed = f"is {size}", "a regular file beside the model"
        elif end > size:
            found, allowed = f"has {size} bytes", f"at least {end} are needed"
        else:
            continue
        target = f'external data "{show(external.location)}"'
        problems.append(Problem(name, f"tensor {show(external.tensor)}", f"{target} {found}", allowed))
    return tuple(problems[:PROBLEMS_MAX])


def invalid(name: str, found: str, allowed: str = "an ONNX model") -> Misconfigured:
    return Misconfigured(Code.MODEL_INVALID, (Problem(name, "", found, allowed),))


def _other_kind(start: bytes) -> str:
    """What a file that is no ONNX model is, by how it starts; "" when it may be one."""
    if not start.strip(b"\0"):
        return "a file of zeros"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    return next((kind for sign, kind in _SIGNS if text.startswith(sign) or start.startswith(sign)), "")


class Walk:
    """One pass over the wire format. A field is (number, wire type, begin, end); a varint's value is in ``begin``."""

    def __init__(self, data: mmap.mmap, name: str) -> None:
        self.data = data
        self.name = name
        self.fields_left = FIELDS_MAX

    def model(self) -> tuple[External, ...]:
        externals: list[External] = []
        seen: set[int] = set()
        pending = [("model", 0, len(self.data), 0)]
        while pending:
            kind, begin, end, depth = pending.pop()
            if depth > DEPTH_MAX:
                raise invalid(self.name, f"nested more than {DEPTH_MAX} levels deep")
            if kind == "tensor":
                externals += self._tensor(begin, end)
                continue
            inner = _INNER[kind]
            for number, wire, first, last in self.fields(begin, end, NUMBERS if kind == "attribute" else None):
                if kind == "model":
                    seen.add(number)
                if wire == _BYTES and number in inner:
                    pending.append((inner[number], first, last, depth + 1))
        if not seen >= {1, 7, 8}:  # ir_version, graph, opset_import: a file cut between two fields lacks the last ones
            raise invalid(self.name, "cut short, or no ONNX model: its version, graph or operator set is missing")
        return tuple(externals)

    def _tensor(self, begin: int, end: int) -> list[External]:
        """The reference to external data of one tensor, if it has one."""
        tensor = ""
        dims: list[int] = []
        entries: dict[str, str] = {}
        external = False
        data_type = 0
        for number, wire, first, last in self.fields(begin, end):
            match number, wire:
                case 1, 0:
                    dims.append(first)
                case 1, 2:
                    dims += self.packed(first, last, RANK_MAX)
                case 2, 0:
                    data_type = first
                case 8, 2:
                    tensor = self.text(first, last)
                case 13, 2:
                    external = True
                    self._entry(first, last, entries, tensor)
                case 14, 0:
                    external = external or first == 1
            if len(dims) > RANK_MAX:
                raise self._bad_tensor(tensor, f"more than {RANK_MAX} dimensions")
        return [self._external(tensor, dims, data_type, entries)] if external else []

    def _entry(self, begin: int, end: int, entries: dict[str, str], tensor: str) -> None:
        parts = {
            number: self.text(first, last) for number, wire, first, last in self.fields(begin, end) if wire == _BYTES
        }
        key = parts.get(1, "")
        if key in entries:
            raise self._bad_tensor(tensor, f"external data gives {show(key)} twice")
        entries[key] = parts.get(2, "")

    def _external(self, tensor: str, dims: list[int], data_type: int, entries: dict[str, str]) -> External:
        if "location" not in entries:
            raise self._bad_tensor(tensor, "external data without a location")
        if data_type not in _BITS or any(size >= 2**63 for size in dims):
            raise self._bad_tensor(tensor, "external data of an unknown type or a negative size")
        needed = -(-math.prod(dims) * _BITS[data_type] // 8)
        numbers = {}
        for key, default in (("offset", 0), ("length", needed)):
            written = entries.get(key, str(default))
            if not (written.isascii() and written.isdigit() and len(written) < 20):
                raise self._bad_tensor(tensor, f"external data with {key} {show(written)}")
            numbers[key] = int(written)
        return External(tensor, entries["location"], numbers["offset"], max(numbers["length"], needed))

    def _bad_tensor(self, tensor: str, found: str) -> Misconfigured:
        return Misconfigured(Code.MODEL_INVALID, (Problem(self.name, f"tensor {show(tensor)}", found, ""),))

    def fields(
        self, begin: int, end: int, skip: re.Pattern[bytes] | None = None
    ) -> Iterator[tuple[int, int, int, int]]:
        """The fields of the message at these bytes. Raises Misconfigured for what is none."""
        at = begin
        while at < end:
            skipped = skip.match(self.data, at, end) if skip else None
            if skipped:
                at = skipped.end()
                continue
            self.fields_left -= 1
            if self.fields_left < 0:
                raise invalid(self.name, f"more than {FIELDS_MAX} fields")
            tag, at = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            if begin == 0 and end == len(self.data) and number not in _MODEL_FIELDS:
                raise invalid(self.name, "damaged, or no ONNX model")
            if wire == _VARINT:
                value, at = self._varint(at, end)
                yield number, wire, value, at
                continue
            if wire == _BYTES:
                length, at = self._varint(at, end)
            elif wire in (_FIXED64, _FIXED32):
                length = 8 if wire == _FIXED64 else 4
            else:
                raise invalid(self.name, "damaged, or no ONNX model")
            if at + length > end:
                raise self._cut(at + length, end)
            yield number, wire, at, at + length
            at += length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise self._cut(at + 1, end)

    def _cut(self, needed: int, end: int) -> Misconfigured:
        if end == len(self.data) and needed < 2**50:
            return invalid(self.name, f"cut short, or no ONNX model: {end} bytes are there, {needed} are needed")
        return invalid(self.name, "damaged, or no ONNX model")

    def packed(self, begin: int, end: int, count_max: int) -> list[int]:
        """The integers of a packed field, at most one more than ``count_max``."""
        values: list[int] = []
        at = begin
        while at < end and len(values) <= count_max:
            value, at = self._varint(at, end)
            values.append(value)
        return values

    def text(self, begin: int, end: int, bytes_max: int = 4096) -> str:
        """At most so much of it: names and locations that are longer are refused by whoever reads them."""
        return bytes(self.data[begin : min(end, begin + bytes_max)]).decode("utf-8", "replace")
