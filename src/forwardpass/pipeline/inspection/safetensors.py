"""safetensors files, by their header: the tensors fill the file without a gap, one after the other (FAULTS D18)."""

import math
from typing import Any

from forwardpass.pipeline.inspection.reading import File, Report, parsed

SUFFIX = ".safetensors"
HEADER_BYTES_MAX = 16 * 1024**2
RANK_MAX = 16
_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip


def looks_like(start: bytes) -> bool:
    """A length, and then a JSON object."""
    return len(start) > 9 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") >= 2


def report(file: File) -> Report:
    """Raises Misconfigured for what is damaged."""
    length = int.from_bytes(file.at(0, 8), "little")
    if length > HEADER_BYTES_MAX:
        raise file.bad(f"a header of {length} bytes; at most {HEADER_BYTES_MAX}")
    plain = parsed(file, file.at(8, length))
    if not isinstance(plain, dict):
        raise file.bad("the header is no JSON object")
    metadata = plain.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise file.bad("__metadata__ holds something else than texts")
    places: list[tuple[int, int, str]] = []
    types: dict[str, int] = {}
    parameters = 0
    for name, described in plain.items():
        label, elements, begin, end = _tensor(file, name, described)
        places.append((begin, end, name))
        types[label] = types.get(label, 0) + 1
        parameters += elements
    last = 0
    for begin, end, name in sorted(places):
        if begin != last:
            raise file.bad(f'the tensor "{name[:64]}" begins at {begin}, and what is before it ends at {last}')
        last = end
    if 8 + length + last != file.size:
        raise file.bad(f"cut short or damaged: {file.size} bytes are there, {8 + length + last} are needed")
    facts = {
        "tensors": len(places),
        "parameters": parameters,
        "tensor_types": types,
        "metadata": sorted(metadata)[:100],
    }
    return Report("safetensors", facts)


def _tensor(file: File, name: str, described: Any) -> tuple[str, int, int, int]:
    """Its type, how many elements it has, where it begins and ends."""
    match described:
        case {"dtype": str(label), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if (
            len(described) == 3
            and label in _BITS
            and len(shape) <= RANK_MAX
            and all(type(size) is int and size >= 0 for size in shape)
        ):
            bits = math.prod(shape) * _BITS[label]
            if 0 <= begin <= end and bits == 8 * (end - begin):
                return label, math.prod(shape), begin, end
            raise file.bad(f'the tensor "{name[:64]}" of type {label} and shape {shape} cannot be {end - begin} bytes')
    raise file.bad(f'the tensor "{name[:64]}" is not described by a known dtype, a shape and two data_offsets')
