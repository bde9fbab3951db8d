"""What a sound file says of itself, read and bounded by us before any library sees it: WAV and FLAC, and the door."""

import struct
from dataclasses import dataclass
from typing import Literal

from forwardpass.core.errors import Code

RATE_HZ_MIN, RATE_HZ_MAX = 8_000, 192_000
CHANNELS_MAX = 8

_WAV_CODINGS = {
    (1, 8): "PCM_U8", (1, 16): "PCM_16", (1, 24): "PCM_24", (1, 32): "PCM_32",
    (3, 32): "FLOAT", (3, 64): "DOUBLE", (6, 8): "ALAW", (7, 8): "ULAW",
}  # fmt: skip
_WAV_EXTENSIBLE = 0xFFFE
_WAV_SUBFORMAT_REST = bytes.fromhex("000000001000800000aa00389b71")
_WAV_CHUNKS_MAX = 1_000
_TAGS_MAX = 100
_WAV_UNKNOWN_BYTES = 0x7FFF_0000
"""Who writes a WAV to a pipe cannot know its length: sox and espeak-ng then write this or a little more, others 2^32-1."""


class Unfit(Exception):
    """Why these bytes are not taken as sound; ``text`` goes on after the field's name."""

    def __init__(self, code: Code, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.code, self.text, self.detail = code, text, detail


@dataclass(frozen=True, slots=True)
class Heading:
    """What was read of a sound file. ``start`` to ``end`` is what a decoder needs; the tags around it are left out."""

    family: Literal["WAV", "FLAC", "Ogg", "MP3"]
    rate_hz: int
    channels: int
    start: int
    end: int
    frames: int | None = None  # None: it does not say
    damage: str = ""  # what is cut or damaged; "" = nothing was seen
    coding: str = ""  # WAV: how its samples are written, in libsndfile's words


def check_bounds(rate_hz: int, channels: int) -> None:
    """Raises Unfit for a rate or a number of channels that no decoder or resampler shall be asked for."""
    if not RATE_HZ_MIN <= rate_hz <= RATE_HZ_MAX:
        allowed = f"{RATE_HZ_MIN} to {RATE_HZ_MAX} are taken"
        raise Unfit(Code.AUDIO_FORMAT, f"is sound of {rate_hz} samples a second; {allowed}")
    if not 1 <= channels <= CHANNELS_MAX:
        raise Unfit(Code.AUDIO_FORMAT, f"is sound of {channels} channels; 1 to {CHANNELS_MAX} are taken")


def too_long(seconds_max: float) -> Unfit:
    return Unfit(Code.INPUT_TOO_LARGE, f"is sound of more than {seconds_max:g} seconds, the most taken here")


def after_tags(data: bytes) -> int:
    """Where the sound begins behind ID3v2 tags, which stand in front of MP3 and sometimes of FLAC. Raises Unfit."""
    start = tags = 0
    while data[start : start + 3] == b"ID3" and len(data) >= start + 10:
        tags += 1
        if tags > _TAGS_MAX:
            raise Unfit(Code.AUDIO_INVALID, f"begins with more than {_TAGS_MAX} ID3 tags")
        size = 0
        for byte in data[start + 6 : start + 10]:
            size = size << 7 | byte & 0x7F
        start += 10 + size + (10 if data[start + 5] & 0x10 else 0)
    return start


def is_wav(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def wav_heading(data: bytes) -> Heading:
    """Of a RIFF file. A length of 0 or 2 GiB that cannot be true means: to the end of the file (it was a stream)."""
    form: tuple[int, int, str, int] | None = None
    place = 12
    for _ in range(_WAV_CHUNKS_MAX):
        if place + 8 > len(data):
            break
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        place += 8
        if name == b"data":
            if form is None:
                raise Unfit(Code.AUDIO_FORMAT, "is a WAV whose samples come before their format")
            return _wav_samples(data, place, size, *form)
        if name == b"fmt ":
            form = _wav_form(data[place : place + min(size, 40)])
        place += size + size % 2
    raise Unfit(Code.AUDIO_FORMAT, "is a WAV whose header is cut: there are no samples in it")


def _wav_form(chunk: bytes) -> tuple[int, int, str, int]:
    """Rate, channels, coding and bytes of one frame, which is one sample of each channel."""
    if len(chunk) < 16:
        raise Unfit(Code.AUDIO_FORMAT, "is a WAV whose header is cut inside the format")
    tag, channels, rate_hz, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
    check_bounds(rate_hz, channels)
    if tag == _WAV_EXTENSIBLE and chunk[26:40] == _WAV_SUBFORMAT_REST:
        tag = int.from_bytes(chunk[24:26], "little")
    coding = _WAV_CODINGS.get((tag, bits))
    if coding is None:
        allowed = "PCM of 8, 16, 24 or 32 bits, floats of 32 or 64, A-law and mu-law of 8 are taken"
        raise Unfit(Code.AUDIO_FORMAT, f"is a WAV of coding {tag} with {bits} bits a sample; {allowed}")
    if frame_bytes != channels * bits // 8:
        found = f"{frame_bytes} bytes a frame for {channels} channels of {bits} bits"
        raise Unfit(Code.AUDIO_FORMAT, f"is a WAV whose header contradicts itself: {found}")
    return rate_hz, channels, coding, frame_bytes


def _wav_samples(
    data: bytes, start: int, size: int, rate_hz: int, channels: int, coding: str, frame_bytes: int
) -> Heading:
    there = len(data) - start
    riff = int.from_bytes(data[4:8], "little")
    unknown = size >= _WAV_UNKNOWN_BYTES or (size == 0 and riff != len(data) - 8)
    said = there if unknown else size
    damage = ""
    if said > there:
        damage = f"is cut: its header says {said} bytes of samples and {there} are there"
    elif said % frame_bytes:
        damage = f"is cut: {said} bytes of samples are no whole number of frames of {frame_bytes} bytes"
    frames = min(said, there) // frame_bytes
    end = start + frames * frame_bytes
    return Heading("WAV", rate_hz, channels, start, end, frames, damage, coding)


def flac_heading(data: bytes, start: int) -> Heading:
    """Of the STREAMINFO block at the beginning (RFC 9639); 0 samples in all there means that it does not say."""
    info = data[start + 8 : start + 42]
    if len(info) < 34 or data[start + 4] & 0x7F:
        raise Unfit(Code.AUDIO_FORMAT, "is a FLAC file whose header is cut")
    packed = int.from_bytes(info[10:18], "big")
    rate_hz, channels, frames = packed >> 44, (packed >> 41 & 7) + 1, packed & (1 << 36) - 1
    check_bounds(rate_hz, channels)
    return Heading("FLAC", rate_hz, channels, start, len(data), frames or None)
