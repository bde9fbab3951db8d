"""recompress_image is a JPEG round trip by Pillow; with it open-nsfw's preprocessing can be said."""

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from tests.steps.photos import GREY, IMAGE, PHOTO, china, column, decoded, encoded, flower, noise

from forwardpass.core.errors import Code

if TYPE_CHECKING:
    from tests.steps.conftest import Run


@pytest.mark.parametrize("options", [{}, {"quality": 30}, {"quality": 100, "subsampling": "4:4:4"}])
def test_the_pixels_are_those_of_a_jpeg_by_pillow(run: "Run", options: dict[str, Any]) -> None:
    found = run("recompress_image", options, {IMAGE: column(china(), flower())}).columns["image"]
    for image, picture in zip(found, (china(), flower()), strict=True):
        np.testing.assert_array_equal(image, decoded(encoded(picture, "JPEG", **options)))


def test_grey_stays_grey(run: "Run") -> None:
    found = run("recompress_image", {"output": "again"}, {GREY: column(noise(20, 10, 1))}).columns["again"][0]
    picture = Image.fromarray(noise(20, 10, 1)[..., 0])
    np.testing.assert_array_equal(found[..., 0], decoded(encoded(picture, "JPEG"), "L"))


def test_a_side_that_jpeg_has_not_fails_its_row_alone(run: "Run") -> None:
    batch = run("recompress_image", {}, {IMAGE: column(np.zeros((1, 65_501, 3), np.uint8), china(4, 3))})
    assert batch.failures[0].code is Code.INPUT_TOO_LARGE and batch.rows == 1


def test_open_nsfws_preprocessing_can_be_said(run: "Run") -> None:
    data = encoded(flower(), "JPEG", quality=95)
    image = run("decode_image", {}, {PHOTO: [data]}).columns["image"]
    for use, options in (
        ("resize_image", {"width": 256, "height": 256}),
        ("recompress_image", {}),
        ("crop_image", {"size": [224, 224]}),
    ):
        image = run(use, options, {IMAGE: image}).columns["image"]
    numbers = {"color": "bgr", "mean": [104, 117, 123], "layout": "hwc", "size": [224, 224]}
    found = run("image_tensor", numbers, {IMAGE: image}).columns["tensor"]

    small = Image.open(io.BytesIO(data)).convert("RGB").resize((256, 256), Image.Resampling.BILINEAR)
    again = decoded(encoded(small, "JPEG")).astype(np.float32)[16:240, 16:240, ::-1]
    np.testing.assert_array_equal(found[0], again - np.array([104, 117, 123], np.float32))
