"""GGUF files, by their header: every length, count and offset is checked before anything is made of it (FAULTS D17)."""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

from forwardpass.pipeline.inspection.reading import PIECE_BYTES, Cursor, File, Report, listed

MAGIC = b"GGUF"
KEYS_MAX = 10_000
TENSORS_MAX = 100_000
ARRAY_TEXTS_MAX = 2_000_000
ARRAY_DEPTH_MAX = 8
KEY_BYTES_MAX = 4096
TENSOR_NAME_BYTES_MAX = 256
"""llama.cpp takes 63, other programs built on the same library 127."""
NAMES_BYTES_MAX = 16 * 1024**2
"""Of all keys and tensors together; everything else that is kept is bounded by itself."""
TOLD_BYTES_MAX = 1024
TEMPLATE_BYTES_MAX = 16 * 1024**2
_TOLD = ("general.architecture", "general.name", "tokenizer.ggml.model")
_TEMPLATE, _TOKENS, _ALIGNMENT = "tokenizer.chat_template", "tokenizer.ggml.tokens", "general.alignment"
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
    keys: dict[str, None] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    template_sha256: str = ""
    tokens: int = 0
    alignment: Any = 32
    array_texts: int = 0  # in all, of every array; arrays inside arrays count too
    names_bytes: int = 0


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
        key = _name(cursor, KEY_BYTES_MAX, header)
        if key in header.keys:
            raise file.bad(f'the key "{key[:64]}" is there twice')
        header.keys[key] = None
        _value(cursor, key, cursor.number("I"), header)
    types, parameters = _tensors(cursor, tensors, _alignment(file, header), header)
    return Report("gguf", _facts(version, tensors, header, types, parameters))


def _facts(version: int, tensors: int, header: _Header, types: dict[str, int], parameters: int) -> dict[str, Any]:
    architecture, name, tokenizer = (header.told.get(key, "") for key in _TOLD)
    return {
        "version": version,
        "architecture": architecture,
        "name": name,
        "tensors": tensors,
        "parameters": parameters,
        "tensor_types": types,
        "tokenizer": tokenizer,
        "tokens": header.tokens,
        "chat_template_sha256": header.template_sha256,
        "keys": listed(header.keys),
    }


def _value(cursor: Cursor, key: str, kind: int, header: _Header) -> None:
    """Passes over a value, and keeps of it what is told; a text may be as long as the file."""
    if kind == _STRING:
        length = cursor.number("Q")
        begin = cursor.place
        cursor.skip(length)
        if key in _TOLD:
            header.told[key] = cursor.file.at(begin, min(length, TOLD_BYTES_MAX)).decode("utf-8", "replace")
        elif key == _TEMPLATE and length <= TEMPLATE_BYTES_MAX:
            header.template_sha256 = _sha256(cursor.file, begin, length)
    elif kind == _ARRAY:
        count = _array(cursor, header, 0)
        header.tokens = count if key == _TOKENS else header.tokens
    elif kind in _NUMBERS:
        value = cursor.number(_NUMBERS[kind])
        header.alignment = value if key == _ALIGNMENT else header.alignment
    else:
        raise cursor.file.bad(f"a value of the unknown type {kind}")


def _array(cursor: Cursor, header: _Header, depth: int) -> int:
    """Passes over an array; how many values it has."""
    of, count = cursor.number("I"), cursor.number("Q")
    if of in _SIZES:
        cursor.skip(count * _SIZES[of])
        return count
    if of not in (_STRING, _ARRAY):
        raise cursor.file.bad(f"an array of values of the unknown type {of}")
    header.array_texts += count
    if header.array_texts > ARRAY_TEXTS_MAX or depth > ARRAY_DEPTH_MAX:
        raise cursor.file.bad(f"arrays of more than {ARRAY_TEXTS_MAX} texts, or {ARRAY_DEPTH_MAX} levels deep")
    for _ in range(count):
        if of == _STRING:
            cursor.skip(cursor.number("Q"))
        else:
            _array(cursor, header, depth + 1)
    return count


def _sha256(file: File, begin: int, length: int) -> str:
    digest = hashlib.sha256()
    for at in range(begin, begin + length, PIECE_BYTES):
        digest.update(file.at(at, min(PIECE_BYTES, begin + length - at)))
    return digest.hexdigest()


def _alignment(file: File, header: _Header) -> int:
    alignment = header.alignment
    if type(alignment) is not int or not 8 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise file.bad("general.alignment is no power of two from 8 on")
    return alignment


def _tensors(cursor: Cursor, count: int, alignment: int, header: _Header) -> tuple[dict[str, int], int]:
    """How many tensors of each type, and how many elements in all; each lies whole inside the file and by itself.

    The types grow with the library they come from: of one that is not known here, the size is not checked.
    """
    file = cursor.file
    names: set[str] = set()
    places: list[tuple[int, int, str]] = []
    types: dict[str, int] = {}
    parameters = 0
    for _ in range(count):
        name, rank = _name(cursor, TENSOR_NAME_BYTES_MAX, header), cursor.number("I")
        if name in names or not 0 <= rank <= 4:
            raise file.bad(f'the tensor "{name[:64]}" is there twice, or has {rank} dimensions')
        names.add(name)
        dims = [cursor.number("Q") for _ in range(rank)]
        kind, offset = cursor.number("I"), cursor.number("Q")
        label, block, block_bytes = _BLOCKS.get(kind, (f"unknown type {kind}" if len(types) < 100 else "…", 1, 0))
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


def _name(cursor: Cursor, bytes_max: int, header: _Header) -> str:
    length = cursor.number("Q")
    header.names_bytes += length
    if length > bytes_max or header.names_bytes > NAMES_BYTES_MAX:
        raise cursor.file.bad(f"a name of {length} bytes; at most {bytes_max}, and {NAMES_BYTES_MAX} of all together")
    return cursor.take(length).decode("utf-8", "replace")
