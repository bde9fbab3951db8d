"""decode_audio: every kind of file, its channels, its rate, and what a WAV may say of its length."""

import io
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
import soxr
from tests.steps.sounds import AUDIO, Samples, encoded, speech, tone, wav

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kinds

if TYPE_CHECKING:
    from tests.steps.conftest import Run

PCM = struct.pack("<4h", 0, 16_384, -32_768, 8_192)
HEARD = [0.0, 0.5, -1.0, 0.25]
LIST = struct.pack("<4sI5sx", b"LIST", 5, b"odd..")


def decoded(run: "Run", data: bytes, **options: Any) -> Samples:
    batch = run("decode_audio", {"rate_hz": 16_000, **options}, {AUDIO: [data]})
    assert not batch.failures
    samples: Samples = batch.columns["samples"][0]
    assert samples.dtype == np.float32
    return samples


@pytest.mark.parametrize(
    "how",
    [
        *(f"WAV {coding}" for coding in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW")),
        "WAVEX PCM_16", "WAVEX FLOAT", "FLAC PCM_16", "FLAC PCM_24", "FLAC PCM_S8", "OGG VORBIS", "OGG OPUS",
        "MP3 MPEG_LAYER_III",
    ],
)  # fmt: skip
def test_every_format_is_read_as_libsndfile_reads_it(run: "Run", how: str) -> None:
    family, coding = how.split()
    data = encoded(tone(1.5), format=family, subtype=coding)
    expected = np.clip(soundfile.read(io.BytesIO(data), dtype="float32")[0], -1, 1)
    rounding = 2e-7 if family == "MP3" else 0  # to seek, as that reading does, makes its decoder round otherwise
    np.testing.assert_allclose(decoded(run, data), expected, rtol=0, atol=rounding)


def test_mu_law_is_as_g711_says(run: "Run") -> None:
    data = wav(bytes([0xFF, 0x80, 0x00]), tag=7, bits=8)
    assert (decoded(run, data) * 32_768).tolist() == [0, 32_124, -32_124]


def test_channels_are_mixed_or_picked(run: "Run") -> None:
    data = encoded(np.array([[0.5, 0.25], [-0.5, 0]], np.float32), format="WAV", subtype="FLOAT")
    assert decoded(run, data).tolist() == [0.375, -0.25]
    assert decoded(run, data, channel=1).tolist() == [0.25, 0]


@pytest.mark.parametrize("rate_hz", [8_000, 22_050, 44_100, 48_000, 192_000])
def test_another_rate_is_resampled_as_soxr_does_at_once(run: "Run", rate_hz: int) -> None:
    sound = tone(1.3, rate_hz)
    expected = soxr.resample(sound, rate_hz, 16_000, quality="HQ")
    assert np.array_equal(decoded(run, encoded(sound, rate_hz, format="WAV", subtype="FLOAT")), expected)


def test_a_resampled_sine_is_that_sine(run: "Run") -> None:
    samples = decoded(run, encoded(tone(1, 44_100), 44_100, format="FLAC", subtype="PCM_24"))
    assert len(samples) == 16_000
    assert np.abs(samples - tone(1))[200:-200].max() < 1e-4


@pytest.mark.parametrize("size", [0, 0xFFFF_FFFF, 0x7FFF_F000])
def test_a_wav_written_as_a_stream_is_read_to_its_end(run: "Run", size: int) -> None:
    assert decoded(run, wav(PCM, size=size, riff=size)).tolist() == HEARD


def test_speech_from_a_pipe_is_read(run: "Run") -> None:
    data = speech()
    direct = np.frombuffer(data[44:], "<i2").astype(np.float32) / 32_768
    assert np.array_equal(decoded(run, data), soxr.resample(direct, 22_050, 16_000, quality="HQ"))


def test_other_chunks_of_a_wav_are_no_sound(run: "Run") -> None:
    assert decoded(run, wav(PCM, extra=LIST) + LIST).tolist() == HEARD


@pytest.mark.parametrize("family", ["FLAC", "MP3"])
def test_tags_in_front_are_no_sound(run: "Run", family: str) -> None:
    data = encoded(tone(0.5), format=family)
    tag = b"ID3\x04\x00\x00" + bytes([0, 0, 1, 5]) + bytes(133)
    assert np.array_equal(decoded(run, tag + data), decoded(run, data))


@pytest.mark.parametrize("behind", [b"TAG" + b"x" * 125, b"APETAGEX" + b"x" * 40, bytes(500)])
def test_tags_behind_an_mp3_are_no_sound(run: "Run", behind: bytes) -> None:
    data = encoded(tone(0.5), format="MP3")
    assert np.array_equal(decoded(run, data + behind), decoded(run, data))


def test_samples_beyond_the_range_are_set_to_its_end(run: "Run") -> None:
    assert decoded(run, wav(struct.pack("<3f", 1.5, -2, 0.5), tag=3, bits=32)).tolist() == [1, -1, 0.5]


def test_a_flac_that_does_not_say_how_long_it_is_is_read_to_its_end(run: "Run") -> None:
    data = bytearray(encoded(tone(1.5), format="FLAC"))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    assert len(decoded(run, bytes(data))) == 24_000


@pytest.mark.parametrize(("form", "least", "most"), [("FLAC", 8_192, 8_192), ("MP3", 7_000, 14_000)])
def test_of_a_cut_file_what_is_there_can_be_accepted(run: "Run", form: str, least: int, most: int) -> None:
    data = encoded(tone(1.5), format=form)
    samples = decoded(run, data[: len(data) // 2], truncated="accept")
    assert least <= len(samples) <= most


def test_of_a_cut_wav_the_whole_samples_can_be_accepted(run: "Run") -> None:
    assert decoded(run, wav(PCM)[:-1], truncated="accept").tolist() == HEARD[:3]


def test_an_audio_input_is_preferred_to_later_bytes(run: "Run") -> None:
    columns = {AUDIO: [wav(PCM)], Field("other", "BYTES", (), "bytes"): [b""]}
    assert run("decode_audio", {"rate_hz": 16_000}, columns).columns["samples"][0].tolist() == HEARD


def test_without_an_audio_input_bytes_are_decoded(run: "Run") -> None:
    batch = run("decode_audio", {"rate_hz": 16_000, "output": "x"}, {Field("raw", "BYTES", (), "bytes"): [wav(PCM)]})
    assert batch.columns["x"][0].tolist() == HEARD


def test_a_row_that_cannot_be_decoded_fails_alone(run: "Run") -> None:
    batch = run("decode_audio", {"rate_hz": 16_000}, {AUDIO: [wav(PCM), b"RIFF", wav(PCM)]})
    assert [(row, failure.code) for row, failure in batch.failures.items()] == [(1, Code.AUDIO_INVALID)]
    assert [samples.tolist() for samples in batch.columns["samples"]] == [HEARD, HEARD]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "rate_hz: missing"),
        ({"rate_hz": 7_999}, "8000 to 192000"),
        ({"rate_hz": 16_000, "seconds_max": 0}, "more than 0"),
        ({"rate_hz": 16_000, "channel": 2, "channels_max": 2}, "less than channels_max"),
    ],
)
def test_wrong_options_are_the_operators_fault(run: "Run", options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        run("decode_audio", options, {AUDIO: [b""]})


def test_text_is_no_sound(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="no field is an encoded sound"):
        kinds()["decode_audio"].fields({"rate_hz": 16_000}, {"t": Field("t", "BYTES", (), "text")})


def test_a_missing_library_is_named(run: "Run", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(Misconfigured, match=r"forwardpass\[audio\]") as raised:
        run("decode_audio", {"rate_hz": 16_000}, {AUDIO: [b""]})
    assert raised.value.code is Code.RUNTIME_MISSING
