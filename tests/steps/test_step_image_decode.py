"""decode_image gives what Pillow gives, upright and without transparency, from every format it takes."""

import base64
import io
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from tests.steps.photos import PHOTO, china, chunk, decoded, encoded, flower, noise, png, png16

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("JPEG", {"quality": 90}), ("JPEG", {"subsampling": 0}), ("JPEG", {"subsampling": 1, "progressive": True}),
    ("JPEG", {"restart_marker_rows": 1}), ("PNG", {}), ("WEBP", {"quality": 80}), ("WEBP", {"lossless": True}),
    ("GIF", {}), ("BMP", {}),
]  # fmt: skip


def image(run: "Run", data: bytes, **options: Any) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    batch = run("decode_image", options, {PHOTO: [data]})
    assert not batch.failures
    found: np.ndarray[Any, np.dtype[np.uint8]] = batch.columns["image"][0]
    assert found.dtype == np.uint8 and found.flags.c_contiguous
    return found


@pytest.mark.parametrize(("format", "options"), FORMATS)
@pytest.mark.parametrize("size", [(640, 427), (33, 17), (1, 1)])
def test_every_format_is_decoded_as_by_pillow(
    run: "Run", format: str, options: dict[str, Any], size: tuple[int, int]
) -> None:
    data = encoded(china(*size), format, **options)
    np.testing.assert_array_equal(image(run, data), decoded(data))


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_jpegs_of_every_colour_space_become_rgb_or_grey(run: "Run", mode: str, color: str) -> None:
    data = encoded(flower().convert(mode), "JPEG")
    expected = decoded(data) if color == "rgb" else np.asarray(Image.fromarray(decoded(data)).convert("L"))[..., None]
    np.testing.assert_array_equal(image(run, data, color=color), expected)


def test_m6_ycck_is_decoded_as_by_pillow(run: "Run") -> None:
    data = bytearray(encoded(flower().convert("CMYK"), "JPEG"))
    cmyk = decoded(bytes(data))
    data[data.index(b"Adobe") + 11] = 2  # the transform: YCCK instead of CMYK
    np.testing.assert_array_equal(image(run, bytes(data)), decoded(bytes(data)))
    assert (decoded(bytes(data)) != cmyk).any()


@pytest.mark.parametrize("mode", ["1", "L", "P"])
@pytest.mark.parametrize("format", ["PNG", "BMP", "GIF"])
def test_few_colours_become_rgb_or_grey(run: "Run", mode: str, format: str) -> None:
    data = encoded(china(50, 30).convert(mode), format)
    np.testing.assert_array_equal(image(run, data), decoded(data))
    grey = np.asarray(Image.fromarray(decoded(data)).convert("L"))[..., None]
    np.testing.assert_array_equal(image(run, data, color="gray"), grey)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_m5_all_eight_orientations_come_out_upright(run: "Run", format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "a maker", orientation
    data = encoded(flower().resize((40, 30)), format, exif=exif, **({"lossless": True} if format == "WEBP" else {}))
    with Image.open(io.BytesIO(data)) as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    np.testing.assert_array_equal(image(run, data), expected)
    assert image(run, data).shape == ((40, 30, 3) if orientation >= 5 else (30, 40, 3))


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_none(run: "Run", orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(china(20, 10), "JPEG", exif=exif)
    np.testing.assert_array_equal(image(run, data), decoded(data))


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
@pytest.mark.parametrize("background", [[255, 255, 255], [10, 200, 0]])
def test_m6_transparency_is_laid_over_the_background(run: "Run", format: str, background: list[int]) -> None:
    rgba = noise(40, 30, 4)
    found = image(run, encoded(Image.fromarray(rgba), format, lossless=True, exact=True), background=background)
    alpha = rgba[..., 3:] / 255
    np.testing.assert_allclose(found, rgba[..., :3] * alpha + np.array(background) * (1 - alpha), rtol=0, atol=0.501)


def test_m6_grey_with_transparency_is_laid_over_the_background(run: "Run") -> None:
    data = encoded(Image.fromarray(np.array([[[100, 0], [100, 255]]], np.uint8), "LA"), "PNG")
    assert image(run, data, background=[1, 2, 3]).tolist() == [[[1, 2, 3], [100, 100, 100]]]


def test_m6_a_transparent_colour_of_a_palette_shows_the_background(run: "Run") -> None:
    picture = Image.new("P", (2, 1), 0)
    picture.putpalette([9, 9, 9, 50, 60, 70])
    picture.putpixel((1, 0), 1)
    for format in ("PNG", "GIF"):
        data = encoded(picture, format, transparency=0)
        assert image(run, data, background=[1, 2, 3]).tolist() == [[[1, 2, 3], [50, 60, 70]]]


def test_m6_a_transparent_level_without_alpha_shows_the_background(run: "Run") -> None:
    data = encoded(Image.fromarray(np.array([[7, 8]], np.uint8)), "PNG", transparency=7)
    assert image(run, data).tolist() == [[[255, 255, 255], [8, 8, 8]]]


LEVELS = np.random.default_rng(1).integers(0, 65536, (300, 400, 4), dtype=np.uint16)


def rounded(levels: Any) -> Any:
    return np.floor(levels / 257 + 0.5).astype(np.uint8)


def test_m7_sixteen_bits_are_scaled_and_rounded_once(run: "Run") -> None:
    np.testing.assert_array_equal(image(run, png16(LEVELS[..., :1], 0)), rounded(LEVELS[..., [0, 0, 0]]))
    np.testing.assert_array_equal(image(run, png16(LEVELS[..., :3], 2)), rounded(LEVELS[..., :3]))
    np.testing.assert_array_equal(image(run, png16(LEVELS[..., :1], 0), color="gray"), rounded(LEVELS[..., :1]))


def test_m7_sixteen_bits_with_transparency_are_laid_over_the_background(run: "Run") -> None:
    alpha = LEVELS[..., 3:] / 65535
    mixed = LEVELS[..., :3] * alpha + np.array([0, 128, 255]) * 257 * (1 - alpha)
    found = image(run, png16(LEVELS, 6), background=[0, 128, 255])
    np.testing.assert_allclose(found, mixed / 257, rtol=0, atol=0.501)
    grey = LEVELS[..., :1] * alpha + np.array([0, 128, 255]) * 257 * (1 - alpha)
    found = image(run, png16(LEVELS[..., [0, 3]], 4), background=[0, 128, 255])
    np.testing.assert_allclose(found, grey / 257, rtol=0, atol=0.501)


def test_m7_a_transparent_colour_of_sixteen_bits_is_that_very_one(run: "Run") -> None:
    levels = np.array([[[256, 257, 258], [256, 257, 259]]], np.uint16)
    key = chunk(b"tRNS", levels[0, 0].astype(">u2").tobytes())
    assert image(run, png16(levels, 2, key), background=[9, 9, 9]).tolist() == [[[9, 9, 9], [1, 1, 1]]]
    levels = np.array([[[1000], [1001]]], np.uint16)
    key = chunk(b"tRNS", levels[0, 0].astype(">u2").tobytes())
    assert image(run, png16(levels, 0, key), background=[9, 9, 9]).tolist() == [[[9, 9, 9], [4, 4, 4]]]


@pytest.mark.parametrize("format", ["PNG", "WEBP", "GIF"])
def test_the_first_frame_of_an_animation_comes_out(run: "Run", format: str) -> None:
    frames = [Image.new("RGB", (8, 6), color) for color in ((255, 0, 0), (0, 0, 255))]
    data = encoded(frames[0], format, save_all=True, append_images=frames[1:], lossless=True)
    np.testing.assert_array_equal(image(run, data), np.full((6, 8, 3), (255, 0, 0), np.uint8))


def test_a_gif_frame_smaller_than_its_canvas_lies_on_it(run: "Run") -> None:
    data = encoded(china(20, 10).convert("P"), "GIF")
    wider = data[:6] + (30).to_bytes(2, "little") + (15).to_bytes(2, "little") + data[10:]
    np.testing.assert_array_equal(image(run, wider), decoded(wider))


@pytest.mark.parametrize(
    ("least", "divisor"), [(0, 1), (1000, 1), (214, 2), (213, 2), (107, 4), (106, 4), (54, 8), (1, 8)]
)
def test_a_draft_is_decoded_smaller_while_both_sides_stay_long_enough(run: "Run", least: int, divisor: int) -> None:
    data = encoded(china(), "JPEG")
    with Image.open(io.BytesIO(data)) as picture:
        if divisor > 1:
            picture.draft(None, (640 // divisor, 427 // divisor))
        expected = np.asarray(picture)
    assert expected.shape == (-(-427 // divisor), -(-640 // divisor), 3)
    np.testing.assert_array_equal(image(run, data, draft=least), expected)


@pytest.mark.parametrize("draft", [0, 100])
@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_without_simplejpeg_the_pixels_are_the_same(
    run: "Run", monkeypatch: pytest.MonkeyPatch, draft: int, color: str, mode: str
) -> None:
    data = encoded(china(639, 427).convert(mode), "JPEG", quality=85)
    quick = image(run, data, draft=draft, color=color)
    monkeypatch.setitem(__import__("sys").modules, "simplejpeg", None)
    np.testing.assert_array_equal(image(run, data, draft=draft, color=color), quick)


def test_without_pillow_the_advice_says_what_to_install(run: "Run", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(Misconfigured, match=r"decode_image needs the Pillow library.*forwardpass\[image\]") as caught:
        run("decode_image", {}, {PHOTO: [b""]})
    assert caught.value.code is Code.RUNTIME_MISSING


def test_an_image_goes_before_bytes_and_bytes_do_alone(run: "Run") -> None:
    raw = Field("raw", "BYTES", (), "bytes")
    red, blue = (encoded(Image.new("RGB", (1, 1), color), "PNG") for color in ("red", "blue"))
    found = run("decode_image", {"output": "pixels"}, {PHOTO: [red], raw: [blue]}).columns["pixels"][0]
    assert found.tolist() == [[[255, 0, 0]]]
    assert run("decode_image", {}, {raw: [blue]}).columns["image"][0].tolist() == [[[0, 0, 255]]]


def test_a_row_that_fails_leaves_the_others_as_they_are_alone(run: "Run") -> None:
    good = encoded(china(30, 20), "JPEG")
    batch = run("decode_image", {}, {PHOTO: [good, None, b"no image", good[:-2], encoded(flower(), "PNG")]})
    assert {row: failure.code for row, failure in batch.failures.items()} == {
        1: Code.MISSING_FIELD, 2: Code.IMAGE_INVALID, 3: Code.IMAGE_TRUNCATED,
    }  # fmt: skip
    np.testing.assert_array_equal(batch.columns["image"][0], decoded(good))
    np.testing.assert_array_equal(batch.columns["image"][1], np.asarray(flower()))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_pngs_of_few_bits_use_the_whole_range(run: "Run", depth: int) -> None:
    most = 2**depth - 1
    data = png(2, 1, depth, 0, bytes([0, most << (8 - 2 * depth)]))
    assert image(run, data).tolist() == [[[0, 0, 0], [255, 255, 255]]]


@pytest.mark.parametrize("options", [{"background": [1, 2]}, {"background": 3}, {"pixels_max": 0}, {"color": "bgr"}])
def test_options_that_make_no_sense_are_found(run: "Run", options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        run("decode_image", options, {PHOTO: [b""]})


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("key", [0, 1])
def test_m6_the_transparent_level_of_a_grey_png_is_one_of_its_own_depth(run: "Run", depth: int, key: int) -> None:
    most = 2**depth - 1
    row = bytes([most << (8 - depth)]) if depth < 8 else b"\xff\0"  # white, then black
    data = png(2, 1, depth, 0, b"\0" + row, chunk(b"tRNS", struct.pack(">H", key * most)))
    white, black = [[255] * 3, [0] * 3]
    assert image(run, data, background=[9, 8, 7]).tolist() == [[[9, 8, 7], black] if key else [white, [9, 8, 7]]]


# 24 x 16 pixels, by cjpeg -arithmetic
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNiUFVtVkVGZIhlbXd7"
    "gYKBTmCNl4x9lnN+gXz/2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8"
    "fHx8fHx8fHz/yQARCAAQABgDASIAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIRAxEAPwDReeWldJqil19ilP2I0FsQ69Y2rObt"
    "orVP0pwkUex2uK4j3D+1iTrSulbntdZAMIiU/wBMb8+zySV7GhxSK/1K+LEGUHCaIuoGrE5rrcQh01OckNCURCdwp7L/2Q=="
)


def test_an_arithmetic_coded_jpeg_over_64_kib_is_decoded(run: "Run") -> None:
    half = struct.pack(">BBH", 0xFF, 0xE0, (65_536 - len(ARITHMETIC)) // 2) + bytes((65_536 - len(ARITHMETIC)) // 2 - 2)
    data = ARITHMETIC[:2] + half + half + ARITHMETIC[2:]  # its last bytes are behind the first 64 KiB
    assert len(data) > 65_536
    np.testing.assert_array_equal(image(run, data), decoded(ARITHMETIC))
