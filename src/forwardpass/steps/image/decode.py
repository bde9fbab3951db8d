"""``decode_image``: encoded images to pixels, with every promise of a header checked before anything is decoded."""

import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.image.container import Header, Unreadable, damaged, read_header
from forwardpass.steps.image.pixels import (
    LEVEL,
    PIXELS_MAX,
    Pixels,
    as_pixels,
    each_row,
    grey,
    image_field,
    pillow,
    too_many_pixels,
)
from forwardpass.steps.kind import Fit, Kind, missing, pick
from forwardpass.steps.options import Trouble, choice, field_name, option, several, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

_ENCODED = Fit("an encoded image", lambda field: field.kind in ("image", "bytes") and not field.shape)
_IMAGE_FILE = Fit("an encoded image", lambda field: field.kind == "image" and not field.shape)
_PASSES_MAX = 64  # over the largest image: a progressive JPEG has about ten scans
_BLOCK_ROWS = 64  # of a 16-bit image at once: memory stays flat
_BROKEN = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, AttributeError, struct.error,
)  # fmt: skip
"""What Pillow raises on damaged files."""

Decode = Callable[[bytes, Header], Pixels]


@dataclass(frozen=True, kw_only=True)
class DecodeImage:
    """Decodes JPEG, PNG, WebP, GIF (its first frame) and plain BMP, known by their content, to RGB or grey pixels.

    Makes ragged UINT8 [height, width, 3], with ``color = "gray"`` [height, width, 1] (ITU-R 601-2 luma). EXIF
    orientation is applied; transparent pixels are laid over ``background``; 16 bits become 8 by /257, rounded; CMYK as
    Pillow does it; colour profiles are not applied. A JPEG whose data is flawed yet complete comes out as libjpeg
    repairs it. ``draft`` lets a JPEG be decoded at 1/2, 1/4 or 1/8 while both sides stay at least that long: several
    times quicker, and pixels differ a little from those of a full decode resized.

    A row fails with ``image_truncated``; ``image_invalid`` (no such image, or damaged); ``input_too_large`` (over
    ``pixels_max`` by its header, or a JPEG with very many scans); ``out_of_range`` (a side over ``aspect_max`` times
    the other); ``missing_field``.
    """

    input: str | None = option(field_name(), "the encoded image; without it the latest image field, else bytes", None)
    output: str = option(field_name(), "where the pixels go", "image")
    color: Literal["rgb", "gray"] = option(choice("rgb", "gray"), "three channels or one", "rgb")
    background: tuple[int, ...] = option(several(LEVEL), "[red, green, blue] behind transparency", (255, 255, 255))
    pixels_max: int = option(whole(1, PIXELS_MAX), "the most pixels, width times height", 25_000_000)
    aspect_max: int = option(whole(1, 65_535), "how many times the shorter side the longer may be", 200)
    draft: int = option(whole(0, 65_535), "the least side that is still needed; 0 = decode in full", 0)


def _background_problems(options: DecodeImage) -> list[Trouble]:
    if len(options.background) == 3:
        return []
    return [("background", f"{len(options.background)} levels", "three: [red, green, blue]")]


def _source(options: DecodeImage, known: FieldMap) -> Field:
    """An image field goes before a bytes field that was made later."""
    images = any(_IMAGE_FILE.test(field) for field in known.values())
    return pick(known, options.input, _IMAGE_FILE if images and options.input is None else _ENCODED)


def _decoded_fields(options: DecodeImage, known: FieldMap) -> list[Field]:
    _source(options, known)
    return [image_field(options.output, 3 if options.color == "rgb" else 1)]


def _decode(options: DecodeImage, known: FieldMap, context: Context) -> Prepared:
    source = _source(options, known).name
    decode = _decoder(options)

    def decoded(_: int, data: bytes | None) -> Pixels:
        if data is None:
            raise missing(source)
        try:
            header = read_header(data)
            _check_bounds(source, header, options)
            return upright(decode(data, header), header.orientation)
        except Unreadable as error:
            detail = repr(error.__cause__) if error.__cause__ else ""
            raise Refused(error.code, f"{source}: {error.why}", field=source, detail=detail) from None
        except MemoryError:
            text = f"{source}: there was not enough memory to decode the image"
            raise Failed(Code.ENGINE_OUT_OF_MEMORY, text, field=source) from None

    def run(batch: Batch) -> None:
        batch.columns[options.output] = each_row(batch, source, decoded)

    return run


def _check_bounds(name: str, header: Header, options: DecodeImage) -> None:
    width, height, pixels = header.width, header.height, header.width * header.height
    what = f"{name}: is {width} x {height} pixels"
    if width < 1 or height < 1:
        raise Refused(Code.IMAGE_INVALID, f"{what}; both sides must be 1 or more", field=name)
    if pixels > options.pixels_max:
        raise too_many_pixels(name, width, height, options.pixels_max)
    if max(width, height) > options.aspect_max * min(width, height):
        text = f"{what}; the longer side may be {options.aspect_max} times the other at most"
        raise Refused(Code.OUT_OF_RANGE, text, field=name)
    if header.scans * pixels > _PASSES_MAX * options.pixels_max:
        text = f"{name}: has {header.scans} scans of {pixels} pixels; no image needs so many"
        raise Refused(Code.INPUT_TOO_LARGE, text, field=name)


def _decoder(options: DecodeImage) -> Decode:
    full = _pillow_decoder(options)
    try:
        from simplejpeg import decode_jpeg
    except ImportError:  # three times slower, the same pixels
        return full
    grey_only = options.color == "gray"

    def decode(data: bytes, header: Header) -> Pixels:
        if not header.plain:
            return full(data, header)
        divisor = _divisor(header, options.draft)
        colorspace = "GRAY" if header.channels == 1 and grey_only else "RGB"
        size = -(-header.height // divisor), -(-header.width // divisor)
        try:
            # The buffer is as large as the header said, and the decoder writes nowhere else.
            pixels = np.empty((*size, len(colorspace) if colorspace == "RGB" else 1), dtype=np.uint8)
            found = decode_jpeg(
                data, colorspace, min_height=size[0], min_width=size[1], min_factor=divisor, buffer=pixels
            )
        except ValueError:  # flawed, cut or unusual: Pillow decides which
            return full(data, header)
        if found.shape != pixels.shape:
            return full(data, header)
        return grey(found) if grey_only else found

    return decode


def _divisor(header: Header, least: int) -> int:
    """How much smaller a JPEG can be decoded."""
    side = min(header.width, header.height)
    return next((each for each in (8, 4, 2) if least and -(-side // each) >= least), 1)


def _pillow_decoder(options: DecodeImage) -> Decode:
    image_module = pillow("decode_image")
    from PIL import BmpImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

    # One class for each format, chosen by us: no other decoder of the library can ever start.
    openers: dict[str, Any] = {
        "JPEG": JpegImagePlugin.JpegImageFile,
        "PNG": PngImagePlugin.PngImageFile,
        "WEBP": WebPImagePlugin.WebPImageFile,
        "GIF": GifImagePlugin.GifImageFile,
        "BMP": BmpImagePlugin.BmpImageFile,
    }
    background = options.background
    # It warns of what is checked here in its own way; the filter is the process's, so it is set once.
    warnings.filterwarnings("ignore", module=r"PIL\b")

    def decode(data: bytes, header: Header) -> Pixels:
        essence = header.essence(data)
        try:
            with openers[header.format](BytesIO(essence)) as picture:
                if picture.size != (header.width, header.height):
                    raise damaged(header.format)
                if header.format == "PNG" and header.depth == 16:
                    pixels = _sixteen_bits(openers["PNG"], picture, essence, header.channels, background)
                else:
                    divisor = _divisor(header, options.draft)
                    if header.format == "JPEG" and divisor > 1:
                        picture.draft(None, (header.width // divisor, header.height // divisor))
                    pixels = as_pixels(_opaque(image_module, picture, background))
        except (*_BROKEN, image_module.DecompressionBombError) as error:
            raise damaged(header.format) from error
        if options.color == "gray":
            return grey(pixels)
        return pixels if pixels.shape[-1] == 3 else pixels.repeat(3, axis=-1)

    return decode


def _opaque(image_module: Any, picture: Any, background: tuple[int, ...]) -> Any:
    """The picture in L or RGB, laid over the background where it is transparent."""
    picture.load()
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        below = image_module.new("RGB", picture.size, background)
        below.paste(picture, mask=picture.getchannel("A"))
        return below
    if picture.mode in ("L", "1"):
        return picture.convert("L")
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _sixteen_bits(opener: Any, picture: Any, essence: bytes, channels: int, background: tuple[int, ...]) -> Pixels:
    """A 16-bit PNG in 8 bits, each level divided by 257 and rounded once, after it was laid over the background."""
    levels = _levels(opener, picture, essence, channels)
    key = picture.info.get("transparency")
    alpha = levels[..., -1:] if channels in (2, 4) else None
    colors = levels if alpha is None else levels[..., :-1]
    if alpha is None and key is not None:
        alpha = np.where((colors == np.array(key, dtype=np.uint16)).all(axis=-1, keepdims=True), 0, 65535).astype(
            np.uint16
        )
    if alpha is None:
        return _blocks(colors, lambda rows: (colors[rows].astype(np.uint32) + 128) // 257)
    behind = np.array(background, dtype=np.uint64) * 257

    def laid(rows: slice) -> NDArray[Any]:
        cover = alpha[rows].astype(np.uint64)
        mixed = colors[rows] * cover + behind * (65535 - cover)
        return (mixed + 65535 * 257 // 2) // (65535 * 257)

    return _blocks(np.broadcast_to(colors, (*colors.shape[:2], 3)), laid)


def _blocks(like: NDArray[Any], part: Callable[[slice], NDArray[Any]]) -> Pixels:
    pixels = np.empty(like.shape, dtype=np.uint8)
    for start in range(0, len(pixels), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        pixels[rows] = part(rows)
    return pixels


def _levels(opener: Any, picture: Any, essence: bytes, channels: int) -> NDArray[np.uint16]:
    """All 16 bits of each channel. Pillow has no mode for colours of that depth and drops the low byte.

    But it unpacks the same bytes in either order: once for the high bytes and once for the low ones.
    """
    if channels == 1:
        picture.load()
        levels: NDArray[np.uint16] = np.asarray(picture).astype(np.uint16)
        return levels[..., np.newaxis]
    if channels == 2:
        raw = _unpacked(picture, "RGBA").astype(np.uint16)
        return np.asarray(raw[..., 0::2] << 8 | raw[..., 1::2], dtype=np.uint16)
    mode = "RGB" if channels == 3 else "RGBA"
    high = _unpacked(picture, f"{mode};16B").astype(np.uint16)
    with opener(BytesIO(essence)) as again:
        low = _unpacked(again, f"{mode};16L")
    return np.asarray(high << 8 | low, dtype=np.uint16)


def _unpacked(picture: Any, layout: str) -> Pixels:
    picture.tile = [picture.tile[0]._replace(args=layout)]
    picture.load()
    unpacked: Pixels = np.asarray(picture)
    return unpacked


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """The image as EXIF orientation 1 to 8 says it is to be seen."""
    if orientation == 1:
        return pixels
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


DECODE_IMAGE = Kind("decode_image", DecodeImage, _decoded_fields, _decode, _background_problems)
