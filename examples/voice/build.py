"""Voice activity: Silero VAD, a network that hears speech 32 ms at a time and keeps a state from one frame to the next."""

import io
import shutil
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from examples.packages import fetch, notice
from numpy.typing import NDArray

PACKAGE = "silero-vad==6.2.3"
MODEL = "silero_vad/data/silero_vad_16k_op15.onnx"  # the package's own network, without its half for 8 kHz
FILES = {MODEL: "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"}
LICENCE = "MIT, https://github.com/snakers4/silero-vad"
RATE_HZ = 16_000
PITCH_HZ = 130
VOWELS_HZ = ((700, 1200, 2600), (300, 2300, 3000))
"""The resonances of a mouth that says "ah", and of one that says "ee"."""


def build(folder: Path, downloads: Path) -> str:
    write_model(folder, downloads)
    (folder / "golden" / "two_vowels.wav").write_bytes(wav(two_vowels()))
    (folder / "golden" / "silence.wav").write_bytes(wav(np.zeros(RATE_HZ)))
    shutil.copy(Path(__file__).parent / "pipeline.toml", folder)
    return "where there is speech in a sound"


def write_model(folder: Path, downloads: Path) -> None:
    """What both pipelines of this network need."""
    shutil.copy(fetch(PACKAGE, FILES, downloads)[MODEL], folder / "model.onnx")
    (folder / "NOTICE.txt").write_text(notice(PACKAGE, LICENCE, FILES))
    (folder / "golden").mkdir()


def two_vowels() -> NDArray[np.float64]:
    """Half a second of silence, "ah", silence, "ee", silence: speech to the network, and the same everywhere."""
    first, second = (_vowel(resonances_hz) for resonances_hz in VOWELS_HZ)
    silence = np.zeros(RATE_HZ // 2)
    return np.concatenate([silence, first, silence, silence, second, silence])


def _vowel(resonances_hz: Sequence[float]) -> NDArray[np.float64]:
    """0.8 s of a voice with a little melody: its harmonics, each as loud as it is near to a resonance."""
    time_s = np.arange(RATE_HZ * 4 // 5) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(PITCH_HZ + 20 * np.sin(2 * np.pi * 1.5 * time_s)) / RATE_HZ
    harmonics = np.arange(1, 30)
    loudness = sum(1 / (1 + ((harmonics * PITCH_HZ - each) / 90) ** 2) for each in resonances_hz) / harmonics**0.5
    sound = loudness @ np.sin(harmonics[:, np.newaxis] * phase)
    softly = np.clip(20 * np.minimum(time_s, time_s[::-1]), 0.0, 1.0) * (0.7 + 0.3 * np.sin(2 * np.pi * 4 * time_s))
    faded: NDArray[np.float64] = 0.4 * sound / np.abs(sound).max() * softly
    return faded


def pcm(samples: NDArray[np.floating]) -> bytes:
    """Samples from -1 to 1 as 16-bit PCM."""
    return np.clip(np.round(samples * 32_768), -32_768, 32_767).astype("<i2").tobytes()


def wav(samples: NDArray[np.floating]) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        writer.writeframes(pcm(samples))
    return file.getvalue()
