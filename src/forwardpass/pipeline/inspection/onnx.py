"""ONNX files: what is in the graph, which operators of whom, and where the weights are."""

import mmap
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from forwardpass.pipeline import onnx_facts, onnx_file
from forwardpass.pipeline.inspection.reading import File, Report, listed
from forwardpass.pipeline.onnx_file import Walk

_KNOWN_DOMAINS = {
    "", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft",
    "com.microsoft.experimental", "com.microsoft.nchwc", "com.ms.internal.nhwc",
}  # fmt: skip
OPERATORS_MAX = 10_000


@dataclass(slots=True)
class _Counts:
    operators: Counter[str] = field(default_factory=Counter)
    opsets: dict[str, int] = field(default_factory=dict)
    own_domains: set[str] = field(default_factory=set)  # of functions that the file brings with it
    domains: set[str] = field(default_factory=set)
    ir_version: int = 0
    weights_bytes: int = 0


def report(file: File) -> Report:
    """Raises Misconfigured for what is no whole ONNX file."""
    externals = onnx_file.external_data(file.descriptor, file.name)
    with mmap.mmap(file.descriptor, file.size, access=mmap.ACCESS_READ) as data:
        told = onnx_facts.facts_of(data, file.name)
        counts = _counted(Walk(data, file.name), len(data))
    outside: Counter[str] = Counter()
    for external in externals:
        outside[external.location] += external.length_bytes
    problems = onnx_file.check_external(externals, file.name, lambda name: _beside(file, name))
    facts: dict[str, Any] = {
        "ir_version": counts.ir_version,
        "operator_sets": dict(sorted(counts.opsets.items())[:100]),
        "operators": dict(counts.operators.most_common(100)),
        "functions": sorted(counts.own_domains)[:100],
        "inputs": listed([_described(value) for value in told.inputs]),
        "outputs": listed([_described(value) for value in told.outputs]),
        "weights_bytes": counts.weights_bytes,
        "external_data": dict(outside.most_common(100)),
        "producer": told.producer[:100],
        "metadata": listed([f"{key} = {value[:200]}" for key, value in told.metadata.items()]),
    }
    foreign = sorted(counts.domains - counts.own_domains - _KNOWN_DOMAINS)
    unfit = ""
    if foreign:
        unfit = (
            f"operators of {', '.join(foreign[:5])}, which no engine here has; a library that adds them is never loaded"
        )
    return Report("onnx", facts, str(problems[0]) if problems else "", unfit)


def _beside(file: File, name: str) -> int | str:
    """Only what lies in the same folder: what is deeper, taking in looks at."""
    size = file.beside(name)
    return "missing" if size is None else size


def _described(value: onnx_facts.Value) -> str:
    shape = "?" if value.shape is None else list(value.shape)
    return f"{value.name} {value.datatype or 'no tensor'} {shape}"


def _counted(walk: Walk, size: int) -> _Counts:
    counts = _Counts()
    for number, wire, first, last in walk.fields(0, size):
        match number, wire:
            case 1, 0:
                counts.ir_version = first
            case 8, 2:
                _opset(walk, first, last, counts)
            case 7, 2:
                _graph(walk, first, last, counts, 0)
            case 25, 2:
                _function(walk, first, last, counts)
    return counts


def _opset(walk: Walk, begin: int, end: int, counts: _Counts) -> None:
    domain, version = "", 0
    for number, wire, first, last in walk.fields(begin, end):
        if (number, wire) == (1, 2):
            domain = walk.text(first, last)
        elif (number, wire) == (2, 0):
            version = first
    counts.opsets[domain or "ai.onnx"] = version


def _function(walk: Walk, begin: int, end: int, counts: _Counts) -> None:
    for number, wire, first, last in walk.fields(begin, end):
        if (number, wire) == (10, 2):
            counts.own_domains.add(walk.text(first, last))
        elif (number, wire) == (7, 2):
            _node(walk, first, last, counts, 0)


def _graph(walk: Walk, begin: int, end: int, counts: _Counts, depth: int) -> None:
    if depth > onnx_file.DEPTH_MAX:
        raise onnx_file.invalid(walk.name, f"nested more than {onnx_file.DEPTH_MAX} levels deep")
    for number, wire, first, last in walk.fields(begin, end):
        match number, wire:
            case 1, 2:
                _node(walk, first, last, counts, depth)
            case 5, 2:
                counts.weights_bytes += last - first


def _node(walk: Walk, begin: int, end: int, counts: _Counts, depth: int) -> None:
    operator = domain = ""
    for number, wire, first, last in walk.fields(begin, end):
        match number, wire:
            case 4, 2:
                operator = walk.text(first, last)
            case 5, 2:
                _attribute(walk, first, last, counts, depth)
            case 7, 2:
                domain = walk.text(first, last)
    counts.domains.add(domain)
    if len(counts.operators) < OPERATORS_MAX:
        counts.operators[f"{domain}.{operator}" if domain else operator] += 1


def _attribute(walk: Walk, begin: int, end: int, counts: _Counts, depth: int) -> None:
    """Branches and loops are graphs in attributes."""
    for number, wire, first, last in walk.fields(begin, end, onnx_file.NUMBERS):
        if wire == 2 and number in (6, 11):
            _graph(walk, first, last, counts, depth + 1)
