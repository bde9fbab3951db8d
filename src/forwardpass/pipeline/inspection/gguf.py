"""GGUF files, by their header: every length, count and offset is checked before anything is made of it (FAULTS D17)."""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

from forwardpass.pipeline.inspection.reading import Cursor, File, Report, listed

MAGIC = b"GGUF"
KEYS_MAX = 10_000
TENSORS_MAX = 100_000
ARRAY_TEXTS_MAX = 2_000_000
NAME_BYTES_MAX = 64 * 1024
TEXT_BYTES_MAX = 256 * 1024
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_BLOCKS: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
"""Type -> its name, elements of a block, bytes of a block."""


@dataclass(slots=True)
class _Header:
    values: dict[str, Any] = field(default_factory=dict)
    array_texts: int = 0  # in all, of every array


def report(file: File) -> Report:
    """Raises Misconfigured for what is damaged."""
    cursor = Cursor(file)
    cursor.skip(len(MAGIC))
    version = cursor.number("I")
    if version not in (2, 3):
        raise file.bad(f"GGUF version {version}; 2 and 3 are known (a big-endian file looks like this too)")
    tensors, keys = cursor.number("Q"), cursor.number("Q")
    if keys > KEYS_MAX or tensors > TENSORS_MAX:
        raise file.bad(f"{keys} keys and {tensors} tensors; at most {KEYS_MAX} and {TENSORS_MAX}")
    header = _Header()
    for _ in range(keys):
        key = _text(cursor, NAME_BYTES_MAX)
        if key in header.values:
            raise file.bad(f'the key "{key[:64]}" is there twice')
        header.values[key] = _value(cursor, cursor.number("I"), header)
    types, parameters = _tensors(cursor, tensors, _alignment(file, header))
    return Report("gguf", _facts(version, tensors, header, types, parameters))


def _facts(version: int, tensors: int, header: _Header, types: dict[str, int], parameters: int) -> dict[str, Any]:
    values = header.values
    template = values.get("tokenizer.chat_template")
    tokens = values.get("tokenizer.ggml.tokens")
    told = isinstance(template, str)
    return {
        "version": version,
        "architecture": values.get("general.architecture", ""),
        "name": values.get("general.name", ""),
        "tensors": tensors,
        "parameters": parameters,
        "tensor_types": types,
        "tokenizer": values.get("tokenizer.ggml.model", ""),
        "tokens": tokens["count"] if isinstance(tokens, dict) else 0,
        "chat_template_sha256": hashlib.sha256(str(template).encode()).hexdigest() if told else "",
        "keys": listed(values),
    }


def _value(cursor: Cursor, kind: int, header: _Header) -> Any:
    """A value; of an array only how many values it has."""
    if kind == _STRING:
        return _text(cursor, TEXT_BYTES_MAX)
    if kind == _ARRAY:
        of, count = cursor.number("I"), cursor.number("Q")
        if of == _STRING:
            header.array_texts += count
            if header.array_texts > ARRAY_TEXTS_MAX:
                raise cursor.file.bad(f"arrays of more than {ARRAY_TEXTS_MAX} texts")
            for _ in range(count):
                cursor.skip(cursor.number("Q"))
        elif of in _SIZES:
            cursor.skip(count * _SIZES[of])
        else:
            raise cursor.file.bad(f"an array of values of the unknown type {of}")
        return {"count": count}
    if kind not in _NUMBERS:
        raise cursor.file.bad(f"a value of the unknown type {kind}")
    return cursor.number(_NUMBERS[kind])


def _alignment(file: File, header: _Header) -> int:
    alignment = header.values.get("general.alignment", 32)
    if type(alignment) is not int or not 8 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise file.bad("general.alignment is no power of two from 8 on")
    return alignment


def _tensors(cursor: Cursor, count: int, alignment: int) -> tuple[dict[str, int], int]:
    """How many tensors of each type, and how many elements in all; each lies whole inside the file and by itself."""
    file = cursor.file
    names: set[str] = set()
    places: list[tuple[int, int, str]] = []
    types: dict[str, int] = {}
    parameters = 0
    for _ in range(count):
        name, rank = _text(cursor, NAME_BYTES_MAX), cursor.number("I")
        if name in names or not 0 <= rank <= 4:
            raise file.bad(f'the tensor "{name[:64]}" is there twice, or has {rank} dimensions')
        names.add(name)
        dims = [cursor.number("Q") for _ in range(rank)]
        kind, offset = cursor.number("I"), cursor.number("Q")
        if kind not in _BLOCKS:
            raise file.bad(f'the tensor "{name[:64]}" has the unknown type {kind}')
        label, block, block_bytes = _BLOCKS[kind]
        elements = math.prod(dims)
        if elements == 0 or elements >= 2**48 or (dims[:1] and dims[0] % block) or offset % alignment:
            raise file.bad(f'the tensor "{name[:64]}" of shape {dims} at {offset} cannot be: empty, or not aligned')
        places.append((offset, offset + elements // block * block_bytes, name))
        types[label] = types.get(label, 0) + 1
        parameters += elements
    begin = -(-cursor.place // alignment) * alignment
    last = 0
    for offset, end, name in sorted(places):
        if offset < last:
            raise file.bad(f'the tensor "{name[:64]}" lies over another')
        if begin + end > file.size:
            raise file.bad(f'cut short: the tensor "{name[:64]}" ends at {begin + end} of {file.size} bytes')
        last = end
    return types, parameters


def _text(cursor: Cursor, bytes_max: int) -> str:
    length = cursor.number("Q")
    if length > bytes_max:
        raise cursor.file.bad(f"a text of {length} bytes; at most {bytes_max}")
    return cursor.take(length).decode("utf-8", "replace")
