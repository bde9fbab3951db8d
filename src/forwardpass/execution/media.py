"""The plainest picture and sound that a step can decode, to try a pipeline on."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of UINT8 [height, width, 3] (RGB)."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)  # 0: the line is not filtered
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 1)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def wav(samples: NDArray[np.float64]) -> bytes:
    """A WAV, 16 bit, one channel, of samples in the range of INT16."""
    data = np.clip(samples, -32768, 32767).astype("<i2").tobytes()
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE_HZ, 2 * RATE_HZ, 2, 16)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVE" + head + b"data" + struct.pack("<I", len(data)) + data
