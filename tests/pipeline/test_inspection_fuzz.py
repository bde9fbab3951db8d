"""Damaged files of every kind: looking into one says what is wrong, in bounded time and memory, and fails no other way."""

import json
import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from tests.pipeline.model_files import every_kind, gguf, safetensors, text, zipped

from forwardpass.pipeline.inspection.files import inspect_file
from forwardpass.pipeline.inspection.reading import Report

MUTANTS = 150
MEMORY_BYTES_MAX = 48 * 1024**2
TIME_MAX_S = 4.0
"""Of a core; what is quadratic, or reads a piece for every byte, takes several times as long with the files below."""


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
        report = inspect_file(file)
        json.dumps(report.facts, allow_nan=False)


def varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def graph(*parts: bytes) -> bytes:
    """An ONNX file with these fields in its graph."""
    return b"\x08\x09" + field(7, b"".join(parts)) + b"\x42\x02\x10\x11"


def overlapping(count: int, opcodes: int) -> bytes:
    """A zip that lists one pickle many times."""
    data = b"\x80\x02" + b"0" * opcodes + b"."
    local = b"PK\x03\x04" + bytes(14) + struct.pack("<IIHH", len(data), len(data), 5, 0) + b"0.pkl" + data
    names = [b"%05d.pkl" % number for number in range(count)]
    listed = b"".join(
        b"PK\x01\x02" + bytes(16) + struct.pack("<IIHHH", len(data), len(data), 9, 0, 0) + bytes(8) + bytes(4) + name
        for name in names
    )
    return local + listed + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, len(listed), len(local), 0)


SIZE = b"\xff" * 8 + b"\x7f"  # 2^63 - 1
OUTSIDE = b"\x10\x01" + field(13, field(1, b"location") + field(2, b"w.bin"))
TEXTS = [text(f"value.{number}") + struct.pack("<I", 8) + text("x" * 250_000) for number in range(80)]
HOSTILE = {
    "onnx of a tensor of many dimensions, packed": graph(field(5, field(1, SIZE * 400_000) + OUTSIDE)),
    "onnx of a tensor of many dimensions": graph(field(5, (b"\x08" + SIZE) * 400_000 + OUTSIDE)),
    "onnx of an input of many dimensions": graph(
        field(11, field(2, field(1, b"\x08\x01" + field(2, field(1, b"\x08\x01") * 400_000))))
    ),
    "onnx of many labels": graph(
        field(1, field(4, b"ZipMap") + field(5, field(1, b"classlabels_int64s") + field(8, b"\x01" * 5_000_000)))
    ),
    "gguf of many long values": b"GGUF" + struct.pack("<IQQ", 3, 0, len(TEXTS)) + b"".join(TEXTS),
    "gguf of many long keys": b"GGUF" + struct.pack("<IQQ", 3, 0, 9_000)
    + b"".join(text(f"{number:04}" * 900) + struct.pack("<IB", 7, 1) for number in range(9_000)),
    "gguf of nested arrays": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a")
    + struct.pack("<IIQ", 9, 9, 50_000) + struct.pack("<IQ", 0, 0) * 50_000,
    "zip of overlapping pickles": overlapping(10_000, 100_000),
    "zip of many pickles": zipped({f"{number}.pkl": b"0" * 2_000 for number in range(500)}),
    "pickle of short lines": b"\x80\x02" + b"I1\n0" * 100_000,
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
    begin_s = time.process_time()
    inspect_file(file)
    assert time.process_time() - begin_s < TIME_MAX_S
    tracemalloc.start()
    try:
        assert isinstance(inspect_file(file), Report)
        bar = 8 * 1024**2 if "long values" in name else 10 * len(HOSTILE[name]) + MEMORY_BYTES_MAX
        assert tracemalloc.get_traced_memory()[1] < bar
    finally:
        tracemalloc.stop()
