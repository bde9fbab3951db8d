"""``decode_image``: encoded images to pixels, with every promise of a header checked before anything is decoded."""

import struct
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
_PASSES_MAX = 24
"""Over the largest image. Encoders write 10 scans, optimisers under 20; each costs as much time as an image of one."""
_BLOCK_PIXELS = 1 << 16  # of a 16-bit image at once: only its high and its low bytes are held whole
_BROKEN = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, AttributeError, AssertionError,
    struct.error,
)  # fmt: skip
"""What Pillow raises on damaged files."""

Decode = Callable[[bytes, Header], Pixels]


@dataclass(frozen=True, kw_only=True)
class DecodeImage:
    """Decodes JPEG, PNG, WebP, GIF (its first frame) and plain BMP, known by their content, to RGB or grey pixels.

    Makes ragged UINT8 [height, width, 3], with ``color = "gray"`` [height, width, 1] (ITU-R 601-2 luma). EXIF
    orientation is applied; transparent pixels are laid over ``background``; 16 bits become 8 by /257, rounded; CMYK as
    Pillow does it; colour profiles are not applied. A JPEG may be progressive or arithmetic-coded; one whose data is
    flawed yet complete comes out as libjpeg repairs it. ``draft`` lets a JPEG be decoded at 1/2, 1/4 or 1/8 while both
    sides stay at least that long: several times quicker, and pixels differ a little from those of a full decode
    resized.

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

    def decode(data: bytes, header: Header) -> Pixels:
        essence = header.essence(data)
        try:
            with openers[header.format](BytesIO(essence)) as picture:
                if picture.size != (header.width, header.height):
                    raise damaged(header.format)
                picture.decodermaxblock = len(essence)  # arithmetic coding is decoded in one piece or not at all
                if header.format == "PNG" and header.depth == 16:
                    pixels = _sixteen_bits(openers["PNG"], picture, essence, header.channels, background)
                else:
                    divisor = _divisor(header, options.draft)
                    if header.format == "JPEG" and divisor > 1:
                        picture.draft(None, (header.width // divisor, header.height // divisor))
                    pixels = as_pixels(_opaque(image_module, picture, header, background))
        except (*_BROKEN, image_module.DecompressionBombError, image_module.DecompressionBombWarning) as error:
            raise damaged(header.format) from error
        if options.color == "gray":
            return grey(pixels)
        return pixels if pixels.shape[-1] == 3 else pixels.repeat(3, axis=-1)

    return decode


def _opaque(image_module: Any, picture: Any, header: Header, background: tuple[int, ...]) -> Any:
    """The picture in L or RGB, laid over the background where it is transparent."""
    picture.load()
    if picture.has_transparency_data:
        if picture.mode == "L":  # the library makes 8 bits of the levels, and not of the transparent one
            most = 2**header.depth - 1
            picture.info["transparency"] = (picture.info["transparency"] & most) * (255 // most)
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
    has_alpha = channels in (2, 4)
    behind = np.array(background, dtype=np.uint32) * np.uint32(257)

    def eight_bits(lines: slice) -> NDArray[Any]:
        block = levels(lines)
        if not has_alpha and key is None:
            return (block + np.uint32(128)) // np.uint32(257)
        colors = block[..., :-1] if has_alpha else block
        opaque = block[..., -1:] if has_alpha else (colors != np.array(key)).any(axis=-1, keepdims=True) * 65535
        cover = opaque.astype(np.uint32)
        mixed = colors * cover + behind * (65535 - cover)  # at most 65535 ** 2
        return (mixed.astype(np.float64) + 65535 * 257 // 2) / (65535 * 257)  # cut off when it becomes uint8

    width, height = picture.size
    pixels = np.empty((height, width, 1 if channels == 1 and key is None else 3), dtype=np.uint8)
    step = max(1, _BLOCK_PIXELS // width)
    for start in range(0, height, step):
        lines = slice(start, start + step)
        pixels[lines] = eight_bits(lines)
    return pixels


def _levels(opener: Any, picture: Any, essence: bytes, channels: int) -> Callable[[slice], NDArray[np.uint16]]:
    """All 16 bits of each channel, for some lines. Pillow has no mode for colours of that depth and drops the low byte.

    But it unpacks the same bytes in either order: once for the high bytes and once for the low ones.
    """
    if channels == 1:
        picture.load()
        return lambda lines: np.asarray(_lines(picture, lines)).astype(np.uint16)[..., np.newaxis]
    if channels == 2:
        picture = _unpacked(picture, "RGBA")
        return lambda lines: _joined(*(_lines(picture, lines)[..., first::2] for first in (0, 1)))
    mode = "RGB" if channels == 3 else "RGBA"
    high = _unpacked(picture, f"{mode};16B")
    with opener(BytesIO(essence)) as again:
        low = _unpacked(again, f"{mode};16L")
    return lambda lines: _joined(_lines(high, lines), _lines(low, lines))


def _unpacked(picture: Any, layout: str) -> Any:
    """The picture with its bytes in another order than its own."""
    picture.tile = [picture.tile[0]._replace(args=layout)]
    picture.load()
    return picture


def _lines(picture: Any, lines: slice) -> NDArray[Any]:
    return np.asarray(picture.crop((0, lines.start, picture.width, min(lines.stop, picture.height))))


def _joined(high: Pixels, low: Pixels) -> NDArray[np.uint16]:
    levels: NDArray[np.uint16] = high.astype(np.uint16)
    levels <<= 8
    levels |= low
    return levels


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
