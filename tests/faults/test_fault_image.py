"""Images that lie, are cut, damaged or made to hurt (group M): each fails alone, at once, without using memory."""

import io
import random
import struct
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.steps.photos import PHOTO, china, chunk, decoded, encoded, png, png16

from forwardpass.core.errors import Code, Failure, Refused
from forwardpass.core.pipeline import Input, Signature
from forwardpass.pipeline.fields import encode
from forwardpass.steps.catalogue import kinds
from forwardpass.steps.protocol import Batch, Context, object_column


def decode(*data: bytes, **options: Any) -> Batch:
    batch = Batch({"photo": object_column(data)}, len(data), list(range(len(data))))
    kinds()["decode_image"].prepare(options, {"photo": PHOTO}, Context(Path("/nowhere")))(batch)
    batch.settle()
    return batch


def refused(data: bytes, **options: Any) -> Failure:
    batch = decode(data, **options)
    assert isinstance(batch.failures[0], Refused)
    assert batch.failures[0].text.startswith("photo: ") and batch.failures[0].field == "photo"
    return batch.failures[0]


class Cost:
    """What a block used: ``cpu_s``, and ``grown_mb``, by how much the process was larger at its largest than before."""

    def __enter__(self) -> "Cost":
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        self.before_kb = _memory_kb("VmRSS")
        self.started = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s = time.process_time() - self.started
        self.grown_mb = (_memory_kb("VmHWM") - self.before_kb) / 1024


def _memory_kb(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("kept", [30, 0.5, -2])
def test_m1_a_file_that_is_cut_is_truncated_wherever(format: str, kept: float) -> None:
    data = encoded(china(200, 100), format)
    if format == "GIF" and kept == -2:
        kept = -3  # its last two bytes are no pixels
    cut = data[: int(len(data) * kept)] if kept == 0.5 else data[: int(kept)]
    assert refused(cut).code is Code.IMAGE_TRUNCATED


def test_m1_every_cut_of_a_jpeg_is_refused() -> None:
    data = encoded(china(40, 30), "JPEG")
    codes = {failure.code for failure in decode(*(data[:size] for size in range(len(data)))).failures.values()}
    assert codes == {Code.IMAGE_TRUNCATED, Code.IMAGE_INVALID}
    assert len(decode(*(data[:size] for size in range(len(data)))).failures) == len(data)


@pytest.mark.parametrize("side", [40_000, 2**31 - 1])
def test_m2_a_header_that_lies_is_refused_before_decoding(side: int) -> None:
    with Cost() as cost:
        failure = refused(png(side, side, 8, 2, b"\0"))
    assert failure.code is Code.INPUT_TOO_LARGE
    assert failure.text.endswith(f"are {side * side} pixels; at most 25000000 are allowed")
    assert cost.cpu_s < 0.5 and cost.grown_mb < 20


def sized(format: str, width: int, height: int) -> bytes:
    """A small image whose header says another size."""
    data = bytearray(encoded(china(64, 64), format))
    match format:
        case "JPEG":
            at = data.index(b"\xff\xc0") + 5
            data[at : at + 4] = struct.pack(">HH", height, width)
        case "WEBP":
            data[26:30] = struct.pack("<HH", width, height)
        case "GIF":
            data[6:10] = struct.pack("<HH", width, height)
        case "BMP":
            data[18:26] = struct.pack("<ii", width, height)
    return bytes(data)


@pytest.mark.parametrize("format", ["JPEG", "WEBP", "GIF", "BMP"])
def test_m2_every_format_is_measured_by_its_header(format: str) -> None:
    side = 16_000
    with Cost() as cost:
        failure = refused(sized(format, side, side))
    assert failure.code is (Code.IMAGE_TRUNCATED if format == "BMP" else Code.INPUT_TOO_LARGE)
    assert cost.cpu_s < 0.5 and cost.grown_mb < 20


def test_m3_a_small_file_of_very_many_pixels_is_refused_and_the_bound_can_be_moved() -> None:
    data = png(9_000, 9_000, 1, 0, bytes(9_000 * 1_126))
    with Cost() as cost, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert refused(data).code is Code.INPUT_TOO_LARGE
    assert cost.cpu_s < 0.5 and cost.grown_mb < 40
    assert refused(encoded(china(11, 10), "PNG"), pixels_max=109).code is Code.INPUT_TOO_LARGE
    assert decode(encoded(china(11, 10), "PNG"), pixels_max=110).rows == 1


def test_m3_an_image_over_pillows_own_bound_is_decoded_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [encoded(china(40, 30), format) for format in ("JPEG", "PNG", "GIF", "BMP", "WEBP")]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert decode(*data).rows == 5


def test_m9_images_without_pixels_are_refused() -> None:
    assert refused(png(0, 0, 8, 2, b"\0")).code is Code.IMAGE_INVALID
    for format in ("JPEG", "BMP"):
        assert refused(sized(format, 0, 0)).code is Code.IMAGE_INVALID
    assert refused(sized("JPEG", 64, 0)).code is Code.IMAGE_INVALID


@pytest.mark.parametrize(("width", "height"), [(1, 65_535), (65_535, 1)])
def test_m9_long_thin_images_are_refused_unless_allowed(width: int, height: int) -> None:
    data = encoded(Image.new("RGB", (width, height), "red"), "PNG")
    assert refused(data).code is Code.OUT_OF_RANGE
    assert decode(data, aspect_max=65_535).columns["image"][0].shape == (height, width, 3)


def test_m9_one_pixel_is_an_image() -> None:
    assert decode(encoded(Image.new("RGB", (1, 1), (3, 2, 1)), "PNG")).columns["image"][0].tolist() == [[[3, 2, 1]]]


BOMB = zlib.compress(bytes(50_000_000), 9)


@pytest.mark.parametrize(
    "bomb",
    [
        chunk(b"zTXt", b"a\0\0" + BOMB) * 20, chunk(b"iCCP", b"a\0\0" + BOMB), chunk(b"iTXt", b"a\0\1\0\0\0" + BOMB) * 20,
        chunk(b"eXIf", b"MM\0*\0\0\0\x08\xff\xff" + bytes(700_000)), chunk(b"tEXt", b"a\0b") * 10_000,
        chunk(b"prVt", bytes(100)) * 10_000,
    ],
    ids=["zTXt", "iCCP", "iTXt", "eXIf", "10,000 texts", "10,000 unknown"],
)  # fmt: skip
def test_m10_what_surrounds_the_pixels_of_a_png_costs_nothing(bomb: bytes) -> None:
    data = png(1, 1, 8, 2, b"\0\1\2\3", bomb)
    with Cost() as cost:
        assert decode(data).columns["image"][0].tolist() == [[[1, 2, 3]]]
    assert cost.cpu_s < 1 and cost.grown_mb < 20


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


@pytest.mark.parametrize(
    "more",
    [
        segment(0xE1, b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\x01\x12\0\x05" * 16_000) * 100,
        segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff"), segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\0\0"),
        segment(0xE1, b"Exif\0\0"), segment(0xE2, b"MPF\0" + bytes(60_000)), segment(0xFE, bytes(60_000)) * 300,
        segment(0xED, b"Photoshop 3.0\0" + b"8BIM" * 10_000), segment(0xFE, b"") * 10_000,
    ],
)  # fmt: skip
def test_m10_what_surrounds_the_pixels_of_a_jpeg_costs_nothing(more: bytes) -> None:
    plain = encoded(china(40, 30).convert("CMYK"), "JPEG")
    for kind in (plain, encoded(china(40, 30), "JPEG")):
        with Cost() as cost:
            found = decode(kind[:2] + more + kind[2:]).columns["image"][0]
        np.testing.assert_array_equal(found, decoded(kind))
        assert cost.cpu_s < 1 and cost.grown_mb < 60


def test_m10_the_walk_over_a_files_parts_is_bounded() -> None:
    jpeg, gif = encoded(china(4, 3), "JPEG"), encoded(china(4, 3), "GIF")
    parts, start = 300_000, 13 + (3 << (gif[10] & 7) + 1)  # behind the palette
    for data in (
        jpeg[:2] + segment(0xFE, b"") * parts + jpeg[2:], jpeg[:2] + b"\xff" * parts + jpeg[2:],
        png(1, 1, 8, 2, b"\0\1\2\3", chunk(b"tEXt", b"") * parts), gif[:start] + b"!\xfe\1x\0" * parts + gif[start:],
    ):  # fmt: skip
        with Cost() as cost:
            assert refused(data).code is Code.IMAGE_INVALID
        assert cost.cpu_s < 2


def scanned(times: int, before: bytes = b"") -> bytes:
    """A progressive JPEG whose last scan comes so many times more, each behind these bytes."""
    data = encoded(china(640, 427), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + (before + data[last:-2]) * times + data[-2:]


@pytest.mark.parametrize("before", [b"", segment(0xFE, b"\xff\xd9"), b"\xff\xff", b"\xff\x01"])
def test_m10_a_progressive_jpeg_of_very_many_scans_is_refused(before: bytes) -> None:
    with Cost() as cost:
        failure = refused(scanned(15, before), pixels_max=640 * 427)
    assert failure.text == "photo: has 25 scans of 273280 pixels; no image needs so many"
    assert cost.cpu_s < 0.5
    assert decode(scanned(14, before), pixels_max=640 * 427).rows == 1 or before == b"\xff\x01"


def test_m10_what_stands_behind_the_end_of_a_jpeg_is_no_scan_of_it() -> None:
    data = scanned(1)
    found = decode(data + scanned(100), pixels_max=640 * 427).columns["image"][0]
    np.testing.assert_array_equal(found, decoded(data))


@pytest.mark.parametrize("color", [0, 2, 4, 6])
def test_m7_sixteen_bits_cost_no_more_than_their_bytes(color: int) -> None:
    width, height, channels = 2_000, 2_000, {0: 1, 2: 3, 4: 2, 6: 4}[color]
    with Cost() as cost:
        assert decode(png(width, height, 16, color, bytes((1 + width * channels * 2) * height))).rows == 1
    assert cost.cpu_s < 2 and cost.grown_mb < 90


PALETTES = [b"", chunk(b"PLTE", b""), chunk(b"PLTE", b"\1\2"), chunk(b"PLTE", bytes(771))]


@pytest.mark.parametrize("palette", PALETTES)
def test_a_palette_png_without_a_palette_is_refused(palette: bytes) -> None:
    whole = png(1, 1, 8, 3, b"\0\0", palette)
    late = whole[:-12] + chunk(b"PLTE", b"\1\2\3") + whole[-12:]
    batch = decode(whole, late, png(1, 1, 8, 3, b"\0\0", chunk(b"PLTE", b"\1\2\3")))
    assert {row: failure.code for row, failure in batch.failures.items()} == dict.fromkeys((0, 1), Code.IMAGE_INVALID)
    assert batch.columns["image"][0].tolist() == [[[1, 2, 3]]]


def test_m11_the_content_decides_and_what_follows_an_image_is_no_matter() -> None:
    for format in ("JPEG", "PNG", "GIF", "BMP", "WEBP"):
        data = encoded(china(40, 30), format)
        np.testing.assert_array_equal(decode(data + b"<script>alert(1)</script>").columns["image"][0], decoded(data))


@pytest.mark.parametrize("format", ["EPS", "TIFF", "PPM", "ICO", "PDF", "TGA", "JPEG2000", "PCX", "AVIF"])
def test_m11_no_other_format_is_ever_decoded(format: str) -> None:
    assert refused(encoded(china(40, 30), format)).code is Code.IMAGE_INVALID


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"text", b"<svg/>", b"BM", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a"]
)
def test_m11_what_is_no_image_is_refused(data: bytes) -> None:
    assert refused(data).code in (Code.IMAGE_INVALID, Code.IMAGE_TRUNCATED)


def test_a_flipped_bit_in_the_pixels_of_a_png_is_seen() -> None:
    data = bytearray(encoded(china(40, 30), "PNG"))
    data[len(data) // 2] ^= 1
    assert refused(bytes(data)).code is Code.IMAGE_INVALID


def test_a_run_length_bmp_is_refused() -> None:
    data = bytearray(encoded(china(40, 30).convert("P"), "BMP"))
    data[30] = 1
    assert "compressed BMP" in refused(bytes(data)).text


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_thousand_damaged_files_fail_alone_or_are_decoded(format: str, mode: str) -> None:
    chance = random.Random(format + mode)
    whole = encoded(china(40, 30).convert(mode), format)
    damaged_files_fail_alone(whole, chance, png=format == "PNG")
    np.testing.assert_array_equal(decode(whole).columns["image"][0], decoded(whole))


def seeds() -> dict[str, bytes]:
    """Kinds of PNG that take ways of their own through a decoder."""
    levels = np.random.default_rng(0).integers(0, 65536, (30, 40, 4), dtype=np.uint16)
    photo = china(40, 30)
    lines = np.asarray(photo)
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    adam7 = b"".join(b"\0" + line.tobytes() for x, y, dx, dy in passes for line in lines[y::dy, x::dx])
    plain = png(40, 30, 8, 2, adam7)
    key = chunk(b"tRNS", struct.pack(">H", 3))
    return {
        **{mode: encoded(photo.convert(mode), "PNG") for mode in ("P", "1", "LA", "RGBA")},
        "P tRNS": encoded(photo.convert("P"), "PNG", transparency=bytes(range(256))),
        "4 bits": png(40, 30, 4, 0, (b"\0" + bytes(range(20))) * 30, key),
        **{f"16 bits, {color}": png16(levels[..., :count], color) for color, count in ((0, 1), (2, 3), (4, 2), (6, 4))},
        "interlaced": plain[:28] + b"\1" + struct.pack(">I", zlib.crc32(plain[12:28] + b"\1")) + plain[33:],
    }


@pytest.mark.parametrize("name", list(seeds()))
def test_a_thousand_damaged_pngs_of_each_kind_fail_alone_or_are_decoded(name: str) -> None:
    damaged_files_fail_alone(seeds()[name], random.Random(name), png=True)


def damaged_files_fail_alone(whole: bytes, chance: random.Random, *, png: bool) -> None:
    def damage(data: bytearray) -> bytes:
        for _ in range(chance.choice([1, 1, 3, 10])):
            place = chance.randrange(min(len(data), chance.choice([64, len(data)])))
            data[place] = chance.choice([0, 255, chance.randrange(256), data[place] ^ (1 << chance.randrange(8))])
        if chance.random() < 0.2:
            del data[place : place + chance.randrange(50)]
        return with_right_sums(bytes(data)) if png else bytes(data)

    batch = decode(whole, *(damage(bytearray(whole)) for _ in range(1000)), pixels_max=1_000_000)
    known = {Code.IMAGE_INVALID, Code.IMAGE_TRUNCATED, Code.INPUT_TOO_LARGE, Code.OUT_OF_RANGE}
    assert {failure.code for failure in batch.failures.values()} <= known
    assert len(batch.failures) + batch.rows == 1001 and 0 not in batch.failures


def with_right_sums(data: bytes) -> bytes:
    """The PNG with its check sums made right, so that damage reaches what decodes it."""
    out, at = data[:8], 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        out += chunk(data[at + 4 : at + 8], data[at + 8 : at + 8 + length])
        at += 12 + length
    return out


@pytest.mark.parametrize("value", ["/9j", "/9j /9j=", "_9j_", "data:image/png;base64,iVBORw0=", "iVBORw1="])
def test_m15_base64_is_strict(value: str) -> None:
    signature = Signature((Input("photo", "image"),), ())
    with pytest.raises(Refused) as caught:
        encode(signature, [{"photo": value}])
    assert caught.value.code is Code.INVALID_INPUT


def test_m15_too_many_bytes_are_refused() -> None:
    signature = Signature((Input("photo", "image", bytes_max=1_000_000),), ())
    with pytest.raises(Refused) as caught:
        encode(signature, [{"photo": "A" * 100_000_000}])
    assert caught.value.code is Code.INPUT_TOO_LARGE


def test_pillow_is_as_strict_with_cut_files_as_ever() -> None:
    from PIL import ImageFile

    decode(encoded(china(8, 8), "PNG"))
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    assert Image.open(io.BytesIO(encoded(china(8, 8), "PNG"))).size == (8, 8)
