"""The filetype example against what the magika package 1.0.3 itself answers (``identify_bytes``)."""

import gzip
import io
import math
import struct
import wave
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence

import pytest

from forwardpass.core.errors import Code
from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]

PYTHON = b'''import sys


def total(numbers: list[float]) -> float:
    """The sum, without the negative ones."""
    return sum(number for number in numbers if number >= 0)


if __name__ == "__main__":
    print(total([float(word) for word in sys.argv[1:]]))
'''
JSON = b"""{
  "name": "lamp",
  "price": 12.5,
  "tags": ["home", "light"],
  "stock": {"berlin": 3, "paris": 0},
  "sold_out": false
}
"""
HTML = b"""<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>Lamps</title>
  <link rel="stylesheet" href="/style.css">
  <script src="/lamps.js"></script>
</head>
<body>
  <div class="page" id="top">
    <h1>Lamps</h1>
    <p>Every <a href="/lamps/1">lamp</a> we sell, with its <em>price</em>.</p>
    <img src="/photos/desk.png" alt="a desk lamp" width="320">
    <form action="/search" method="get"><input type="text" name="q"><button>Search</button></form>
  </div>
</body>
</html>
"""
SHELL = b"""#!/bin/bash
set -euo pipefail
for file in "$@"; do
  if [ -f "$file" ]; then
    gzip --keep "$file" && echo "packed $file"
  fi
done
"""
SQL = b"""CREATE TABLE lamps (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price NUMERIC);
INSERT INTO lamps (id, name, price) VALUES (1, 'desk lamp', 12.5), (2, 'floor lamp', 80);
SELECT name, price FROM lamps WHERE price < 50 ORDER BY price DESC LIMIT 10;
"""


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + bytes((x * y) % 256 for x in range(32 * 3)) for y in range(32))
    head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (
            ("notes/lamps.txt", JSON * 9),
            ("notes/total.txt", PYTHON),
            ("notes/desk.txt", HTML),
            ("photo", png()),
        ):
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), content)
    return stream.getvalue()


def wav() -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", ""))
        sound.writeframes(b"".join(struct.pack("<h", int(9000 * math.sin(n / 9))) for n in range(4000)))
    return stream.getvalue()


def elf() -> bytes:
    """A 64-bit executable that only exits, with the usual sections around its code."""
    code = bytes.fromhex("b83c00000031ff0f05").ljust(1024, b"\x90")
    strings = b"\0/lib64/ld-linux-x86-64.so.2\0libc.so.6\0exit\0__libc_start_main\0GLIBC_2.2.5\0__gmon_start__\0"
    names = b"\0.shstrtab\0.interp\0.dynsym\0.dynstr\0.rela.dyn\0.init\0.plt\0.text\0.fini\0.rodata\0.data\0.bss\0"
    body = code + strings.ljust(512, b"\0") + names.ljust(128, b"\0")
    sections = b"".join(struct.pack("<IIQQQQIIQQ", n, 1, 6, 0x401000 + n, 120 + n, 64, 0, 0, 16, 0) for n in range(12))
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    start = 64 + 56 + len(body)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0x401078, 64, start, 0, 64, 56, 1, 64, 12, 11)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x401000, 0x401000, start, start, 0x1000)
    return ident + head + load + body + sections


SAMPLES = {
    "python": PYTHON,
    "json": JSON,
    "html": HTML,
    "shell": SHELL,
    "sql": SQL,
    "png": png(),
    "zip": zipped(),
    "gzip": gzip.compress(HTML * 20, mtime=0),
    "wav": wav(),
    "elf": elf(),
}

PACKAGE_SCORES = {"python": 0.999625, "json": 0.949709, "html": 0.703498, "shell": 0.999769, "sql": 0.992595}
"""Of the samples whose bytes do not depend on a compression library."""

REPLACED = {
    "low score of a text type": (b"# Lamps\n\n* desk\n* floor\n", "txt", 0.543887),  # ignorefile, 0.95 needed
    "low score of a binary type": (bytes(100), "unknown", 0.323411),  # stlbinary, 0.5 needed
    "random bytes, however sure": (bytes((n * 7919 + 13 * n * n) % 251 for n in range(600)), "unknown", 0.999725),
}


def test_ten_kinds_of_file_are_told_apart_in_one_batch(ask: Ask) -> None:
    batch = ask("filetype", [{"file": sample} for sample in SAMPLES.values()])
    assert batch.columns["label"].tolist() == list(SAMPLES)


@pytest.mark.parametrize("label", PACKAGE_SCORES)
def test_a_score_is_the_packages_own(ask: Ask, label: str) -> None:
    batch = ask("filetype", [{"file": SAMPLES[label]}])
    assert batch.columns["score"][0] == pytest.approx(PACKAGE_SCORES[label], abs=1e-4)


@pytest.mark.parametrize("why", REPLACED)
def test_a_label_is_replaced_as_the_package_does_it(ask: Ask, why: str) -> None:
    content, label, score = REPLACED[why]
    batch = ask("filetype", [{"file": content}])
    assert batch.columns["label"][0] == label
    assert batch.columns["score"][0] == pytest.approx(score, abs=1e-4)


def test_a_file_of_almost_only_white_space_is_refused_alone(ask: Ask) -> None:
    batch = ask("filetype", [{"file": b"        \n1234"}, {"file": SAMPLES["python"]}])
    assert batch.failures[0].code is Code.INVALID_INPUT
    assert batch.columns["label"].tolist() == ["python"]
