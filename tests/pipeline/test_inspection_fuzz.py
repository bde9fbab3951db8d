"""Damaged files of every kind: looking into one says what is wrong, in bounded time and memory, and fails no other way."""

import random
import struct
import tracemalloc
from pathlib import Path

import pytest
from tests.pipeline.model_files import every_kind, gguf, safetensors

from forwardpass.pipeline.inspection.files import inspect_file
from forwardpass.pipeline.inspection.reading import Report

MUTANTS = 150
MEMORY_BYTES_MAX = 48 * 1024**2


def mutant(content: bytes, chance: random.Random) -> bytes:
    """One to three small damages: a byte, a cut, a repeated or removed piece, a huge length."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0 if at < len(data):
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randrange(1, 40)]
            case 2:
                data[at:at] = data[at : at + chance.randrange(1, 40)]
            case 3:
                huge = chance.choice((2**64 - 1, 2**63, 2**32 - 1, 2**31, 0))
                data[at : at + 8] = struct.pack("<Q", huge)
            case 4:
                del data[at:]
        if not data:
            return b"\0"
    return bytes(data)


NAMES = (
    "model.onnx", "model.gguf", "model.safetensors", "model.xml", "model.pkl", "old.pkl", "model.pt", "arrays.npz",
    "array.npy", "tokenizer.json", "config.json", "trees.txt",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_damage_does_more_than_to_be_reported(tmp_path: Path, name: str) -> None:
    content, chance = every_kind(tmp_path)[name], random.Random(name)
    file = tmp_path / name
    for _ in range(MUTANTS):
        file.write_bytes(mutant(content, chance))
        assert isinstance(inspect_file(file), Report)


HOSTILE = {
    "gguf of many empty texts": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a"
    + struct.pack("<IIQ", 9, 8, 20_000) + bytes(8 * 20_000),
    "gguf of long texts": gguf().replace(b"llama", b"llama" * 40_000),
    "safetensors of empty lists": safetensors(b'{"a":[' + b"[]," * 2_000_000 + b"[]]}", 0),
    "json of lists": b"[" * 5_000_000,
    "json of one long number": b"[" + b"9" * 5_000_000 + b"]",
    "pickle that never ends": b"\x80\x04" + b"0" * 50_000,
    "pickle of names": b"\x80\x04" + b"".join(b"cm%d\nn\n" % n for n in range(5_000)),
    "pickle of one long line": b"(dp0\nV" + b"x" * 5_000_000,
    "xml of many tags": b"<net >" + b"<a/>" * 20_000 + b"</net>",
    "xml of one long tag": b"<net " + b'a="1" ' * 1_000_000 + b"/>",
    "xml of spaces": b"<net a" + b" " * 250_000 + b"></net>",
    "zip of an absurd list": b"PK\x03\x04" + bytes(60) + b"PK\x05\x06" + b"\0\0\0\0\0\0\xfe\xff" + bytes(10),
    "onnx of many fields": b"\x08\x09" + b"\x3a\xc0\xc3\x93\x02" + b"\x0a\x00" * 2_249_960 + b"\x42\x02\x10\x11",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_costs_little(tmp_path: Path, name: str) -> None:
    file = tmp_path / ("model.onnx" if name.startswith("onnx") else "file.bin")
    file.write_bytes(HOSTILE[name])
    tracemalloc.start()
    try:
        assert isinstance(inspect_file(file), Report)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(HOSTILE[name]) + MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()
