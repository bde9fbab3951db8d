"""What an Ogg or MP3 file says of itself, packet by packet.

Their decoders skip what is damaged without a word, so damage is looked for here: Ogg by the check sum and number of
each page (RFC 3533), MP3 by frames that must follow each other without a gap (ISO 11172-3, 13818-3).
"""

import zlib
from dataclasses import dataclass

from forwardpass.core.errors import Code
from forwardpass.steps.audio.headers import Heading, Unfit, check_bounds, too_long

_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_OGG_BEGIN, _OGG_END = 2, 4
_OPUS_RATE_HZ = 48_000
_OGG_PAGES_A_SECOND_MAX, _OGG_PAGES_MORE = 400, 1_000  # each packet on a page of its own, of 2.5 ms as Opus has them

_MP3_RATES_HZ = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_MP3_KILOBITS = {
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MP3_FRAMES_MORE = 16  # silence that the encoder put around the sound, which is not heard
_MP3_ENCODERS_COUNTING_WITHOUT_TAG = (b"LAME", b"Lavf", b"Lavc")  # seen; of others it is not known
_MP3_TAGS_BEHIND = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3", b"3DI")


def ogg_heading(data: bytes, seconds_max: float) -> Heading:
    """Of the first packet. Raises Unfit unless it is one stream of Vorbis or Opus, of pages for so long a sound."""
    table = data[27 : 27 + data[26]] if len(data) > 26 else b""
    rate_hz, channels = _ogg_codec(data[27 + len(table) :][: sum(table)])
    check_bounds(rate_hz, channels)
    return Heading("Ogg", rate_hz, channels, 0, len(data), damage=_ogg_damage(data, seconds_max))


def _ogg_codec(packet: bytes) -> tuple[int, int]:
    """Rate and channels."""
    if packet[:7] == b"\x01vorbis" and len(packet) >= 30:
        return int.from_bytes(packet[12:16], "little"), packet[11]
    if packet[:8] == b"OpusHead" and len(packet) >= 19:
        return _OPUS_RATE_HZ, packet[9]
    raise Unfit(Code.AUDIO_FORMAT, "is an Ogg file that does not begin with Vorbis or Opus sound")


def _ogg_damage(data: bytes, seconds_max: float) -> str:
    """The first thing wrong with the pages. Raises Unfit when there is a second stream: it would be left out."""
    place, number, ended = 0, 0, False
    serial = data[14:18]
    pages_max = int(_OGG_PAGES_A_SECOND_MAX * seconds_max) + _OGG_PAGES_MORE
    while place < len(data):
        if number >= pages_max:
            raise Unfit(Code.AUDIO_FORMAT, f"is an Ogg file of more than {pages_max} pages")
        header = data[place : place + 27]
        table = data[place + 27 : place + 27 + header[26]] if len(header) == 27 else b""
        end = place + 27 + len(table) + sum(table)
        if len(header) < 27 or len(table) < header[26] or end > len(data):
            return "is cut inside its last page"
        page = data[place:end]
        if page[:4] != b"OggS" or _ogg_sum(page) != int.from_bytes(page[22:26].translate(_MIRRORED), "big"):
            return f"is damaged at byte {place}"
        if page[14:18] != serial or ended or (page[5] & _OGG_BEGIN and number):
            raise Unfit(Code.AUDIO_FORMAT, "is an Ogg file of several streams; one is taken")
        if int.from_bytes(page[18:22], "little") != number:
            return f"lacks pages before byte {place}"
        place, number, ended = end, number + 1, bool(page[5] & _OGG_END)
    return "" if ended else "is cut: it has no last page"


def _ogg_sum(page: bytes) -> int:
    """The page's CRC-32, mirrored: Ogg takes each byte's highest bit first and zlib its lowest."""
    return zlib.crc32(b"".join((page[:22], bytes(4), page[26:])).translate(_MIRRORED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class _Mp3Frame:
    rate_hz: int
    channels: int
    bytes: int
    samples: int  # of each channel


def is_mp3(data: bytes, start: int) -> bool:
    """Whether a frame header of MPEG layer III stands there."""
    return _mp3_frame(data, start) is not None


def mp3_heading(data: bytes, start: int, seconds_max: float) -> Heading:
    """Of all its frames, which must be of one rate and number of channels; they are counted to this length only."""
    first = _mp3_frame(data, start)
    assert first is not None, "is_mp3 was asked before"
    check_bounds(first.rate_hz, first.channels)
    place, count, damage = start, 0, ""
    count_max = seconds_max * first.rate_hz / first.samples + _MP3_FRAMES_MORE
    while frame := _mp3_frame(data, place):
        if (frame.rate_hz, frame.channels) != (first.rate_hz, first.channels):
            raise Unfit(Code.AUDIO_FORMAT, "is an MP3 whose rate or number of channels changes on the way")
        if place + frame.bytes > len(data):
            damage = "is cut inside its last frame"
            break
        place, count = place + frame.bytes, count + 1
        if count > count_max:
            raise too_long(seconds_max)
    said = _mp3_frames_said(data[start : start + first.bytes])
    if not damage and not _is_end(data, place):
        damage = f"is damaged at byte {place}"
    if not damage and said is not None and count < said:
        damage = f"is cut: its header says {said} frames and {count} are there"
    end = len(data) if damage else place
    return Heading("MP3", first.rate_hz, first.channels, start, end, damage=damage)


def _mp3_frame(data: bytes, place: int) -> _Mp3Frame | None:
    header = data[place : place + 4]
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:  # 11 bits of sync; layer III
        return None
    version, rate, kilobits = header[1] >> 3 & 3, header[2] >> 2 & 3, header[2] >> 4
    if version == 1 or rate == 3 or kilobits in (0, 15):  # reserved, or a free bit rate, which nobody writes
        return None
    first = version == 3
    rate_hz = _MP3_RATES_HZ[version][rate]
    size = (144_000 if first else 72_000) * _MP3_KILOBITS[first][kilobits] // rate_hz + (header[2] >> 1 & 1)
    return _Mp3Frame(rate_hz, 1 if header[3] >> 6 == 3 else 2, size, 1_152 if first else 576)


def _mp3_frames_said(frame: bytes) -> int | None:
    """What the tag of a variable bit rate in the first frame says of the number of frames, this one counted."""
    first, mono = frame[1] >> 3 & 3 == 3, frame[3] >> 6 == 3
    place = 4 + ((17 if mono else 32) if first else (9 if mono else 17))
    if frame[place : place + 4] not in (b"Xing", b"Info") or not (len(frame) >= place + 12 and frame[place + 7] & 1):
        return None
    said = int.from_bytes(frame[place + 8 : place + 12], "big")
    return said + (frame[place + 120 : place + 124] in _MP3_ENCODERS_COUNTING_WITHOUT_TAG)


def _is_end(data: bytes, place: int) -> bool:
    """Whether only tags or zeros stand from here on."""
    return data.startswith(_MP3_TAGS_BEHIND, place) or not data[place:].strip(b"\0")
