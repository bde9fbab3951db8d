"""Model files of every kind that is looked into, written by the libraries that own the format, or by its specification."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from tests import fixtures_onnx


class Hostile:
    """What a pickle can be made to do when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def pickled(protocol: int = 4) -> bytes:
    return pickle.dumps({"weights": [1.5, "x" * 5000], "hook": Hostile()}, protocol)


def text(value: str) -> bytes:
    """A text of GGUF: its length, then its bytes."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(*, version: int = 3, alignment: int | None = None, rows: int = 2, offset: int = 0, cut: int = 0) -> bytes:
    """One Q8_0 tensor of ``rows`` x 32, after an architecture, a chat template and two tokens."""
    keys = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("tokenizer.chat_template") + struct.pack("<I", 8) + text("{{ messages }}"),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
    ]
    if alignment is not None:
        keys.append(text("general.alignment") + struct.pack("<II", 4, alignment))
    head = b"GGUF" + struct.pack("<IQQ", version, 1, len(keys)) + b"".join(keys)
    head += text("weights") + struct.pack("<IQQIQ", 2, 32, rows, 8, offset)
    whole = head + bytes(-len(head) % 32) + bytes(offset + rows * 34)
    return whole[: len(whole) - cut]


def safetensors(header: dict[str, Any] | bytes, data_bytes: int) -> bytes:
    plain = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(plain)) + plain + bytes(data_bytes)


def tensor(begin: int, end: int, *, dtype: str = "F32", shape: tuple[int, ...] = (2, 3)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def openvino(weights_bytes: int = 16, extra: str = "") -> bytes:
    return (
        f'<?xml version="1.0"?>\n{extra}<net name="adder" version="11"><layers>'
        '<layer id="0" name="x" type="Parameter" version="opset1"><data shape="1,4" element_type="f32"/></layer>'
        '<layer id="1" name="w" type="Const" version="opset1">'
        f'<data offset="0" size="{weights_bytes}" shape="4" element_type="f32"/></layer>'
        '<layer id="2" name="y" type="Result" version="opset1"/></layers><edges/></net>'
    ).encode()


def zipped(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def numpy_objects() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], dtype=object))
    return buffer.getvalue()


def onnx_file(folder: Path) -> bytes:
    return fixtures_onnx.identity(folder / "written.onnx").read_bytes()


def every_kind(folder: Path) -> dict[str, bytes]:
    """File name -> content of a whole file of each kind."""
    tokenizer = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}}}
    return {
        "model.onnx": onnx_file(folder),
        "model.gguf": gguf(),
        "model.safetensors": safetensors({"w": tensor(0, 24), "__metadata__": {"format": "pt"}}, 24),
        "model.xml": openvino(0),
        "model.pkl": pickled(),
        "old.pkl": pickled(0),
        "model.pt": zipped({"archive/data.pkl": pickled(2), "archive/data/0": bytes(16)}),
        "arrays.npz": zipped({"x.npy": numpy_objects()}, zipfile.ZIP_DEFLATED),
        "array.npy": numpy_objects(),
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "config.json": b'{"architectures": ["Bert"], "auto_map": {"AutoModel": "evil.Model"}}',
        "trees.txt": b"tree\nversion=v4\nnum_class=1\n\nTree=0\nleaf_value=1\n\nend of trees\n",
    }
