"""What an ONNX file says of its model: inputs, outputs, metadata, and the operators that make its outputs.

Read from the wire format, without weights and without the onnx package, as ``onnx_file.py`` reads it.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from forwardpass.core.tensor import RANK_MAX
from forwardpass.pipeline.onnx_file import Walk, invalid

METADATA_BYTES_MAX = 1024 * 1024
LABELS_MAX = 100_000
_VARINT, _BYTES = 0, 2
_DATATYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip
_CLASS_LABELS = ("classlabels_int64s", "classlabels_strings", "classlabels_ints")
_CLASSIFIERS = ("TreeEnsembleClassifier", "LinearClassifier", "SVMClassifier", "ZipMap")

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A graph input or output with all its axes, -1 for a free one; no ``datatype`` when it is no tensor."""

    name: str
    datatype: str
    shape: Shape | None  # None: not declared


@dataclass(frozen=True, slots=True)
class Facts:
    """``makers`` names the operator that each tensor of the graph comes from, by the tensor's name."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    metadata: dict[str, str]
    producer: str
    domains: frozenset[str]
    makers: dict[str, str]
    class_labels: tuple[str, ...] | None  # of a classifier of ai.onnx.ml, in the order of its probabilities


@dataclass(slots=True)
class _Graph:
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    weights: set[str] = field(default_factory=set)
    domains: set[str] = field(default_factory=set)
    makers: dict[str, str] = field(default_factory=dict)
    class_labels: tuple[str, ...] | None = None


def facts(path: Path) -> Facts:
    """Raises Misconfigured (model_invalid) for what is no ONNX file."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise invalid(path.name, "an empty file")
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            return facts_of(data, path.name)


def facts_of(data: mmap.mmap, name: str) -> Facts:
    """``facts`` of a mapped file."""
    return _model(Walk(data, name), len(data))


def _model(walk: Walk, size: int) -> Facts:
    graph = _Graph()
    metadata: dict[str, str] = {}
    producer = ""
    for number, wire, first, last in walk.fields(0, size):
        match number, wire:
            case 2, 2:
                producer = walk.text(first, last)
            case 7, 2:
                _graph(walk, first, last, graph)
            case 14, 2:
                pair = dict(_texts(walk, first, last))
                metadata[pair.get(1, "")] = pair.get(2, "")
    inputs = tuple(value for value in graph.inputs if value.name not in graph.weights)
    return Facts(
        inputs,
        tuple(graph.outputs),
        metadata,
        producer,
        frozenset(graph.domains),
        graph.makers,
        graph.class_labels,
    )


def _graph(walk: Walk, begin: int, end: int, graph: _Graph) -> None:
    for number, wire, first, last in walk.fields(begin, end):
        match number, wire:
            case 1, 2:
                _node(walk, first, last, graph)
            case 5, 2:
                graph.weights |= {walk.text(*at) for at in _parts(walk, first, last, 8)}
            case 11, 2:
                graph.inputs.append(_value(walk, first, last))
            case 12, 2:
                graph.outputs.append(_value(walk, first, last))


def _node(walk: Walk, begin: int, end: int, graph: _Graph) -> None:
    outputs: list[str] = []
    operator = domain = ""
    attributes: list[tuple[int, int]] = []
    for number, wire, first, last in walk.fields(begin, end):
        match number, wire:
            case 2, 2:
                outputs.append(walk.text(first, last))
            case 4, 2:
                operator = walk.text(first, last)
            case 5, 2:
                attributes.append((first, last))
            case 7, 2:
                domain = walk.text(first, last)
    graph.domains.add(domain)
    graph.makers |= dict.fromkeys(outputs, operator)
    if operator in _CLASSIFIERS:
        for at in attributes:
            graph.class_labels = _class_labels(walk, *at) or graph.class_labels


def _class_labels(walk: Walk, begin: int, end: int) -> tuple[str, ...]:
    """The values of an attribute that names classes; () for any other."""
    labels: list[str] = []
    for number, wire, first, last in walk.fields(begin, end):
        match number, wire:
            case 1, 2:
                if walk.text(first, last) not in _CLASS_LABELS:
                    return ()
            case 8, 0:
                labels.append(str(_signed(first)))
            case 8, 2:
                labels += [str(_signed(each)) for each in walk.packed(first, last, LABELS_MAX)]
            case 9, 2:
                labels.append(walk.text(first, last))
        if len(labels) > LABELS_MAX:
            return ()
    return tuple(labels)


def _value(walk: Walk, begin: int, end: int) -> Value:
    name, datatype, shape = "", "", None
    for number, wire, first, last in walk.fields(begin, end):
        match number, wire:
            case 1, 2:
                name = walk.text(first, last)
            case 2, 2:
                for at in _parts(walk, first, last, 1):
                    datatype, shape = _tensor_type(walk, *at)
    return Value(name, datatype, shape)


def _tensor_type(walk: Walk, begin: int, end: int) -> tuple[str, Shape | None]:
    datatype, shape = "", None
    for number, wire, first, last in walk.fields(begin, end):
        match number, wire:
            case 1, 0:
                datatype = _DATATYPES.get(first, "")
            case 2, 2:
                shape = tuple(_size(walk, *at) for at in islice(_parts(walk, first, last, 1), RANK_MAX + 1))
                if len(shape) > RANK_MAX:
                    raise invalid(walk.name, f"an input or output of more than {RANK_MAX} dimensions")
    return datatype, shape


def _size(walk: Walk, begin: int, end: int) -> int:
    size = -1
    for number, wire, first, _ in walk.fields(begin, end):
        if (number, wire) == (1, _VARINT):
            size = max(_signed(first), -1)
    return size


def _parts(walk: Walk, begin: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Where the messages or texts of one field number are."""
    for number, wire, first, last in walk.fields(begin, end):
        if (number, wire) == (wanted, _BYTES):
            yield first, last


def _texts(walk: Walk, begin: int, end: int) -> Iterator[tuple[int, str]]:
    for number, wire, first, last in walk.fields(begin, end):
        if wire == _BYTES:
            yield number, walk.text(first, last, METADATA_BYTES_MAX)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
