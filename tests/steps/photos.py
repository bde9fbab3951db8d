"""Encoded images for the tests of the image steps: real photos and made ones, in every format."""

import io
import struct
import zlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_image

from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import Column, object_column

PHOTO = Field("photo", "BYTES", (), "image")
IMAGE = Field("image", "UINT8", (-1, -1, 3), "ragged")
GREY = Field("image", "UINT8", (-1, -1, 1), "ragged")

Pixels = NDArray[np.uint8]


@cache
def _sample(name: str) -> Image.Image:
    return Image.fromarray(load_sample_image(name))


def china(width: int = 640, height: int = 427) -> Image.Image:
    photo = _sample("china.jpg")
    return photo if photo.size == (width, height) else photo.resize((width, height))


def flower() -> Image.Image:
    return _sample("flower.jpg")


def encoded(picture: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def decoded(data: bytes, mode: str = "RGB") -> Pixels:
    """As Pillow alone does it."""
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture.convert(mode))


def noise(width: int, height: int, channels: int = 3, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def column(*images: Any) -> Column:
    return object_column([np.asarray(image) for image in images])


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, color: int, rows: bytes, *more: bytes) -> bytes:
    """A PNG by the specification: ``rows`` are unfiltered scan lines, each with its 0 in front; ``more`` chunks go first."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    chunks = (chunk(b"IHDR", header), *more, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def png16(levels: NDArray[np.uint16], color: int, *more: bytes) -> bytes:
    height, width, _ = levels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in levels)
    return png(width, height, 16, color, rows, *more)
