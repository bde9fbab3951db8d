"""Sounds for tests, made on the fly, and a step run inside a sequence."""

import io
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kinds
from forwardpass.steps.protocol import Batch, Context, object_column

AUDIO = Field("sound", "BYTES", (), "audio")
SAMPLES = Field("samples", "FP32", (-1,), "ragged")

Samples = NDArray[np.float32]


def tone(seconds: float, rate_hz: int = 16_000, hertz: float = 440.0) -> Samples:
    times = np.arange(round(seconds * rate_hz)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * hertz * times)).astype(np.float32)


def encoded(samples: Samples, rate_hz: int = 16_000, **how: str) -> bytes:
    """A file as libsndfile writes it; ``how`` is its ``format`` and ``subtype``."""
    data = io.BytesIO()
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    with soundfile.SoundFile(data, "w", rate_hz, channels, **how) as file:
        for start in range(0, len(samples), 4_096):  # it cannot write much Vorbis at once
            file.write(samples[start : start + 4_096])
    return data.getvalue()


def wav(body: bytes, *, tag: int = 1, channels: int = 1, rate_hz: int = 16_000, bits: int = 16, **said: Any) -> bytes:
    """A WAV written by hand; ``size`` is what its header says of the samples, ``extra`` chunks before them."""
    frame_bytes = said.get("frame_bytes", channels * bits // 8)
    form = struct.pack("<HHIIHH", tag, channels, rate_hz, 0, frame_bytes, bits)
    size: int = said.get("size", len(body))
    riff: int = said.get("riff", len(body) + 36 + len(said.get("extra", b"")))
    start = struct.pack("<4sI4s4sI", b"RIFF", riff, b"WAVE", b"fmt ", len(form)) + form
    extra: bytes = said.get("extra", b"")
    return start + extra + struct.pack("<4sI", b"data", size) + body


def speech(text: str = "one two three") -> bytes:
    """A WAV at 22,050 Hz, written as a stream."""
    return subprocess.run(["espeak-ng", "--stdout", text], check=True, capture_output=True, timeout=60).stdout


def decode(*files: bytes, **options: Any) -> Batch:
    """The batch after decode_audio, to 16 kHz unless ``options`` say otherwise."""
    batch = Batch({AUDIO.name: object_column(files)}, len(files), list(range(len(files))))
    context = Context(Path("/nowhere"))
    kinds()["decode_audio"].prepare({"rate_hz": 16_000, **options}, {AUDIO.name: AUDIO}, context)(batch)
    batch.settle()
    return batch


class Live:
    """A step, and requests of one sequence to it, one after another."""

    def __init__(self, use: str, options: Mapping[str, Any], field: Field) -> None:
        self.field = field
        self.step = kinds()[use].prepare(dict(options), {field.name: field}, Context(Path("/nowhere")))
        self.slots: dict[str, Any] = {}

    def ask(self, value: object, *, end: bool = False) -> Batch:
        """The batch after a request of one row, which may be the sequence's last."""
        ending = {0} if end else set()
        batch = Batch({self.field.name: object_column([value])}, 1, [0], sequences={0: self.slots}, ending=ending)
        self.step(batch)
        batch.settle()
        return batch
