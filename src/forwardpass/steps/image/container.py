"""The headers of encoded images, read without decoding: format, size, orientation, and the bytes that bear on pixels.

Everything else in a file (texts, colour profiles, previews, comments, further frames) is left out of what a library is
given later, so nothing in it can grow in memory or keep a parser busy. All walks are bounded by ``PARTS_MAX``.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from forwardpass.core.errors import Code

Format = Literal["JPEG", "PNG", "WEBP", "GIF", "BMP"]

PARTS_MAX = 200_000
"""Segments, chunks or blocks of one file; a photo has a few hundred."""

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_KEPT = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_PNG_PALETTE = 3
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF markers of JPEG
_PLAIN_FRAMES = frozenset({0xC0, 0xC1, 0xC2})  # Huffman: baseline, extended, progressive
_JPEG_LEFT_OUT = frozenset(range(0xE1, 0xF0)) - {0xEE} | {0xFE}  # APP1..APP15 and comments, but Adobe's colour marker
_JPEG_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # among a scan's data, where 0xFF is written as 0xFF00
_ORIENTATION_TAG = 0x0112


class Unreadable(Exception):
    """These bytes are no image that can be decoded; ``why`` is for the caller and completes "photo: "."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of its image. ``parts`` are the places of the bytes that are needed to decode it."""

    format: Format
    width: int
    height: int
    parts: tuple[slice, ...]
    orientation: int = 1  # EXIF: how the stored image is turned
    channels: int = 3  # JPEG, PNG
    depth: int = 8  # PNG: bits of one channel
    scans: int = 1  # JPEG: how often the decoder passes over the image
    plain: bool = False  # JPEG: one that every decoder takes

    def essence(self, data: bytes) -> bytes:
        """The file without all that does not bear on its pixels."""
        return b"".join([data[part] for part in self.parts])


def read_header(data: bytes) -> Header:
    """The header of a JPEG, PNG, WebP, GIF or BMP, known by its content. Raises Unreadable."""
    try:
        if data[:3] == b"\xff\xd8\xff":
            return _jpeg(data)
        if data[:8] == _PNG:
            return _png(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return _gif(data)
        if data[:2] == b"BM" and len(data) >= 18 and data[15:18] == b"\0\0\0":
            return _bmp(data)
    except (IndexError, struct.error):  # a read past the end
        raise truncated() from None
    raise Unreadable(Code.IMAGE_INVALID, "is not a JPEG, PNG, WebP, GIF or BMP image")


def truncated() -> Unreadable:
    return Unreadable(Code.IMAGE_TRUNCATED, "the image file is cut short")


def damaged(format: Format) -> Unreadable:
    return Unreadable(Code.IMAGE_INVALID, f"is not a {format} image that can be decoded")


def _count(parts: int, format: Format) -> None:
    if parts > PARTS_MAX:
        raise Unreadable(Code.IMAGE_INVALID, f"has more than {PARTS_MAX} parts; no {format} image needs so many")


def _jpeg(data: bytes) -> Header:
    parts, frame, orientation = [slice(0, 2)], b"", 1
    for marker, start, end in _jpeg_segments(data):
        if marker == 0xE1 and orientation == 1 and data[start : start + 6] == b"Exif\0\0":
            orientation = exif_orientation(data[start + 6 : end])
        elif marker in _FRAMES:
            if frame:
                raise damaged("JPEG")
            frame, frame_marker = data[start:end], marker
        if marker not in _JPEG_LEFT_OUT:
            parts.append(slice(start - 4, end))
    if len(frame) < 6:
        raise damaged("JPEG")
    depth, height, width, channels = struct.unpack_from(">BHHB", frame)
    several = frame_marker not in (0xC0, 0xC1) or data[start] != channels
    scans, scans_end = _jpeg_scans(data, end) if several else (1, end)
    if data.rfind(b"\xff\xd9", scans_end) < 0:
        raise truncated()
    parts.append(slice(end, None))
    return Header(
        "JPEG", width, height, tuple(parts), orientation, channels, scans=scans,
        plain=frame_marker in _PLAIN_FRAMES and depth == 8 and channels in (1, 3),
    )  # fmt: skip


def _jpeg_scans(data: bytes, at: int) -> tuple[int, int]:
    """How many scans there are from the first one's data at ``at`` to the image's end, and where that is.

    What stands behind the end (the video of a motion photo) is not the image's. Ends early where a decoder would.
    """
    scans, parts = 1, 0
    while (found := _JPEG_MARKER.search(data, at)) is not None:
        parts += 1
        _count(parts, "JPEG")
        at, marker = found.start(), data[found.start() + 1]
        if marker in (0xD8, 0xD9):
            return scans, at
        scans += marker == 0xDA
        # Below 0xC0 is none that has a length: a decoder that resynchronises passes over it.
        at += 2 if marker < 0xC0 else 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return scans, min(at, len(data))


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, where what follows its length starts, where that ends) up to and with the first scan's header."""
    at, parts = 2, 0
    while True:
        parts += 1
        _count(parts, "JPEG")
        if data[at] != 0xFF:
            raise damaged("JPEG")
        while data[at + 1] == 0xFF:  # fill bytes
            at += 1
            parts += 1
            _count(parts, "JPEG")
        marker = data[at + 1]
        if marker == 0xD9 or marker < 0xC0:
            raise damaged("JPEG")
        if 0xD0 <= marker <= 0xD8:  # stands alone; none of these belongs here
            raise damaged("JPEG")
        end = at + 2 + ((data[at + 2] << 8) | data[at + 3])
        if end < at + 4:
            raise damaged("JPEG")
        if end > len(data):
            raise truncated()
        yield marker, at + 4, end
        if marker == 0xDA:
            return
        at = end


def _png(data: bytes) -> Header:
    at, kind, kept, orientation = 8, b"", [slice(0, 8)], 1
    parts, palette = 0, False
    view = memoryview(data)
    while kind != b"IEND":
        parts += 1
        _count(parts, "PNG")
        (length,) = struct.unpack_from(">I", data, at)
        kind, end = data[at + 4 : at + 8], at + 12 + length
        if end > len(data):
            raise truncated()
        if parts == 1 and (kind != b"IHDR" or length != 13):
            raise damaged("PNG")
        if kind in _PNG_KEPT:
            # The library skips the check sums of pixels, and a flipped bit would go by unseen.
            if zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
                raise damaged("PNG")
            if kind == b"PLTE":
                palette = length % 3 == 0 and 0 < length <= 768
            if kind in (b"PLTE", b"IDAT") and data[25] == _PNG_PALETTE and not palette:
                raise damaged("PNG")
            kept.append(slice(at, end))
        elif kind == b"eXIf":
            orientation = exif_orientation(data[at + 8 : end - 4])
        at = end
    width, height, depth, color = struct.unpack_from(">IIBB", data, 16)
    if color not in _PNG_CHANNELS:
        raise damaged("PNG")
    return Header("PNG", width, height, tuple(kept), orientation, _PNG_CHANNELS[color], depth)


def _webp(data: bytes) -> Header:
    if 8 + struct.unpack_from("<I", data, 4)[0] > len(data):
        raise truncated()
    kind, orientation = data[12:16], 1
    if kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8X":
        if len(data) < 30:
            raise truncated()
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        orientation = _webp_orientation(data)
    else:
        raise damaged("WEBP")
    return Header("WEBP", width, height, (slice(0, None),), orientation)


def _webp_orientation(data: bytes) -> int:
    at, parts = 12, 0
    while at + 8 <= len(data):
        parts += 1
        _count(parts, "WEBP")
        (length,) = struct.unpack_from("<I", data, at + 4)
        if data[at : at + 4] == b"EXIF":
            return exif_orientation(data[at + 8 : at + 8 + length].removeprefix(b"Exif\0\0"))
        at += 8 + length + (length & 1)
    return 1


def _gif(data: bytes) -> Header:
    """Up to the end of the first frame: the canvas, its palette, the last word on transparency, the frame."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    parts, control = [slice(0, at)], None
    blocks = 0
    while data[at] == 0x21:  # an extension
        end, count = _gif_blocks(data, at + 2, blocks)
        blocks = count
        if data[at + 1] == 0xF9:
            control = slice(at, end)
        at = end
    if data[at] != 0x2C:
        raise damaged("GIF")
    left, top, frame_width, frame_height, flags = struct.unpack_from("<HHHHB", data, at + 1)
    blocks_at = at + 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    end, _ = _gif_blocks(data, blocks_at, blocks)
    if control is not None:
        parts.append(control)
    parts.append(slice(at, end))
    return Header("GIF", max(width, left + frame_width), max(height, top + frame_height), tuple(parts))


def _gif_blocks(data: bytes, at: int, blocks: int) -> tuple[int, int]:
    """Where a chain of blocks that starts at ``at`` ends, and how many blocks there were up to here."""
    while (length := data[at]) != 0:
        blocks += 1
        _count(blocks, "GIF")
        at += 1 + length
    return at + 1, blocks + 1


def _bmp(data: bytes) -> Header:
    offset, size = struct.unpack_from("<II", data, 10)
    if size == 12:
        width, height, _, depth = struct.unpack_from("<HHHH", data, 18)
        compression = 0
    else:
        width, height, _, depth, compression = struct.unpack_from("<iiHHI", data, 18)
    if compression not in (0, 3):  # run lengths are decoded far too slowly for what they are worth
        raise Unreadable(Code.IMAGE_INVALID, "is a compressed BMP image; only plain ones are decoded")
    height = abs(height)
    if width > 0 and offset + (width * depth + 31) // 32 * 4 * height > len(data):
        raise truncated()
    return Header("BMP", width, height, (slice(0, None),))


def exif_orientation(exif: bytes) -> int:
    """Tag 0x0112 of the first directory of a TIFF header; 1 when there is none, or what is there makes no sense."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < 8:
        return 1
    (at,) = struct.unpack_from(order + "I", exif, 4)
    if at + 2 > len(exif):
        return 1
    (count,) = struct.unpack_from(order + "H", exif, at)
    for entry in range(at + 2, min(at + 2 + 12 * count, len(exif) - 11), 12):
        tag, kind, _, short = struct.unpack_from(order + "HHIH", exif, entry)
        if tag == _ORIENTATION_TAG:
            return short if kind == 3 and 1 <= short <= 8 else 1
    return 1
