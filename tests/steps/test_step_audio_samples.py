"""pcm_samples, resample and gain."""

import io
import math
import struct
import wave
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soxr
from tests.steps.sounds import SAMPLES, tone

from forwardpass.core.errors import Code, Misconfigured, Refused
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

RAW = Field("raw", "BYTES", (), "bytes")


def fp32(*values: float) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.array(values, dtype=np.float32)


def test_raw_samples_become_numbers_from_minus_1_to_1(run: "Run") -> None:
    samples = run("pcm_samples", {}, {RAW: [struct.pack("<4h", 0, 1, -32_768, 32_767), b""]}).columns["samples"]
    assert samples[0].dtype == np.float32
    assert (samples[0] * 32_768).tolist() == [0, 1, -32_768, 32_767]
    assert samples[1].tolist() == []


def test_half_a_raw_sample_is_refused_alone(run: "Run") -> None:
    batch = run("pcm_samples", {}, {RAW: [b"abc", b"\0\x40"]})
    assert isinstance(batch.failures[0], Refused)
    assert (batch.failures[0].code, batch.failures[0].field) == (Code.AUDIO_FORMAT, "raw")
    assert "3 bytes" in batch.failures[0].text
    assert [samples.tolist() for samples in batch.columns["samples"]] == [[0.5]]


def test_a_wav_of_such_samples_is_taken_where_its_rate_is_said(run: "Run") -> None:
    pieces = [wav_file(2, 16_000), struct.pack("<2h", 1, -2), wav_file(2, 8_000), wav_file(1, 16_000)]
    batch = run("pcm_samples", {"rate_hz": 16_000}, {RAW: pieces})
    assert [(samples * 32_768).tolist() for samples in batch.columns["samples"]] == [[1, -2], [1, -2]]
    assert {row: failure.code for row, failure in batch.failures.items()} == dict.fromkeys((2, 3), Code.AUDIO_FORMAT)
    assert "PCM_16, 8000" in batch.failures[2].text
    assert "PCM_U8, 16000" in batch.failures[3].text


def test_a_wav_is_not_heard_as_noise(run: "Run") -> None:
    cut = wav_file(2, 16_000)[:-1]
    batch = run("pcm_samples", {"rate_hz": 16_000}, {RAW: [cut]})
    assert "is cut" in batch.failures[0].text
    batch = run("pcm_samples", {}, {RAW: [wav_file(2, 16_000)]})
    assert batch.failures[0].code is Code.AUDIO_FORMAT


def wav_file(sample_bytes: int, rate_hz: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, sample_bytes, rate_hz, 0, "NONE", ""))
        writer.writeframes(struct.pack("<2h", 1, -2))
    return file.getvalue()


@pytest.mark.parametrize(("from_hz", "to_hz"), [(44_100, 16_000), (8_000, 48_000)])
def test_rows_of_different_length_are_resampled_alone(run: "Run", from_hz: int, to_hz: int) -> None:
    rows = [tone(0.5, from_hz), tone(0.21, from_hz), np.empty(0, np.float32)]
    made = run("resample", {"from_hz": from_hz, "to_hz": to_hz}, {SAMPLES: rows}).columns["samples"]
    for before, after in zip(rows, made, strict=True):
        assert np.array_equal(after, soxr.resample(before, from_hz, to_hz, quality="HQ"))


def test_a_tensor_of_samples_is_resampled_too(run: "Run") -> None:
    live = Field("live", "FP32", (800,))
    batch = run(
        "resample", {"from_hz": 8_000, "to_hz": 16_000, "output": "x"}, {live: np.stack([tone(0.1, 8_000)] * 2)}
    )
    assert [len(row) for row in batch.columns["x"]] == [1_600, 1_600]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"db": 20 * math.log10(2)}, [0.5, -0.25, 0]),
        ({"db": -6.020599913279624}, [0.125, -0.0625, 0]),
        ({"db": 20}, [1, -1, 0]),
        ({"peak": 1.0}, [1, -0.5, 0]),
        ({"rms": 0.1}, [0.1549193, -0.0774597, 0]),  # 0.1 * sqrt(3 / (1 + 1/4)) for the first
    ],
)
def test_a_sound_is_made_louder_or_quieter(run: "Run", options: dict[str, Any], expected: list[float]) -> None:
    samples = run("gain", options, {SAMPLES: [fp32(0.25, -0.125, 0)]}).columns["samples"][0]
    assert samples.dtype == np.float32
    assert samples == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("options", [{"peak": 0.9}, {"rms": 0.1}, {"db": 60}])
def test_silence_stays_silence(run: "Run", options: dict[str, Any]) -> None:
    made = run("gain", options, {SAMPLES: [fp32(0, 0), fp32()]}).columns["samples"]
    assert [samples.tolist() for samples in made] == [[0, 0], []]


@pytest.mark.parametrize("options", [{"peak": 0.5}, {"rms": 0.5}])
def test_the_quietest_sound_can_be_lifted(run: "Run", options: dict[str, Any]) -> None:
    made = run("gain", options, {SAMPLES: [fp32(1e-44, -1e-44)]}).columns["samples"][0]
    assert made == pytest.approx([0.5, -0.5])


@pytest.mark.parametrize(
    ("use", "options", "why"),
    [
        ("gain", {}, "exactly one"),
        ("gain", {"db": 1, "peak": 1}, "exactly one"),
        ("gain", {"peak": 1.5}, "at most 1"),
        ("gain", {"db": 1e9}, "-120 to 120"),
        ("resample", {"from_hz": 8_000, "to_hz": 8_000}, "changes nothing"),
        ("resample", {"from_hz": 0, "to_hz": 8_000}, "8000 to 192000"),
    ],
)
def test_wrong_options_are_the_operators_fault(run: "Run", use: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        run(use, options, {SAMPLES: [fp32(0)]})


@pytest.mark.parametrize("options", [{"db": 6.0}, {"peak": 0.9}, {"rms": 0.1}])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_sample_that_is_no_number_fails_its_row(run: "Run", options: dict[str, Any], wrong: float) -> None:
    batch = run("gain", options, {SAMPLES: [fp32(0.5, wrong), fp32(0.5)]})
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert batch.rows == 1
    sent = Field("live", "FP32", (2,), given=True)
    failure = run("gain", options, {sent: np.array([[0.5, wrong]], np.float32)}).failures[0]
    assert isinstance(failure, Refused) and failure.code is Code.OUT_OF_RANGE
