"""``recompress_image``: a JPEG round trip, for models that were trained behind one."""

from dataclasses import dataclass
from io import BytesIO
from typing import Literal

from forwardpass.core.pipeline import Field
from forwardpass.steps.image.pixels import (
    Pixels,
    as_picture,
    as_pixels,
    check_jpeg_size,
    each_image,
    image_field,
    pillow,
    source_image,
)
from forwardpass.steps.kind import Kind
from forwardpass.steps.options import choice, field_name, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared


@dataclass(frozen=True, kw_only=True)
class RecompressImage:
    """Encodes a decoded image as JPEG with Pillow and decodes it again; ragged UINT8 of the same size.

    Open-NSFW's reference does so between its resize and its crop, at Pillow's defaults, which are the defaults here.
    An image with a side over 65,500 pixels, which JPEG has not, fails its row with ``input_too_large``.
    """

    input: str | None = option(field_name(), "the image; without it the latest decoded one", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)
    quality: int = option(whole(1, 100), "JPEG quality", 75)
    subsampling: Literal["4:4:4", "4:2:2", "4:2:0"] = option(
        choice("4:4:4", "4:2:2", "4:2:0"), "how much of the colour is kept", "4:2:0"
    )


def _recompressed_fields(options: RecompressImage, known: FieldMap) -> list[Field]:
    source = source_image(known, options.input)
    return [image_field(options.output or source.name, source.shape[-1])]


def _recompress(options: RecompressImage, known: FieldMap, context: Context) -> Prepared:
    source = source_image(known, options.input)
    image_module = pillow("recompress_image")
    from PIL.JpegImagePlugin import JpegImageFile  # Image.open would warn of a large image

    def recompressed(_: int, pixels: Pixels) -> Pixels:
        check_jpeg_size(source.name, pixels)
        encoded = BytesIO()
        as_picture(image_module, pixels).save(encoded, "JPEG", quality=options.quality, subsampling=options.subsampling)
        encoded.seek(0)
        with JpegImageFile(encoded) as picture:
            return as_pixels(picture)

    def run(batch: Batch) -> None:
        batch.columns[options.output or source.name] = each_image(batch, source, recompressed)

    return run


RECOMPRESS_IMAGE = Kind("recompress_image", RecompressImage, _recompressed_fields, _recompress)
