"""Sound files that are not what they say: refused by our own bounds, by name, before or while decoding (M13, M14)."""

import struct
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.steps.sounds import decode, encoded, tone, wav

from forwardpass.core.errors import Code, Failure, Refused

BODY = bytes(3_200)
FORMAT, INVALID, TOO_LARGE = Code.AUDIO_FORMAT, Code.AUDIO_INVALID, Code.INPUT_TOO_LARGE


@dataclass(frozen=True, slots=True)
class Row:
    """A file, the code it is refused with, and what the text must say."""

    data: bytes
    code: Code
    said: tuple[str, ...]


def row(data: bytes, code: Code, *said: str) -> Row:
    return Row(data, code, said)


def refused(data: bytes, **options: Any) -> Failure:
    """What it is refused with, beside a good neighbour that gets its answer."""
    batch = decode(data, wav(BODY), **options)
    assert len(batch.columns["samples"][0]) == 1_600
    return batch.failures[0]


def changed(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


def pages(data: bytes) -> list[int]:
    """Where the pages of an Ogg file begin."""
    return [place for place in range(len(data)) if data[place : place + 4] == b"OggS"]


def endless(count: int) -> bytes:
    """A FLAC file of silence that does not say how long it is: one frame of 4,096 samples, ``count`` times."""
    data = encoded(np.zeros(8_192, np.float32), format="FLAC")
    first = data.index(b"\xff\xf8")
    frame = data[first : data.index(b"\xff\xf8", first + 2)]
    return changed(data[:first], 21, bytes([data[21] & 0xF0, 0, 0, 0, 0])) + frame * count


NOISE = (np.random.default_rng(1).standard_normal(24_000) * 0.1).astype(np.float32)
QUIET = np.zeros((8_000, 8), np.float32)
FLAC = encoded(NOISE, format="FLAC")
OGG = encoded(NOISE, format="OGG", subtype="VORBIS")
OPUS = encoded(NOISE, format="OGG", subtype="OPUS")
MP3 = encoded(NOISE, format="MP3")

WAVS = {
    "M13 rate 0": row(wav(BODY, rate_hz=0), FORMAT, "0 samples a second", "8000 to 192000"),
    "M13 rate 2^31-1": row(wav(BODY, rate_hz=2**31 - 1), FORMAT, "2147483647", "8000 to 192000"),
    "M13 rate 7999": row(wav(BODY, rate_hz=7_999), FORMAT, "7999"),
    "M13 0 channels": row(wav(BODY, channels=0), FORMAT, "0 channels", "1 to 8"),
    "M13 1024 channels": row(wav(BODY, channels=1_024), FORMAT, "1024 channels", "1 to 8"),
    "M13 7 bits": row(wav(BODY, bits=7), FORMAT, "7 bits", "8, 16, 24 or 32"),
    "M13 ADPCM": row(wav(BODY, tag=2, bits=4), FORMAT, "coding 2"),
    "M13 odd tail": row(wav(BODY + b"x"), FORMAT, "3201 bytes", "2 bytes"),
    "M13 odd tail of a stream": row(wav(BODY + b"x", size=0xFFFF_FFFF), FORMAT, "3201 bytes", "2 bytes"),
    "M13 samples cut": row(wav(BODY, size=6_400), FORMAT, "6400 bytes", "3200 are there"),
    "M13 header cut": row(wav(BODY)[:30], FORMAT, "header is cut"),
    "M13 format cut": row(wav(BODY).replace(b"fmt \x10", b"fmt \x0e"), FORMAT, "header is cut"),
    "M13 frame size lies": row(wav(BODY, frame_bytes=3), FORMAT, "contradicts itself", "3 bytes"),
    "M13 no format": row(b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd", FORMAT, "before their format"),
    "M13 chunks without end": row(b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 5_000, FORMAT, "header is cut"),
    "M13 empty": row(wav(b""), FORMAT, "no sound"),
    "M13 no number": row(wav(struct.pack("<2f", 0, float("nan")), tag=3, bits=32), FORMAT, "no number"),
    "M13 inf": row(wav(struct.pack("<2f", *[float("inf"), float("-inf")]), tag=3, bits=32, channels=2), FORMAT, "no n"),
    "M13 integers as floats": row(wav(struct.pack("<f", 32_767), tag=3, bits=32), FORMAT, "far beyond"),
    "M13 20 minutes": row(wav(bytes(16_000 * 1_200), bits=8), TOO_LARGE, "more than 600 seconds"),
    "no bytes": row(b"", INVALID, "no WAV, FLAC, Ogg (Vorbis, Opus) or MP3"),
    "text": row(b"hello, this is no sound", INVALID, "no WAV"),
    "AIFF": row(encoded(NOISE, format="AIFF"), INVALID, "no WAV"),
}

COMPRESSED = {
    "M14 FLAC cut": row(FLAC[:-100], INVALID, "cut"),
    "M14 FLAC header cut": row(FLAC[:30], FORMAT, "header is cut"),
    "M14 FLAC cut between frames": row(changed(FLAC, 22, struct.pack(">I", 32_000)), INVALID, "cut"),
    "M14 FLAC damaged": row(changed(FLAC, 20_000, b"\0" * 9), INVALID, "damaged after", "seconds"),
    "M14 FLAC rate 0": row(changed(FLAC, 18, b"\0\0\0"), FORMAT, "0 samples a second"),
    "M14 FLAC says 36 hours": row(changed(FLAC, 22, b"\xff" * 4), TOO_LARGE, "600 seconds"),
    "M14 FLAC header only": row(FLAC[: FLAC.index(b"\xff\xf8")], INVALID),
    "M14 Ogg cut": row(OGG[:-3], INVALID, "cut inside its last page"),
    "M14 Ogg lacks its end": row(OGG[: pages(OGG)[-1]], INVALID, "no last page"),
    "M14 Ogg damaged": row(changed(OGG, len(OGG) // 2, b"\1\2\3"), INVALID, "damaged at byte"),
    "M14 Ogg lacks a page": row(OGG[: pages(OGG)[1]] + OGG[pages(OGG)[2] :], INVALID, "lacks pages"),
    "M14 Ogg twice": row(OGG + OGG, FORMAT, "several streams"),
    "M14 Ogg of something else": row(changed(OGG, 29, b"theora"), FORMAT, "does not begin with Vorbis or Opus"),
    "M14 Ogg rate": row(changed(OGG, 40, struct.pack("<I", 2**31)), FORMAT, "2147483648 samples a second"),
    "M14 Ogg header only": row(OGG[:20], FORMAT, "does not begin"),
    "M14 Opus damaged": row(changed(OPUS, len(OPUS) // 2, b"\1\2\3"), INVALID, "damaged at byte"),
    "M14 Opus of 255 channels": row(changed(OPUS, 37, b"\xff"), FORMAT, "255 channels"),
    "M14 MP3 cut": row(MP3[:-20], INVALID, "cut inside its last frame"),
    "M14 MP3 damaged": row(changed(MP3, len(MP3) // 2, bytes(300)), INVALID, "damaged at byte"),
    "M14 MP3 of fewer frames than it says": row(
        changed(MP3, MP3.index(b"Xing") + 8, b"\0\0\1"), INVALID, "its header says"
    ),
    "M14 MP3 changes its rate": row(MP3 + encoded(NOISE, 24_000, format="MP3"), FORMAT, "changes on the way"),
    "M14 MP3 header only": row(b"\xff\xfb\x90\x00", INVALID, "cut"),
}


@pytest.mark.parametrize("name", WAVS | COMPRESSED)
def test_a_false_file_is_refused_by_name(name: str) -> None:
    given = (WAVS | COMPRESSED)[name]
    failure = refused(given.data)
    assert isinstance(failure, Refused)
    assert (failure.code, failure.field) == (given.code, "sound")
    assert failure.text.startswith("sound: ")
    for words in given.said:
        assert words in failure.text


@pytest.mark.parametrize("form", ["OGG", "FLAC", "MP3"])
def test_decoded_seconds_are_bounded(form: str) -> None:
    data = encoded(np.zeros(16_000 * 30, np.float32), format=form)
    assert len(data) < 100_000
    failure = refused(data, seconds_max=29.5)
    assert (failure.code, failure.text) == (TOO_LARGE, "sound: is sound of more than 29.5 seconds, the most taken here")


def test_samples_of_all_channels_together_are_bounded() -> None:
    for form, family in ((wav(bytes(32_000), channels=8), "heading"), (encoded(QUIET, format="OGG"), "decoding")):
        assert "more than 1999 samples in" in refused(form, samples_max=1_999).text, family
    assert refused(encoded(QUIET, format="OGG"), samples_max=63_999).code is TOO_LARGE
    assert not decode(encoded(QUIET, format="OGG"), samples_max=64_000).failures


def frame_starts(data: bytes) -> list[int]:
    """Where the frames of an MP3 begin whose header is the same but for padding and bit rate, and where it ends."""
    return [*(place for place in range(len(data)) if data[place : place + 2] == b"\xff\xf3"), len(data)]


def ogg_of_empty_pages(count: int) -> bytes:
    """The first page of a good file, and then right ones without anything in them."""
    first = OGG[: pages(OGG)[1]]
    made = [first]
    for number in range(1, count):
        page = b"OggS\0\0" + b"\xff" * 8 + first[14:18] + struct.pack("<I", number) + bytes(5)
        made.append(page[:22] + struct.pack("<I", ogg_crc(page)) + page[26:])
    return b"".join(made)


def ogg_crc(page: bytes) -> int:
    """As RFC 3533 says: polynomial 0x04c11db7, highest bit first, from 0."""
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x04C11DB7 if value >> 31 else 0)) & 0xFFFF_FFFF
    return value


def test_parts_without_sound_are_bounded_in_number() -> None:
    tag = b"ID3\4\0\0\0\0\0\0"
    assert not decode(tag * 100 + FLAC).failures
    assert "more than 100 ID3 tags" in refused(tag * 101 + FLAC).text
    assert "lacks" not in (text := refused(ogg_of_empty_pages(1_050), seconds_max=0.1).text)
    assert "more than 1040 pages" in text
    assert "no last page" in refused(ogg_of_empty_pages(1_040), seconds_max=0.1).text


def test_an_mp3_is_not_walked_beyond_the_seconds_that_are_taken() -> None:
    frame = b"\xff\xf3\x15\xc4" + bytes(20)  # 8 kbit/s at 24 kHz: 24 ms in 24 bytes
    began = time.process_time()
    assert refused(frame * 2_700_000).code is TOO_LARGE
    assert time.process_time() - began < 2


def test_an_mp3_cut_between_two_frames_is_refused() -> None:
    data = encoded(tone(2), format="MP3")
    *_, last, end = frame_starts(data)
    assert not decode(data[:end]).failures
    assert "and 58 are there" in refused(data[:last]).text


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_sound_too_short_for_one_sample_says_so(form: str) -> None:
    failure = refused(encoded(np.zeros(1, np.float32), 48_000, format=form))
    assert "less than one sample at 16000 a second" in failure.text


def test_sound_of_the_very_length_is_taken() -> None:
    batch = decode(encoded(tone(2), format="FLAC"), seconds_max=2)
    assert len(batch.columns["samples"][0]) == 32_000


def test_a_bomb_is_left_as_soon_as_the_bound_is_reached() -> None:
    hours = endless(count=150_000)
    assert len(hours) < 2_500_000
    assert refused(hours + b"damage that is never reached").code is TOO_LARGE


def test_channels_can_be_bounded_further() -> None:
    stereo = encoded(np.zeros((1_600, 2), np.float32), format="WAV")
    assert "2 channels; at most 1" in refused(stereo, channels_max=1).text


def test_a_channel_that_is_not_there_is_refused() -> None:
    batch = decode(wav(BODY), channel=1)
    assert batch.failures[0].code is FORMAT
    assert "1 channels; channel 1 (0 = the first)" in batch.failures[0].text


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_changed_in_a_file_ends_in_sound_or_a_refusal(seed: int) -> None:
    random = np.random.default_rng(seed)
    for original in (FLAC, OGG, OPUS, MP3, wav(BODY)) * 10:
        data = bytearray(original)
        for place in random.integers(0, min(len(data), 300 if seed % 2 else len(data)), 4):
            data[place] = random.integers(256)
        batch = decode(bytes(data), rate_hz=8_000, truncated="accept")
        assert all(failure.code in (FORMAT, INVALID, TOO_LARGE) for failure in batch.failures.values())
        assert all(np.abs(samples).max() <= 1 for samples in batch.columns["samples"])
